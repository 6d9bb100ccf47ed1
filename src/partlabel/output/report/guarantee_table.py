"""The guarantees of ``complete``, and the tests that they rest on."""

from collections.abc import Iterator

from scipy.special import expit

from partlabel.base.errors import count
from partlabel.judging.completion import Assessment, Scope
from partlabel.judging.completion.by_origin import OriginResult, results_by_origin
from partlabel.judging.completion.evidence_files import DRAWN, prevalence, recall_at_least
from partlabel.judging.completion.likeness import LEAST_EFFECTIVE, MOST_AUC
from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.guarantee import Guarantees
from partlabel.metrics.guarantee_thresholds import Limit
from partlabel.output.report.section import Section, listed, percent

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
        for row in _rows(scope.guarantees, value, classes, DRAWN[scope.guarantees.unit])
    ]
    precision, filled = f"{100 * assessment.precision:g}%", assessment.held_filled
    caption = (
        "`complete` fills in an unknown label if its calibrated score (in percent) is beyond the "
        f"threshold, so that at least {precision} of the labels that it fills in are correct, with "
        "a confidence of 95% per row. Each row is one test: how many of the held-out labels beyond "
        "the threshold were predicted correctly, and the precision (in percent) that this shows at "
        "least. Classes with too few labels are tested together, and the guarantee then holds for "
        "the pool, not for each of its classes. Of the held-out labels, "
        f"{percent(filled[PRESENT])}% would have been filled in as present and "
        f"{percent(filled[ABSENT])}% as absent. All of this is about the images of the label file. "
        "If `complete` also fills in labels of further images, these change how classes are tested."
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


def recall_and_prevalence(assessment: Assessment, classes: list[str]) -> list[Section]:
    """One row per class and way of testing: how much is found at least, and how much is there."""
    rows = [
        [name, *_found(scope, j), *map(percent, prevalence(scope, j)), DRAWN[scope.population.unit]]
        for scope in assessment.scopes
        for j, name in enumerate(classes)
        if any(scope.guarantees.of(value)[j].basis for value in _VALUES)
    ]
    if not rows:
        return []
    caption = (
        "In percent, from the same held-out labels. Of the present labels of a class, at least the "
        "first share is filled in, and of its absent labels the second; `-` if none of them is "
        "guaranteed. The last two numbers are the interval of the share of its unknown labels that "
        "is present. Each holds with a confidence of 95%. A class with few held-out labels has low "
        "bounds and a wide interval."
    )
    header = [
        *("class", "present: found at least", "absent: found at least"),
        *("prevalence from", "to", "by"),
    ]
    title = "How much `complete` finds, and how frequent classes are"
    return [Section(title, caption, header=header, rows=rows, words=True)]


def _found(scope: Scope, j: int) -> list[str]:
    """The least recall of a class's present labels, and of its absent ones."""
    tests = {value: scope.guarantees.of(value)[j] for value in _VALUES}
    return [
        percent(recall_at_least(scope, j, value, one)) if one.basis else "-"
        for value, one in tests.items()
    ]


def by_origin(assessment: Assessment) -> list[Section]:
    """What is filled in in the images of each origin, how it was tested, and on which images."""
    results = results_by_origin(assessment)
    if not any(one.comparison for one in results) and len(results) < 2:
        return []
    caption = (
        "The images with labels of each origin, and those without any label. A guarantee by label "
        "holds for the labels that are filled in there. A guarantee by image was tested on labels "
        "of other images, and holds if these images are alike. The AUC says how well a classifier "
        "tells the images from those that test: 0.5 is not at all, 1 is always. The effective "
        "number is how many of the images that test would be left if they were weighted to look "
        f"like the others. With an AUC above {MOST_AUC}, or an effective number below "
        f"{LEAST_EFFECTIVE:.0%}, `complete` fills in nothing without `--despite-shift`. Each row "
        "also has the labels that test it, beyond their thresholds, and how many of them were "
        "predicted correctly."
    )
    header = [
        *("origin", "images", "classes", "unknown", "filled in: present", "absent"),
        *("correct in the test", "tested by", "images that test", "effective", "AUC"),
    ]
    rows = [_origin_row(one) for one in results]
    return [Section("What is filled in, by origin", caption, header=header, rows=rows, words=True)]


def _origin_row(one: OriginResult) -> list[str]:
    numbers = one.images, one.classes, one.unknown, one.filled[PRESENT], one.filled[ABSENT]
    row = [one.origin, *(f"{number:,}" for number in numbers)]
    row += [f"{one.right:,} of {one.tested:,}", DRAWN[one.drawn] or "nothing"]
    compared = one.comparison
    if compared is None:
        return [*row, "-", "-", "-"]
    tests = f"{compared.tests:,} of {listed(compared.tested_by)}" if compared.tests else "-"
    if compared.shift is None:
        return [*row, tests, "-", "-"]
    mark = "" if compared.is_alike else " (unlike)"
    return [*row, tests, f"{compared.effective:,.0f}", f"{compared.shift.auc:.2f}{mark}"]
