"""What is filled in in the images of each origin, and how it was tested."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.images.batches import Rows
from partlabel.judging.completion.assessment import Assessment, Scope
from partlabel.judging.completion.held_labels import Mask
from partlabel.judging.completion.layout import PARTS, TAGGED, Part
from partlabel.judging.completion.likeness import Comparison
from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.sampling import Unit

_VALUES = PRESENT, ABSENT


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


class FilledCells:
    """How many cells are filled in, by the origin of their images, the part and the class."""

    def __init__(self, assessment: Assessment) -> None:
        self.assessment = assessment
        groups, classes = assessment.material.likeness.groups, assessment.material.classes
        self.shape = len(groups.names), len(Part), classes
        self.numbers = {value: np.zeros(self.shape, dtype=np.int64) for value in _VALUES}
        self.groups = groups.of_image

    def add(self, rows: Rows, columns: Rows, values: NDArray[np.int8]) -> None:
        """Count cells [m] that are filled in."""
        layout = self.assessment.material.layout
        part = layout.parts[layout.kind[rows], columns].astype(np.int64)
        flat = (self.groups[rows] * self.shape[1] + part) * self.shape[2] + columns
        for value, numbers in self.numbers.items():
            numbers.reshape(-1)[:] += np.bincount(flat[values == value], minlength=numbers.size)


def count_filled(assessment: Assessment) -> FilledCells:
    """Go over all images, and count what is filled in; with one origin there is no need to."""
    result = FilledCells(assessment)
    if result.shape[0] == 1:
        for part in Part:
            for value, number in assessment.filled_in((part,)).items():
                result.numbers[value][0, part] = number
        return result
    for rows, _, values in assessment.blocks():
        image, column = np.nonzero(values)
        result.add(rows[image], column, values[image, column])
    return result


def results_by_origin(
    assessment: Assessment, filled: FilledCells | None = None
) -> list[OriginResult]:
    """One result per origin and way of testing, in the order of the origins.

    Args:
        filled: what is filled in, if that was counted already.
    """
    counted = filled or count_filled(assessment)
    material, results = assessment.material, list[OriginResult]()
    names = material.likeness.groups.names
    unknown = material.layout.counts(material.likeness.groups.of_image, len(names))
    covered: set[Part] = set()
    for scope in assessment.scopes:
        unit, parts = scope.guarantees.unit, _parts(scope.guarantees.unit)
        covered |= set(parts)
        for number, classes, comparison in _origins(assessment, unit):
            cells = unknown[number][list(parts)].sum(axis=0)[classes]
            if not cells.any():
                continue
            inside = classes[cells > 0] if unit == "cell" else classes
            tested, right = _tests(assessment, scope, number, inside)
            images = _images(assessment, number, parts, classes)
            numbers = _filled(counted, number, parts, classes)
            results.append(
                OriginResult(names[number], images, unit, int((cells > 0).sum()),
                             int(cells.sum()), numbers, tested, right, comparison)
            )  # fmt: skip
    left = [part for part in Part if part not in covered]
    for number, origin in enumerate(names):
        cells = unknown[number][left].sum(axis=0)
        if cells.any():
            images, total = _images(assessment, number, left, None), int(cells.sum())
            none = {PRESENT: 0, ABSENT: 0}
            results.append(
                OriginResult(origin, images, None, int((cells > 0).sum()), total, none, 0, 0, None)
            )
    return sorted(results, key=lambda one: one.origin)


def _parts(unit: Unit) -> tuple[Part, ...]:
    """The parts that a scope fills in, or leaves out."""
    return PARTS[unit] if unit == "cell" else (*PARTS[unit], *TAGGED, Part.LEFT_OUT)


def _origins(assessment: Assessment, unit: Unit) -> Iterator[tuple[int, Rows, Comparison | None]]:
    """Groups of images and classes: all, or those that were compared with the images that test."""
    likeness, classes = assessment.material.likeness, np.arange(assessment.material.classes)
    if unit == "cell":
        yield from ((number, classes, None) for number in range(len(likeness.groups.names)))
    else:
        for one in likeness.comparisons:
            yield likeness.groups.names.index(one.origin), one.classes, one


def _images(
    assessment: Assessment, number: int, parts: Collection[Part], classes: Rows | None
) -> int:
    """How many images of an origin have unknown cells of some parts and classes."""
    material = assessment.material
    inside: Mask = material.likeness.groups.of_image == number
    return int((inside & material.layout.open_images(parts, classes)).sum())


def _tests(assessment: Assessment, scope: Scope, number: int, classes: Rows) -> tuple[int, int]:
    """The labels beyond a threshold that test some classes, and how many are right."""
    tests, material = scope.population.tests, assessment.material
    high, low = (scope.guarantees.thresholds(value)[tests.columns] for value in _VALUES)
    beyond = (tests.low >= high).astype(np.int8) - (-tests.high >= low)
    counted = (beyond != 0) & np.isin(tests.columns, classes)
    if scope.guarantees.unit == "cell":
        counted &= material.likeness.groups.of_image[tests.rows] == number
    return int(counted.sum()), int((counted & (tests.labels == beyond)).sum())


def _filled(
    counted: FilledCells, number: int, parts: Collection[Part], classes: Rows
) -> dict[int, int]:
    chosen = np.ix_(np.array([number]), np.array(list(parts)), classes)
    return {value: int(numbers[chosen].sum()) for value, numbers in counted.numbers.items()}
