"""The experiment on how often guarantees are broken, in small: it catches tests that are wrong."""

import pytest
from benchmarks.validity import PLANTED, Tally, run_draw

from partlabel.labels import ABSENT, PRESENT


def tally_of(missing: str, learner: str, test: str, draws: int = 9) -> Tally:
    tally = Tally()
    for seed in range(draws):
        run_draw(missing, learner, test, seed, tally)
    return tally


@pytest.mark.parametrize(
    ("test", "missing"),
    [
        ("exact", "at random"),
        ("exact", "whole images"),
        ("exact", "per image"),
        ("halves", "at random"),
    ],
)
def test_guarantees_hold(test: str, missing: str) -> None:
    tally = tally_of(missing, "linear", test)
    assert tally.holds
    assert min(tally.made.values()) > 5
    assert all(0 <= tally.broken[v] <= tally.tests[v] for v in (PRESENT, ABSENT))


@pytest.mark.parametrize("test", list(PLANTED))
def test_a_test_that_is_wrong_on_purpose_is_caught(test: str) -> None:
    assert not tally_of("at random", PLANTED[test], test).holds
