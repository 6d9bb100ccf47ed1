"""The test of a run's scores on reserved labels: calibration and guarantees."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from partlabel.images.batches import Rows
from partlabel.judging.completion.held_labels import (
    Mask,
    Scores,
    gather,
)
from partlabel.judging.completion.layout import (
    PARTS,
    TAGGED,
    Layout,
    Part,
)
from partlabel.judging.completion.likeness import Likeness
from partlabel.judging.completion.origin_groups import OriginGroups
from partlabel.judging.completion.prepared_scores import Material, measured, sigmoid
from partlabel.judging.image_scores import ImageScores
from partlabel.labels import ABSENT, PRESENT
from partlabel.labels.origins import NO_ORIGIN
from partlabel.metrics.calibration import Bins, Calibration, reliability
from partlabel.metrics.guarantee import Guarantees, find_guarantees, nothing_guaranteed
from partlabel.metrics.sampling import Basis, Population
from partlabel.training.run import Run

_VALUES = PRESENT, ABSENT


class Share(NamedTuple):
    """A share of cells per class [C] and its standard error; NaN for a class without cells."""

    mean: Scores
    noise: Scores


class Scope(NamedTuple):
    """Labels to fill in that are tested in the same way, and what is guaranteed of them."""

    population: Population
    guarantees: Guarantees

    def filled(self, value: int) -> NDArray[np.int64]:
        """[C] the number of cells that are filled in with a value."""
        return self.population.spread.beyond(value, self.guarantees.thresholds(value))


@dataclass(frozen=True)
class Assessment:
    """The scores of a run, tested on reserved labels.

    Args:
        precision: the precision that is guaranteed.
        material: the labels that it rests on, and calibrated scores.
        scopes: the labels to fill in, by how they are tested.
    """

    precision: float
    material: Material
    scopes: list[Scope]

    @property
    def calibration(self) -> Calibration:
        """Turns scores into probabilities."""
        return self.material.calibration

    @property
    def _present(self) -> Mask:
        return np.asarray(self.material.tested.labels == PRESENT)

    @cached_property
    def before(self) -> Bins:
        """Reliability of raw scores on reserved labels."""
        tested, material = self.material.tested, self.material
        logits = material.survey.at(tested.rows, tested.columns, tested.classes)
        return reliability(sigmoid(logits), self._present)

    @cached_property
    def after(self) -> Bins:
        """Reliability of calibrated scores on reserved labels."""
        return reliability(expit(self.material.tested.scores), self._present)

    @cached_property
    def held_filled(self) -> dict[int, float]:
        """Share of the reserved labels that would have been filled in as present, as absent.

        By whichever test fills in more, if a class is tested by label and by image.
        """
        tested, (low, high) = self.material.tested, self.material.ends
        if not self.scopes or not len(tested):
            return dict.fromkeys(_VALUES, 0.0)
        least = {
            value: np.min([one.guarantees.thresholds(value) for one in self.scopes], axis=0)
            for value in _VALUES
        }
        return {
            PRESENT: float(np.mean(low >= least[PRESENT][tested.columns])),
            ABSENT: float(np.mean(-high >= least[ABSENT][tested.columns])),
        }

    def expected_in(self, origin: int) -> Share:
        """Share of the labels that test images of an origin that calibrated scores expect present.

        These are labels of the same images if there are any of the class, otherwise all of them.
        """
        material, tested = self.material, self.material.tested
        own = material.likeness.groups.of_image[tested.rows] == origin
        has_own = np.bincount(tested.columns[own], minlength=tested.classes) > 0
        one = tested.where(own | ~has_own[tested.columns])
        return share_by_class(expit(one.scores), one.columns, one.classes)

    @cached_property
    def filled(self) -> dict[int, NDArray[np.int64]]:
        """[C] the number of unknown cells that become present, and absent."""
        return self.filled_in(tuple(Part))

    def filled_in(self, parts: tuple[Part, ...]) -> dict[int, NDArray[np.int64]]:
        """[C] the number of unknown cells of some parts that become present, and absent."""
        total = {value: np.zeros(self.material.classes, dtype=np.int64) for value in _VALUES}
        for part, spread in self.material.spreads.items():
            for value in _VALUES if part in parts else ():
                total[value] += spread.beyond(value, self._thresholds(part, value))
        return total

    def filled_by(self, scope: Scope) -> dict[int, NDArray[np.int64]]:
        """[C] the number of unknown cells that become present, and absent, by a scope's tests."""
        unit = scope.guarantees.unit
        return self.filled_in(PARTS[unit] + (TAGGED if unit == "image" else ()))

    @property
    def share(self) -> float:
        """The share of the unknown cells, of images that can be read, that are filled in."""
        unknown = int(self.material.layout.unknown.sum())
        filled = sum(int(number.sum()) for number in self.filled.values())
        return filled / unknown if unknown else 1.0

    def _thresholds(self, part: Part, value: int) -> Scores:
        """[C] the least confidence of cells of a part that are filled in."""
        for scope in self.scopes:
            unit = scope.guarantees.unit
            # fewer of the unknown labels are present where some presences are known already, so
            # what was tested on other images holds for absent labels only
            tagged = unit == "image" and part in TAGGED and value == ABSENT
            if part in PARTS[unit] or tagged:
                return scope.guarantees.thresholds(value)
        return np.full(self.material.classes, np.inf)

    @cached_property
    def _limits(self) -> dict[int, Tensor]:
        """[K, C] what a cell of an image of each kind must reach, to be filled in with a value."""
        parts, meter, limits = self.material.layout.parts, self.material.meter, {}
        columns = np.arange(parts.shape[1])
        for value in _VALUES:
            by_part = np.stack([meter.limits(value, self._thresholds(p, value)) for p in Part])
            limits[value] = torch.from_numpy(by_part[parts, columns])
        return limits

    def decide(self, rows: Rows, logits: Tensor) -> NDArray[np.int8]:
        """[b, C] the values of the unknown cells of rows [b] that are filled in; 0 for the rest.

        Args:
            rows: [b] readable images.
            logits: [b, C] of the final model.
        """
        material = self.material
        values = material.meter.values(rows, logits)
        kinds = torch.from_numpy(material.layout.kind[rows])
        high, low = (self._limits[value].to(values.dtype) for value in _VALUES)
        if len(high) > 1:
            high, low = high[kinds], low[kinds]
        present, absent = (values >= high).view(torch.int8), (values <= low).view(torch.int8)
        decided = present.sub_(absent).numpy()
        known = material.scores.table.cells.take(rows)
        keep = known.values != 0
        decided[known.rows[keep], known.columns[keep]] = 0
        return decided

    def decided(self, rows: Rows) -> tuple[NDArray[np.int8], Scores]:
        """[b, C] what is filled in for some rows [b], and calibrated logits; 0 if unreadable."""
        classes = len(self.material.scores.table.classes)
        values, logits = (
            np.zeros((len(rows), classes), dtype=np.int8),
            np.zeros((len(rows), classes)),
        )
        place = {int(row): number for number, row in enumerate(rows)}
        for part, block in self.material.scores.blocks(rows):
            here = [place[int(row)] for row in part]
            values[here] = self.decide(part, block)
            logits[here] = self.material.meter.calibrated.of(part, block)
        return values, logits

    def blocks(self) -> Iterator[tuple[Rows, Tensor, NDArray[np.int8]]]:
        """Rows [b], logits [b, C] of the final model, and what is filled in [b, C], of all rows."""
        for rows, logits in self.material.scores.blocks():
            yield rows, logits, self.decide(rows, logits)


