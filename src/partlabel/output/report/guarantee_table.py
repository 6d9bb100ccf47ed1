"""The guarantees of ``complete``, and the tests that they rest on."""

from collections.abc import Iterator

import numpy as np
from scipy.special import expit

from partlabel.base.errors import count
from partlabel.judging.completion import Assessment
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.metrics.guarantee import Guarantees
from partlabel.metrics.guarantee_thresholds import Limit
from partlabel.output.report.section import Section, listed, percent

_DRAWN = {"cell": "label", "image": "image"}
_VALUES = {PRESENT: ("present", "from"), ABSENT: ("absent", "up to")}


def guarantees(assessment: Assessment, classes: list[str], reason: str) -> list[Section]:
    """One row per test: of a class on its own, or of a pool of classes.

    Args:
        assessment: the test on held-out labels.
        classes: the names of the classes.
        reason: why nothing can be guaranteed; empty if something can.
    """
    title = "What `complete` guarantees"
    if reason:
        return [Section(title, reason[0].upper() + reason[1:] + ".")]
    rows = [
        row
        for scope in assessment.scopes
        for value in _VALUES
        for row in _rows(scope.guarantees, value, classes, _DRAWN[scope.guarantees.unit])
    ]
    precision, filled = f"{100 * assessment.precision:g}%", assessment.filled
    caption = (
        "`complete` fills in an unknown label if its calibrated score (in percent) is beyond the "
        f"threshold, so that at least {precision} of the labels that it fills in are correct, with "
        "a confidence of 95% per row. Each row is one test: how many of the held-out labels beyond "
        "the threshold were predicted correctly, and the precision (in percent) that this shows at "
        "least. Classes with too few labels are tested together, and the guarantee then holds for "
        "the pool, not for each of its classes. Of the held-out labels, "
        f"{percent(filled[PRESENT])}% would have been filled in as present and "
        f"{percent(filled[ABSENT])}% as absent."
    )
    header = [
        "labels",
        "tested",
        "by",
        "threshold",
        "correct in the test",
        "precision at least",
        "classes",
    ]
    return [Section(title, caption, header=header, rows=rows, words=True)]


def _rows(
    guarantees: Guarantees, value: int, classes: list[str], drawn: str
) -> Iterator[list[str]]:
    """The tests for present or for absent labels: classes on their own, pools, and the rest."""
    word, tests = _VALUES[value][0], guarantees.of(value)
    for pool in dict.fromkeys(one.pool for one in tests if one.basis):
        names = listed([classes[j] for j in pool])
        tested = "class" if len(pool) == 1 else f"pooled: {count(len(pool), 'class', 'classes')}"
        yield [word, tested, drawn, *_numbers(tests[pool[0]].limit, value), names]
    without = [classes[j] for j, one in enumerate(tests) if not one.basis]
    if without:
        tested = f"no guarantee: {count(len(without), 'class', 'classes')}"
        yield [word, tested, drawn, "-", "-", "-", listed(without)]


def _numbers(limit: Limit, value: int) -> list[str]:
    threshold = percent(float(expit(value * limit.threshold)))
    return [
        f"{_VALUES[value][1]} {threshold}",
        f"{limit.right:,} of {limit.tested:,}",
        percent(limit.precision),
    ]


def by_origin(assessment: Assessment, known: LabelTable) -> list[Section]:
    """What is filled in in the images of each origin, and how it was tested."""
    if not len(known.origins):
        return []
    decided, labels = assessment.decide(), known.dense()
    drawn = {scope.guarantees.unit: scope.population.unknown for scope in assessment.scopes}
    codes, cells = known.cells.origins_or_none(), known.cells
    rows = []
    for code, name in enumerate(["(no label)", *known.origins]):
        images = np.zeros(len(known), dtype=np.bool_)
        if code:
            images[cells.rows[codes == code]] = True
        else:
            images[:] = ~(labels != 0).any(axis=1)
        if not images.any():
            continue
        part = decided[images]
        how = [_DRAWN[unit] for unit, unknown in drawn.items() if unknown[images].any()]
        numbers = [int(images.sum()), int((labels[images] == 0).sum())]
        numbers += [int((part == value).sum()) for value in (PRESENT, ABSENT)]
        rows.append([name, *(f"{number:,}" for number in numbers), " and ".join(how) or "-"])
    caption = (
        "The images with labels of each origin, and those without any label. A guarantee by label "
        "holds for the labels that are filled in there. A guarantee by image was tested on labels "
        "of other images, and holds if these images are alike."
    )
    header = ["origin", "images", "unknown", "filled in: present", "absent", "tested by"]
    return [Section("What is filled in, by origin", caption, header=header, rows=rows, words=True)]
