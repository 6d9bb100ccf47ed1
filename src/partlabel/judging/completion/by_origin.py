"""What is filled in in the images of each origin, and how it was tested."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from partlabel.judging.completion.assessment import Assessment, Scope
from partlabel.judging.completion.held_labels import Mask
from partlabel.judging.completion.likeness import Comparison
from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.sampling import Unit


class OriginResult(NamedTuple):
    """Unknown labels of the images of one origin that are tested in the same way.

    Args:
        origin: the origins of the labels of these images.
        images: the number of images with such unknown labels.
        drawn: what was drawn at random for the test; None if nothing tests these labels.
        classes: the number of classes.
        unknown: the number of unknown labels.
        filled: how many of them are filled in as present, and as absent.
        tested: the labels that test them, of these classes and beyond their thresholds: those of
            the same images if labels were drawn, otherwise those of all images.
        right: how many of these the model predicts.
        comparison: with the images that test, if images were drawn.
    """

    origin: str
    images: int
    drawn: Unit | None
    classes: int
    unknown: int
    filled: dict[int, int]
    tested: int
    right: int
    comparison: Comparison | None


def results_by_origin(assessment: Assessment) -> list[OriginResult]:
    """One result per origin and way of testing, in the order of the origins."""
    decided, groups = assessment.decide(), assessment.likeness.groups
    results, left = [], assessment.evidence.unknown.copy()
    for scope in assessment.scopes:
        labels = scope.population.labels
        beyond = scope.guarantees.decide(scope.population.scores)
        counted, right = (labels != 0) & (beyond != 0), labels == beyond
        for origin, cells, tests, comparison in _parts(assessment, scope):
            results.append(
                OriginResult(
                    origin,
                    int(cells.any(axis=1).sum()),
                    scope.guarantees.unit,
                    int(cells.any(axis=0).sum()),
                    int(cells.sum()),
                    {value: int((decided[cells] == value).sum()) for value in (PRESENT, ABSENT)},
                    int((counted & tests).sum()),
                    int((counted & tests & right).sum()),
                    comparison,
                )
            )
            left &= ~cells
    for number, origin in enumerate(groups.names):
        cells = left & (groups.of_image == number)[:, None]
        if cells.any():
            rows, columns = (int(cells.any(axis=axis).sum()) for axis in (1, 0))
            nothing = {PRESENT: 0, ABSENT: 0}
            results.append(
                OriginResult(origin, rows, None, columns, int(cells.sum()), nothing, 0, 0, None)
            )
    return sorted(results, key=lambda one: one.origin)


def _parts(
    assessment: Assessment, scope: Scope
) -> Iterator[tuple[str, Mask, Mask, Comparison | None]]:
    """The origin of images, their unknown cells [n, C], and the cells [n, C] that test these."""
    groups, unknown = assessment.likeness.groups, assessment.evidence.unknown
    if scope.guarantees.unit == "cell":
        for number, origin in enumerate(groups.names):
            inside = (groups.of_image == number)[:, None]
            cells = scope.population.unknown & inside
            if cells.any():
                yield origin, cells, inside & cells.any(axis=0), None
        return
    for one in assessment.likeness.comparisons:
        cells, tests = np.zeros_like(unknown), np.zeros_like(unknown)
        cells[np.ix_(one.rows, one.classes)] = True
        tests[:, one.classes] = True
        yield one.origin, cells & assessment.likeness.cells, tests, one
