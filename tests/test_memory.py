"""The memory of pseudo-labels against plain sorting, across blocks, stops and broken pictures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partlabel.base.errors import FileError, JobError
from partlabel.labels import LabelTable
from partlabel.learning.pseudo_labels import LabelMemory, Round, choose, quota
from partlabel.learning.pseudo_labels import memory as module


def table(labels: Any) -> LabelTable:
    labels = np.asarray(labels)
    names = [f"c{j}" for j in range(labels.shape[1])]
    return LabelTable([f"{i}" for i in range(len(labels))], names, labels)


def sort_and_take(scores: Any, free: Any, lowest: Any, highest: Any) -> Any:
    """Class by class, with Python's own stable sort."""
    chosen = np.zeros(scores.shape, dtype=np.int8)
    for j in range(scores.shape[1]):
        rows = [i for i in range(len(scores)) if free[i, j]]
        for i in sorted(rows, key=lambda i: scores[i, j])[: lowest[j]]:
            chosen[i, j] = -1
        rest = [i for i in rows if not chosen[i, j]]
        for i in sorted(rest, key=lambda i: -scores[i, j])[: highest[j]]:
            chosen[i, j] = 1
    return chosen


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 5))
def test_choice_is_that_of_a_sort(seed: int, images: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    # few different scores: ties, zeros and ones are common
    scores = rng.choice([0.0, 0.25, 0.5, 1.0], (images, classes)).astype(np.float32)
    free = rng.random((images, classes)) < 0.7
    lowest, highest = rng.integers(0, images + 2, (2, classes))
    expected = sort_and_take(scores, free, lowest, highest)
    np.testing.assert_array_equal(choose(scores, free, lowest, highest), expected)


@given(st.integers(0, 1000), st.floats(0, 1), st.integers(1, 30))
def test_quotas_add_up(total: int, share: float, rounds: int) -> None:
    parts = [int(quota(np.array([total]), share, n, rounds)[0]) for n in range(1, rounds + 1)]
    assert sum(parts) == round(total * share)
    assert max(parts) - min(parts) <= 1


@pytest.fixture(params=["one block", "a block a class", "in memory"])
def place(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    if request.param == "a block a class":
        monkeypatch.setattr(module, "_BLOCK", 1)
    return None if request.param == "in memory" else tmp_path / "memory"


def run_round(memory: LabelMemory, number: int, scores: Any, lowest: Any, **more: Any) -> int:
    this = Round(memory, number)
    for rows in np.array_split(np.arange(len(scores)), 3):
        this.score(rows, scores[rows])
    return this.give(lowest, **more)


def test_rounds_are_frozen(place: Path | None) -> None:
    labels = table([[1, 0, 0], [0, 0, -1], [0, 1, 0], [0, 0, 0]])
    memory = LabelMemory(labels, place)
    first = np.array([[0.0, 0.9, 0.2], [0.1, 0.8, 0.0], [0.3, 0.0, 0.4], [0.2, 0.7, 0.3]])
    assert run_round(memory, 1, first, [1, 1, 1]) == 3
    signs, values = memory.read(np.arange(4), 1)
    assert signs.tolist() == [[0, 0, -1], [-1, 0, 0], [0, 0, 0], [0, -1, 0]]
    assert values[1, 0] == np.float32(0.1)
    assert run_round(memory, 2, 1 - first, [1, 9, 0], highest=[0, 0, 1]) == 1 + 2 + 1
    signs, values = memory.read(np.arange(4), 2)
    assert signs.tolist() == [[0, -1, -1], [-1, -1, 0], [-1, 0, 0], [0, -1, 1]]
    assert values[1, 0] == np.float32(0.1)  # what was given stays
    assert values[2, 0] == np.float32(0.7)
    again, _ = memory.read(np.array([3, 1]), 1)  # as it was after the first round
    assert again.tolist() == [[0, -1, 0], [-1, 0, 0]]


def test_a_score_of_zero_is_a_label(place: Path | None) -> None:
    memory = LabelMemory(table([[0], [0]]), place)
    run_round(memory, 1, np.array([[0.0], [0.5]]), 1)
    signs, values = memory.read(np.arange(2), 1)
    assert signs.tolist() == [[-1], [0]]
    assert values[0, 0] == 0


def test_hard_labels(place: Path | None) -> None:
    memory = LabelMemory(table([[0], [0], [0]]), place)
    run_round(memory, 1, np.array([[0.2], [0.5], [0.9]]), 1, highest=1, values=(0.0, 1.0))
    signs, values = memory.read(np.arange(3), 1)
    assert signs[:, 0].tolist() == [-1, 0, 1]
    assert values[[0, 2], 0].tolist() == [0, 1]


def test_images_without_scores_get_no_label(place: Path | None) -> None:
    memory = LabelMemory(table([[0], [0], [0]]), place)
    this = Round(memory, 1)
    this.score(np.array([0, 2]), np.array([[0.4], [0.2]]))
    assert this.give(3) == 2
    assert memory.read(np.arange(3), 1)[0][:, 0].tolist() == [-1, 0, -1]


def test_a_round_cut_short_is_repeated(place: Path | None) -> None:
    rng = np.random.default_rng(0)
    labels = table(rng.integers(-1, 2, (40, 5)) * (rng.random((40, 5)) < 0.3))
    rounds = rng.random((3, 40, 5))

    def play(memory: LabelMemory, upto: int) -> None:
        for number in range(1, upto + 1):
            run_round(memory, number, rounds[number - 1], 4, highest=1)

    whole = LabelMemory(labels)
    play(whole, 3)
    cut = LabelMemory(labels, place)
    play(cut, 1)
    run_round(cut, 2, rounds[0], 7)  # other scores, and then the process dies
    Round(cut, 3).score(np.arange(5), rounds[2][:5])
    if place is not None:
        cut = LabelMemory(labels, place)
    for number in (2, 3):
        run_round(cut, number, rounds[number - 1], 4, highest=1)
    for upto in range(4):
        signs, values = whole.read(np.arange(40), upto)
        signs_cut, values_cut = cut.read(np.arange(40), upto)
        np.testing.assert_array_equal(signs, signs_cut)
        np.testing.assert_array_equal(values[signs != 0], values_cut[signs != 0])


def test_tally_against_truth(tmp_path: Path) -> None:
    memory = LabelMemory(table([[0, 0], [0, 0], [1, 0]]), tmp_path / "m")
    run_round(memory, 1, np.array([[0.1, 0.5], [0.3, 0.4], [0.0, 0.9]]), [1, 1], highest=[0, 1])
    run_round(memory, 2, np.array([[0.1, 0.5], [0.3, 0.4], [0.0, 0.9]]), [1, 0])
    truth = table([[-1, 1], [1, 0], [1, 1]])
    tally = LabelMemory.open(tmp_path / "m").tally(2, truth)
    assert tally.given.tolist() == [[[1, 1], [0, 1]], [[1, 0], [0, 0]]]
    assert tally.judged.tolist() == [[[1, 0], [0, 1]], [[1, 0], [0, 0]]]
    assert tally.right.tolist() == [[[1, 0], [0, 1]], [[0, 0], [0, 0]]]
    assert memory.tally(1).given.sum() == 3


def test_other_labels_are_refused(tmp_path: Path) -> None:
    LabelMemory(table([[0], [0]]), tmp_path / "m")
    for other in ([[0], [0], [1]], [[0], [1]]):
        with pytest.raises(FileError, match="other labels"):
            LabelMemory(table(other), tmp_path / "m")


def test_damage_is_named(tmp_path: Path) -> None:
    LabelMemory(table([[0], [0]]), tmp_path / "m")
    (tmp_path / "m" / "values").write_bytes(b"12345")
    with pytest.raises(FileError, match="values"):
        LabelMemory.open(tmp_path / "m")
    with pytest.raises(FileError, match="values"):
        LabelMemory(table([[0], [0]]), tmp_path / "m")
    true = '{"images": 2, "classes": 1, "width": true, "known": "x"}'
    for text in ("", "[]", true, '{"images": -1, "classes": 1, "width": 1}', '{"images": 1}'):
        (tmp_path / "m" / "shape.json").write_text(text)
        with pytest.raises(FileError, match="shape"):
            LabelMemory.open(tmp_path / "m")


def test_too_large_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(JobError, match="larger disk"):
        LabelMemory(table([[0], [0]]), tmp_path / "m")


def test_scores_that_are_no_numbers(place: Path | None) -> None:
    memory = LabelMemory(table([[0], [1]]), place)
    with pytest.raises(JobError, match="NaN"):
        Round(memory, 1).score(np.arange(2), np.array([[np.nan], [0.5]]))


def test_many_rounds(place: Path | None) -> None:
    memory = LabelMemory(table([[0], [0]]), place)
    run_round(memory, 1000, np.array([[0.2], [0.5]]), 1)
    assert memory.read(np.arange(2), 1000)[0].tolist() == [[-1], [0]]
    assert memory.read(np.arange(0), 1000)[0].shape == (0, 1)


def test_images_that_were_not_marked_lose_what_an_earlier_attempt_gave() -> None:
    memory = LabelMemory(table(np.zeros((600, 2), dtype=np.int8)), None)
    everything = np.ones((600, 2), dtype=np.int8)
    Round(memory, 1).mark(np.arange(600), everything)  # cut short: no end
    again = Round(memory, 1)
    again.mark(np.arange(10), everything[:10])
    again.end()
    given, _ = memory.read(np.arange(600), 1)
    assert given[:10].all()
    assert not given[10:].any()