def assess(material: Material, precision: float, basis: Basis | None = None) -> Assessment:
    """Test thresholds on labels that no training saw.

    Args:
        precision, basis: see :func:`guarantee.find_guarantees`.
    """
    scopes = [
        Scope(population, find_guarantees(material.first, population, precision, basis))
        for population in material.populations
    ]
    return Assessment(precision, material, scopes)


def assess_new_images(
    run: Run, scores: ImageScores, precision: float
) -> tuple[Guarantees, Calibration]:
    """What can be guaranteed of the final model's answers for images that it was not given.

    Args:
        run: a finished run with reserved labels.
        scores: the logits of all images of the run.
        precision: share of the answers that must be right.
    """
    held = gather(run, scores.table, scores.readable, "exact")
    held = replace(held, tagged=np.zeros_like(held.tagged))
    classes, number = len(scores.table.classes), len(scores.table)
    one_group = np.zeros(number, dtype=np.int64)
    layout = Layout(
        np.where(scores.readable, 0, -1),
        np.full((1, classes), Part.BY_IMAGE, dtype=np.int8),
        held.tested.rows,
        held.tested.columns,
        one_group,
        np.zeros((1, classes), dtype=np.int64),
        run.selection.groups.first,
        held.tagged,
    )
    alike = Likeness(OriginGroups([NO_ORIGIN], one_group), [], leaves_out=False)
    material = measured(run, scores, held, alike, layout)
    if not material.populations:
        return nothing_guaranteed(classes, "image"), material.calibration
    guarantees = find_guarantees(material.first, material.populations[0], precision)
    return guarantees, material.calibration


def expected_share(logits: Scores, cells: Mask) -> Share:
    """The share of the cells of each class that calibrated logits [n, C] expect to be present."""
    columns = np.nonzero(cells.T)[0]
    return share_by_class(expit(logits.T[cells.T]), columns, cells.shape[1])


def share_by_class(probabilities: Scores, columns: NDArray[np.integer[Any]], classes: int) -> Share:
    """The share of cells of each class that are expected to be present.

    Args:
        probabilities: [m] of single cells.
        columns: [m] their classes.
    """
    number = np.maximum(np.bincount(columns, minlength=classes), 1)
    some = np.bincount(columns, minlength=classes) > 0
    mean = np.where(some, np.bincount(columns, probabilities, classes) / number, np.nan)
    spread = np.bincount(columns, (probabilities - mean[columns]) ** 2, classes) / number
    return Share(mean, np.sqrt(spread / number))
