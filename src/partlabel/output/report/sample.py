"""The images that a report uses, and the scores of the runs for them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.base.randomness import key, keys, uniform
from partlabel.judging.scoring import Scores, aligned, score
from partlabel.labels import LabelTable
from partlabel.training.run import Run
from partlabel.training.selection import Selection, by_humans

_MOST_TRAINING = 2000  # images of the training split that are scored


@dataclass(frozen=True)
class RunScores:
    """The scores of a run for a sample.

    Args:
        name: the name of the run in the report.
        train, val, reserved: [n, C], [m, C] and [r, C] scores.
    """

    name: str
    run: Run
    train: Scores
    val: Scores
    reserved: Scores

    @property
    def held_out(self) -> Scores:
        """Scores of the held-out images, see :class:`Sample`."""
        return self.reserved if len(self.reserved) else self.val


@dataclass(frozen=True)
class Sample:
    """Readable images of each part of a run's split, with scores.

    The figures of the report come from its *held-out* images: the reserved ones, which nothing was
    chosen on, or the validation images if none are reserved.

    Args:
        training: all training images.
        drawn: [n] the training images that were scored, as rows of ``training``.
        scored: the images that were scored: n for training, m for validation and r reserved ones.
        truth: true labels, as far as they are known, with the rows of ``training``.
        ours, baseline: the scores of the run, and of a run to compare with.
    """

    training: LabelTable
    drawn: NDArray[np.int64]
    scored: Selection
    truth: LabelTable | None
    ours: RunScores
    baseline: RunScores | None

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
    def reserved(self) -> LabelTable:
        """The [r] reserved images."""
        return self.scored.table.subset(self.scored.reserved)

    @property
    def held_kind(self) -> Literal["reserved", "validation"]:
        """Which images are held out."""
        return "reserved" if len(self.scored.reserved) else "validation"

    @cached_property
    def held_labels(self) -> NDArray[np.int8]:
        """Human labels of the held-out images."""
        return by_humans(self.reserved).dense() if len(self.scored.reserved) else self.val_labels

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
    parts = [selection.train[drawn], selection.val, selection.reserved]
    images = selection.table.subset(np.concatenate(parts))
    scored = [score(one, images) for one in runs]
    readable = np.logical_and.reduce([one.readable for one in scored])
    part_of_image = np.repeat(np.arange(3), [len(rows) for rows in parts])
    runs_scores = [
        RunScores(name, one, *(result.scores[readable & (part_of_image == k)] for k in range(3)))
        for name, one, result in zip(names_of(runs), runs, scored, strict=True)
    ]
    part_of_readable = part_of_image[readable]
    return Sample(
        training=training,
        drawn=drawn[readable[: len(drawn)]],
        scored=Selection(
            images.subset(readable),
            selection.classes,
            None,
            *(np.flatnonzero(part_of_readable == k) for k in range(3)),
        ),
        truth=None if truth is None else aligned(by_humans(truth), training),
        ours=runs_scores[0],
        baseline=runs_scores[1] if len(runs_scores) > 1 else None,
    )


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
