"""The guarantees of ``complete``, and the tests that they rest on."""

from collections.abc import Iterator

from scipy.special import expit

from partlabel.base.errors import count
from partlabel.judging.completion import Assessment
from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.guarantee import Basis, Limit
from partlabel.output.report.section import Section, listed, percent

_VALUES = {PRESENT: ("present", "from"), ABSENT: ("absent", "up to")}


def guarantees(assessment: Assessment, classes: list[str], reason: str) -> list[Section]:
    """One row per test: of a class on its own, or of a pool of classes.

    Args:
        assessment: the test on reserved labels.
        classes: the names of the classes.
        reason: why nothing can be guaranteed; empty if something can.
    """
    title = "What `complete` guarantees"
    if reason:
        return [Section(title, reason[0].upper() + reason[1:] + ".")]
    rows = [row for value in _VALUES for row in _rows(assessment, value, classes)]
    precision, filled = f"{100 * assessment.precision:g}%", assessment.filled
    caption = (
        "`complete` fills in an unknown label if its calibrated score (in percent) is beyond the "
        f"threshold, so that at least {precision} of the labels that it fills in are correct, with "
        "a confidence of 95% per row. Each row is one test: how many of the reserved labels beyond "
        "the threshold were predicted correctly, and the precision (in percent) that this shows at "
        "least. Classes with too few labels are tested together, and the guarantee then holds for "
        "the pool, not for each of its classes. Of the reserved labels, "
        f"{percent(filled[PRESENT])}% would have been filled in as present and "
        f"{percent(filled[ABSENT])}% as absent."
    )
    header = [
        "labels",
        "tested",
        "threshold",
        "correct in the test",
        "precision at least",
        "classes",
    ]
    return [Section(title, caption, header=header, rows=rows, words=True)]


def _rows(assessment: Assessment, value: int, classes: list[str]) -> Iterator[list[str]]:
    """The tests for present or for absent labels: classes on their own, the pool, and the rest."""
    guarantees = assessment.guarantees.of(value)
    of_basis: dict[Basis | None, list[int]] = {"class": [], "pooled": [], None: []}
    for j, guarantee in enumerate(guarantees):
        of_basis[guarantee.basis].append(j)
    word = _VALUES[value][0]
    for j in of_basis["class"]:
        yield [word, "class", *_numbers(guarantees[j].limit, value), classes[j]]
    others: tuple[tuple[Basis | None, str], ...] = (
        ("pooled", "pooled: {}"),
        (None, "no guarantee: {}"),
    )
    for basis, text in others:
        columns = of_basis[basis]
        if columns:
            limit = guarantees[columns[0]].limit
            numbers = _numbers(limit, value) if basis else ["-", "-", "-"]
            tested = text.format(count(len(columns), "class", "classes"))
            yield [word, tested, *numbers, listed([classes[j] for j in columns])]


def _numbers(limit: Limit, value: int) -> list[str]:
    threshold = percent(float(expit(value * limit.threshold)))
    return [
        f"{_VALUES[value][1]} {threshold}",
        f"{limit.right:,} of {limit.tested:,}",
        percent(limit.precision),
    ]
