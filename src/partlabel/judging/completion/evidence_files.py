"""The evidence for a completion, as files: by class and value, and by origin."""

from collections.abc import Iterator
from pathlib import Path

from scipy.special import expit

from partlabel.judging.completion.assessment import Assessment, Scope
from partlabel.judging.completion.by_origin import FilledCells, OriginResult, results_by_origin
from partlabel.labels import ABSENT, PRESENT
from partlabel.labels.formats.delimited import write_delimited
from partlabel.labels.formats.formulas import quoted
from partlabel.metrics.bounds import ERROR, at_least, interval
from partlabel.metrics.guarantee import Guarantee
from partlabel.metrics.sampling import Unit, draw_sample

DIGITS = {PRESENT: 1, ABSENT: 0}  # as in label files
DRAWN: dict[Unit | None, str] = {"cell": "label", "image": "image", None: ""}
_GUARANTEE_COLUMNS = [
    *("class", "value", "filled", "rests_on", "classes", "drawn", "tested", "right"),
    *("at_least", "expected_at_least", "threshold", "recall_at_least"),
    *("prevalence_from", "prevalence_to"),
]
_ORIGIN_COLUMNS = [
    *("origin", "images", "drawn", "classes", "unknown", "present", "absent", "tested", "right"),
    *("tested_by", "testing_images", "auc", "effective_images", "alike"),
]
_NOTHING = "nothing"  # what a value of a class without a guarantee rests on
_EMPTY = [""] * (len(_GUARANTEE_COLUMNS) - 6)


def write_guarantees(
    assessment: Assessment, names: list[str], path: Path, *, excel_safe: bool
) -> None:
    """One line per class and value: what is filled in, and how it was tested.

    Two lines if some unknown labels of a class are tested by label, and others by image.

    Args:
        names: of the classes.
    """
    safe = [quoted(name, excel_safe=excel_safe) for name in names]
    write_delimited(path, _GUARANTEE_COLUMNS, [*_guarantee_lines(assessment, safe)])


def _guarantee_lines(assessment: Assessment, names: list[str]) -> Iterator[tuple[object, ...]]:
    missing = dict.fromkeys(
        (value, j) for value in DIGITS for j in range(assessment.material.classes)
    )
    for scope in assessment.scopes:
        decided, drawn = assessment.filled_by(scope), DRAWN[scope.guarantees.unit]
        for value in DIGITS:
            for j, guarantee in enumerate(scope.guarantees.of(value)):
                line = names[j], DIGITS[value], int(decided[value][j])
                if guarantee.basis is not None:
                    yield (*line, *_test_of(scope, j, value, guarantee))
                elif scope.population.unknown[:, j].any():
                    yield (*line, _NOTHING, "", drawn, *_EMPTY)
                else:
                    continue
                missing.pop((value, j), None)
    for value, j in missing:  # no unknown label, or none that anything tests
        yield (names[j], DIGITS[value], 0, _NOTHING, "", "", *_EMPTY)


def _test_of(scope: Scope, j: int, value: int, guarantee: Guarantee) -> tuple[object, ...]:
    """How the guarantee for the labels of a value of a class was tested."""
    limit = guarantee.limit
    return (
        guarantee.basis,
        len(guarantee.pool),
        DRAWN[scope.guarantees.unit],
        limit.tested,
        limit.right,
        f"{limit.precision:.4f}",
        f"{limit.expected:.4f}",
        f"{expit(value * limit.threshold):.6g}",
        f"{recall_at_least(scope, j, value, guarantee):.4f}",
        *(f"{end:.4f}" for end in prevalence(scope, j)),
    )


def write_origins(
    assessment: Assessment, counted: FilledCells | None, path: Path, *, excel_safe: bool
) -> None:
    """One line per origin and way of testing, with the comparison of its images.

    Args:
        counted: what was filled in, if it has been counted.
    """
    lines = [
        tuple(quoted(text, excel_safe=excel_safe) for text in _origin_line(one))
        for one in results_by_origin(assessment, counted)
    ]
    write_delimited(path, _ORIGIN_COLUMNS, lines)


def _origin_line(one: OriginResult) -> list[str]:
    """What is filled in in the images of an origin, and how it was tested, as text."""
    numbers = one.classes, one.unknown, one.filled[PRESENT], one.filled[ABSENT]
    line = [one.origin, str(one.images), DRAWN[one.drawn], *map(str, numbers)]
    line += [str(one.tested), str(one.right)]
    compared = one.comparison
    if compared is None:
        return [*line, *[""] * 5]
    line += ["; ".join(compared.tested_by), str(compared.tests)]
    if compared.shift is None:
        return [*line, *[""] * 3]
    alike = "yes" if compared.is_alike else "no"
    return [*line, f"{compared.shift.auc:.3f}", f"{compared.effective:.1f}", alike]


def recall_at_least(scope: Scope, j: int, value: int, guarantee: Guarantee) -> float:
    """Lower bound of the share of a class's labels of a value that are filled in.

    It holds for all thresholds that could be chosen together, and so for the one that was.
    """
    sample = draw_sample(scope.population, [j], value)  # groups weigh as among unknown labels
    ours = sample.confidence[sample.reserved & ~sample.wrong]
    accepted = int((ours >= guarantee.limit.threshold).sum())
    return at_least(accepted, len(ours), ERROR / guarantee.limit.tests)


def prevalence(scope: Scope, j: int) -> tuple[float, float]:
    """Interval of the share of a class's unknown labels that are present, at 95% confidence."""
    sample = draw_sample(scope.population, [j], PRESENT)
    present = int((sample.reserved & ~sample.wrong).sum())
    return interval(present, int(sample.reserved.sum()))
