"""The images that a report uses, and the scores of the runs for them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.base.randomness import key, keys, uniform
from partlabel.judging.scoring import Scores, aligned, score
from partlabel.labels import LabelTable
from partlabel.training.out_of_fold import out_of_fold
from partlabel.training.run import Run
from partlabel.training.run_split import Selection, by_humans

HeldKind = Literal["reserved", "validation", "held-out"]

_MOST_TRAINING = 2000  # images of the training split that are scored
_MOST_SCORES = 1 << 24  # of validation images, and of reserved images


@dataclass(frozen=True)
class RunScores:
    """The scores of a run for a sample.

    Args:
        name: the name of the run in the report.
        train, val, reserved: [n, C], [m, C] and [r, C] scores.
        held: [h, C] of images with labels that were held out one by one, or in turn; None without.
    """

    name: str
    run: Run
    train: Scores
    val: Scores
    reserved: Scores
    held: Scores | None = None

    @property
    def held_out(self) -> Scores:
        """Scores of the held-out images, see :class:`Sample`."""
        if self.held is not None:
            return self.held
        return self.reserved if len(self.reserved) else self.val


class HeldLabels(NamedTuple):
    """Images with labels that were held out although other labels of them were trained on.

    Args:
        kind: ``reserved`` if nothing was chosen on the labels; ``held-out`` if each image was left
            out of the training of some models in turn.
        rows: of the labels of the run.
        table: the labels.
    """

    kind: HeldKind
    rows: NDArray[np.int64]
    table: LabelTable


@dataclass(frozen=True)
class Sample:
    """Readable images of each part of a run's split, with scores.

    The figures of the report come from its *held-out* labels: reserved ones, which nothing was
    chosen on; or those of validation images; or those of all images, with scores of models that
    were not trained on them.

    Args:
        training: all training images.
        drawn: [n] the training images that were scored, as rows of ``training``.
        scored: the images that were scored: n for training, m for validation and r reserved ones.
        truth: true labels, as far as they are known, with the rows of ``training``.
        ours, baseline: the scores of the run, and of a run to compare with.
        held: labels that were held out one by one, or in turn; None without.
        drawn_from: how many held-out images there are, if some of them were drawn; else 0.
    """

    training: LabelTable
    drawn: NDArray[np.int64]
    scored: Selection
    truth: LabelTable | None
    ours: RunScores
    baseline: RunScores | None
    held: HeldLabels | None = None
    drawn_from: int = 0

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return self.scored.classes

    @property
    def runs(self) -> list[RunScores]:
        """The baseline, if there is one, and the run."""
        return [self.ours] if self.baseline is None else [self.baseline, self.ours]

    @cached_property
    def labels(self) -> NDArray[np.int8]:
        """[n, C] labels of the scored training images."""
        return self.scored.training.dense()

    @cached_property
    def val_labels(self) -> NDArray[np.int8]:
        """[m, C] human labels of the validation images."""
        return self.scored.validation.dense()

    @property
    def val(self) -> LabelTable:
        """The [m] validation images."""
        return self.scored.table.subset(self.scored.val)

    @property
    def held_kind(self) -> HeldKind:
        """Which labels are held out."""
        if self.held is not None:
            return self.held.kind
        return "reserved" if len(self.scored.reserved) else "validation"

    @property
    def held_images(self) -> LabelTable:
        """The held-out images."""
        if self.held is not None:
            return self.held.table
        rows = self.scored.reserved if len(self.scored.reserved) else self.scored.val
        return self.scored.table.subset(rows)

    @cached_property
    def held_labels(self) -> NDArray[np.int8]:
        """Human labels of the held-out images."""
        if self.held is not None:
            return self.held.table.dense()
        reserved = self.scored.table.subset(self.scored.reserved)
        return by_humans(reserved).dense() if len(self.scored.reserved) else self.val_labels

    def train_scores(self) -> dict[str, Scores]:
        """Scores [n, C] of each run by its name."""
        return {scores.name: scores.train for scores in self.runs}


def take_sample(run: Run, truth: LabelTable | None = None, baseline: Run | None = None) -> Sample:
    """Draw training images, and score these and the held-out images with each run."""
    runs = [run] if baseline is None else [run, baseline]
    if baseline is not None:
        check_same(run, baseline)
    selection, training = run.selection, run.selection.training
    drawn = draw(training, _MOST_TRAINING)
    held_out = [_some(selection, rows) for rows in (selection.val, selection.reserved)]
    parts = [selection.train[drawn], *held_out]
    images = selection.table.subset(np.concatenate(parts))
    scored = [score(one, images) for one in runs]
    readable = np.logical_and.reduce([one.readable for one in scored])
    part_of_image = np.repeat(np.arange(3), [len(rows) for rows in parts])
    runs_scores = [
        RunScores(name, one, *(result.scores[readable & (part_of_image == k)] for k in range(3)))
        for name, one, result in zip(names_of(runs), runs, scored, strict=True)
    ]
    part_of_readable, held = part_of_image[readable], _held_labels(run)
    train, val, reserved = (np.flatnonzero(part_of_readable == k) for k in range(3))
    return Sample(
        training=training,
        drawn=drawn[readable[: len(drawn)]],
        scored=Selection(
            images.subset(readable),
            selection.classes,
            None,
            train,
            val,
            reserved,
            selection.groups.part(np.concatenate(parts)[readable]),
        ),
        truth=None if truth is None else aligned(by_humans(truth), training),
        ours=_with_held(runs_scores[0], held),
        baseline=_with_held(runs_scores[1], held) if len(runs_scores) > 1 else None,
        held=held,
        drawn_from=_drawn_from(selection, held_out) if held is None else 0,
    )


def _some(selection: Selection, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """All rows, or a random sample if their scores would take too much memory."""
    most = max(_MOST_SCORES // max(len(selection.classes), 1), _MOST_TRAINING)
    return rows if len(rows) <= most else rows[draw(selection.table.subset(rows), most)]


def _drawn_from(selection: Selection, some: list[NDArray[np.int64]]) -> int:
    """The number of held-out images, if only some of them are scored; else 0."""
    part = 1 if len(selection.reserved) else 0
    number = len((selection.val, selection.reserved)[part])
    return number if len(some[part]) < number else 0


def _held_labels(run: Run) -> HeldLabels | None:
    """Labels that were reserved one by one, or held out in turn; None if images are held out."""
    selection = run.selection
    images = len(selection.reserved) or len(selection.val)
    if images and selection.hidden is None:
        return None
    kind: HeldKind = "reserved"
    if selection.hidden is not None:
        table = selection.tested
        rows = np.flatnonzero(np.diff(table.cells.starts))
    else:
        folds = out_of_fold(run)
        if folds is None:
            return None
        kind, table, rows = "held-out", by_humans(selection.table), folds.rows
    rows = rows[draw(table.subset(rows), _MOST_TRAINING)]
    scored = score(run, table.subset(rows))
    rows = rows[scored.readable]
    return HeldLabels(kind, rows, table.subset(rows))


def _with_held(scores: RunScores, held: HeldLabels | None) -> RunScores:
    """The scores of a run, with those of held-out labels."""
    if held is None:
        return scores
    if held.kind == "reserved":
        return replace(scores, held=score(scores.run, held.table).scores)
    folds = out_of_fold(scores.run)
    if folds is None:
        raise InputError(
            f"{scores.run.folder}: has no scores of models that were not trained on an image; "
            "train it with --method auto too, or both with images to validate on (--val 0.2)"
        )
    position = np.empty(int(folds.rows.max()) + 1, dtype=np.int64)
    position[folds.rows] = np.arange(len(folds.rows))
    return replace(scores, held=folds.scores[position[held.rows]])


def draw(table: LabelTable, most: int) -> NDArray[np.int64]:
    """Rows of at most this many images, the same for every call."""
    order = np.argsort(uniform(key("report"), keys(table.ids)), kind="stable")
    return np.asarray(np.sort(order[:most]))


def check_same(run: Run, baseline: Run) -> None:
    """Raise an error for a baseline that was not trained and validated on the same labels."""
    if run.record.labels != baseline.record.labels:
        raise InputError(
            f"{baseline.folder}: was trained on other labels than {run.folder}; train both on the "
            "same label file to compare them"
        )
    if not run.selection.same_images(baseline.selection):
        raise InputError(
            f"{baseline.folder}: was trained or validated on other images or classes of these "
            f"labels than {run.folder}; train both with the same --seed, --split, --val, "
            "--val-split, --reserve and --drop-empty"
        )


def names_of(runs: list[Run]) -> list[str]:
    """Names for runs: their folders, with more detail if these are the same."""
    for names in (
        [run.folder.resolve().name for run in runs],
        [f"{run.folder.resolve().name} ({run.settings.method})" for run in runs],
    ):
        if len(set(names)) == len(names):
            return names
    return [f"{number + 1}: {run.folder}" for number, run in enumerate(runs)]
