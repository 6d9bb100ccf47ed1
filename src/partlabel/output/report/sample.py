"""The images that a report shows, and the scores of the runs for them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.base.randomness import key, keys, uniform
from partlabel.judging.scoring import Scores, aligned, score
from partlabel.labels import LabelTable
from partlabel.training.run import Run
from partlabel.training.selection import by_humans

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


@dataclass(frozen=True)
class Sample:
    """Readable images of each part of a run's split, with scores.

    Args:
        training: all training images.
        rows: [n] the training images that were scored, as rows of ``training``.
        labels: [n, C] their labels.
        shown: all [n + m] training and validation images that were scored, in this order.
        val_labels: [m, C] human labels of the validation images.
        reserved: the [r] reserved images, which nothing was chosen on.
        truth: true labels, as far as they are known, with the rows of ``training``.
        ours, baseline: the scores of the run, and of a run to compare with.
    """

    training: LabelTable
    rows: NDArray[np.int64]
    labels: NDArray[np.int8]
    shown: LabelTable
    val_labels: NDArray[np.int8]
    reserved: LabelTable
    truth: LabelTable | None
    ours: RunScores
    baseline: RunScores | None

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return list(self.training.classes)

    @property
    def runs(self) -> list[RunScores]:
        """The baseline, if there is one, and the run."""
        return [self.ours] if self.baseline is None else [self.baseline, self.ours]

    def train_scores(self) -> dict[str, Scores]:
        """Scores [n, C] of each run by its name."""
        return {scored.name: scored.train for scored in self.runs}


def take_sample(run: Run, truth: LabelTable | None = None, baseline: Run | None = None) -> Sample:
    """Draw training images, and score these and the validation images with each run."""
    runs = [run] if baseline is None else [run, baseline]
    if baseline is not None:
        check_same(run, baseline)
    selection = run.selection
    training, val, reserved = selection.training, selection.val, selection.reserved
    drawn = draw(training, _MOST_TRAINING)
    parts = np.repeat(np.arange(3), [len(drawn), len(val), len(reserved)])
    images = selection.table.subset(np.concatenate([selection.train[drawn], val, reserved]))
    scored = [score(one, images) for one in runs]
    readable = np.logical_and.reduce([one.readable for one in scored])
    in_train, in_val, in_reserved = (readable & (parts == part) for part in range(3))
    scores = [
        RunScores(name, one, *(all_.scores[rows] for rows in (in_train, in_val, in_reserved)))
        for name, one, all_ in zip(names_of(runs), runs, scored, strict=True)
    ]
    return Sample(
        training=training,
        rows=drawn[readable[: len(drawn)]],
        labels=images.dense(np.flatnonzero(in_train)),
        shown=images.subset(in_train | in_val),
        val_labels=by_humans(images).dense(np.flatnonzero(in_val)),
        reserved=images.subset(in_reserved),
        truth=None if truth is None else aligned(by_humans(truth), training),
        ours=scores[0],
        baseline=scores[1] if len(scores) > 1 else None,
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
