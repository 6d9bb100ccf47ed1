"""All that guarantees of any precision are found from: the scores of a run, and its labels."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from partlabel.judging.completion.held_labels import (
    HeldLabels,
    Kind,
    Scores,
    chosen_by,
    gather,
)
from partlabel.judging.completion.layout import (
    Layout,
    Part,
    lay_out,
    populations,
    reserved_labels,
)
from partlabel.judging.completion.likeness import Likeness, compare_images
from partlabel.judging.completion.meters import BinMeter, Calibrated, ExactMeter, Grid, Meter
from partlabel.judging.completion.survey import Survey, look, spreads
from partlabel.judging.image_scores import ImageScores, is_small
from partlabel.metrics.calibration import Calibration, calibrate_cells
from partlabel.metrics.known_cells import KnownCells
from partlabel.metrics.sampling import Population
from partlabel.metrics.spread import Spread
from partlabel.training.run import Run


@dataclass(frozen=True)
class Material:
    """All that guarantees of any precision are found from: the scores of a run, and its labels.

    Args:
        scores: the logits of all images of the run.
        held: the labels that choose and test.
        likeness: how unlike images are to those whose labels test them.
        layout: how unknown cells are tested, and which are left out.
        survey: the logits of known labels.
        meter: calibrated logits.
        choosing: labels that calibrate, with raw scores.
        tested: reserved labels, with calibrated logits.
        ends: [t] these logits, rounded as those of unknown cells are.
        spreads: the calibrated logits of the unknown cells of each part.
        populations: the labels to fill in with those that test them.
    """

    scores: ImageScores
    held: HeldLabels
    likeness: Likeness
    layout: Layout
    survey: Survey
    meter: Meter
    choosing: KnownCells
    tested: KnownCells
    ends: tuple[Scores, Scores]
    spreads: dict[Part, Spread]
    populations: list[Population]

    @property
    def calibration(self) -> Calibration:
        """Turns scores into probabilities."""
        return self.meter.calibrated.line

    @cached_property
    def first(self) -> KnownCells | None:
        """Labels that decide what is tested, with calibrated logits; None if they test too."""
        if self.held.kind == "cross":
            return None
        lines = self.calibration.of_class(self.choosing.columns)
        return replace(self.choosing, scores=lines.logits(self.choosing.scores))

    @property
    def classes(self) -> int:
        """C, the number of classes."""
        return len(self.scores.table.classes)

    @property
    def fillable(self) -> NDArray[np.int64]:
        """[C] the unknown cells, but for those of images that are unlike those that test."""
        filled = [part for part in Part if part is not Part.LEFT_OUT]
        return np.asarray(self.layout.unknown[filled].sum(axis=0))

    def known_logits(self) -> Scores:
        """[m] calibrated, of the known cells; NaN for images that cannot be read."""
        known, calibrated = self.survey.known, self.meter.calibrated
        return calibrated.of_cells(known.rows, known.columns, self.survey.logits)


def prepare(
    run: Run,
    scores: ImageScores,
    kind: Kind | None = None,
    *,
    folder: Path | None = None,
    despite_shift: bool = False,
) -> Material:
    """Go over the scores of a run once, and calibrate them.

    Args:
        run: a finished run.
        scores: the logits of all images of the run, and of others after them.
        kind: see :func:`held_labels.gather`.
        folder: of the images that the run was not given.
        despite_shift: fill in labels of images that are unlike those that test.
    """
    table = scores.table
    held = gather(run, table, scores.readable, kind)
    layout = lay_out(run.selection, held, run.settings.seed, table)
    tests = held.tested.where(~held.tagged[held.tested.rows])
    likeness = compare_images(run, table, layout, tests, folder, despite_shift=despite_shift)
    return measured(run, scores, held, likeness, likeness.applied(layout))


def measured(
    run: Run, scores: ImageScores, held: HeldLabels, likeness: Likeness, layout: Layout
) -> Material:
    """The material of guarantees for a layout of unknown cells."""
    classes, table = len(scores.table.classes), scores.table
    crossed = None
    if held.folds is not None:
        assert held.choosing_folds is not None
        line = calibrate_cells(held.choosing_folds)
        crossed = Calibrated(line, held.folds, held.choosing_folds)
    grid = None if is_small(table) else Grid(_rough_line(run, classes), crossed)
    survey = look(scores, layout, grid)
    raw = sigmoid(survey.at(held.choosing.rows, held.choosing.columns, classes))
    choosing = chosen_by(held, raw, classes)
    calibrated = crossed or Calibrated(calibrate_cells(choosing))
    meter = ExactMeter(calibrated) if grid is None else BinMeter(grid, calibrated)
    cells = held.tested.rows, held.tested.columns
    logits = survey.at(*cells, classes)
    tested = held.tested.with_scores(calibrated.of_cells(*cells, logits), classes)
    ends, unknown = meter.ends(*cells, logits), spreads(survey, scores, layout, meter)
    tests = reserved_labels(layout, tested, ends, run.settings.seed, table)
    found = populations(layout, tests, unknown, some_left_out=bool(likeness.comparisons))
    return Material(
        scores, held, likeness, layout, survey, meter, choosing, tested, ends, unknown, found
    )


def _rough_line(run: Run, classes: int) -> Calibration:
    """The calibration of the run, or none."""
    record = run.record.calibration
    if record is not None:
        return record.open()
    return Calibration(np.ones(classes), np.zeros(classes), np.zeros(classes, dtype=np.bool_))


def sigmoid(logits: NDArray[np.float32]) -> Scores:
    """Scores as those of :func:`scoring.score`: in double precision."""
    return np.asarray(torch.sigmoid(torch.from_numpy(logits).double()).numpy())
