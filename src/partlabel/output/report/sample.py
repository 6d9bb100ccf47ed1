"""The images that a report looks at, and what the runs think of them."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.base.randomness import key, keys, uniform
from partlabel.judging.scoring import Scores, aligned, score
from partlabel.labels import LabelTable
from partlabel.training.run import Run
from partlabel.training.selection import by_humans, choose_rows

_MOST_TRAINING = 2000  # images of the training split that are scored


@dataclass(frozen=True)
class Seen:
    """What a run thinks of a sample.

    Args:
        name: what the report calls the run.
        train, val, reserved: [n, C], [m, C] and [r, C] scores.
    """

    name: str
    run: Run
    train: Scores
    val: Scores
    reserved: Scores


@dataclass(frozen=True)
class Sample:
    """Images that were trained and validated on, those that could be read.

    Args:
        training: all training images.
        rows: [n] the ones that were scored, as rows of ``training``.
        labels: [n, C] what training knew of them.
        looked_at: all [n + m] images of these, those for training first.
        val_labels: [m, C] what humans know of the validation images.
        reserved: the [r] images that nothing was chosen on.
        truth: true labels, as far as they are known, with the rows of ``training``.
        run, baseline: what was scored.
    """

    training: LabelTable
    rows: NDArray[np.int64]
    labels: NDArray[np.int8]
    looked_at: LabelTable
    val_labels: NDArray[np.int8]
    reserved: LabelTable
    truth: LabelTable | None
    run: Seen
    baseline: Seen | None

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return list(self.training.classes)

    @property
    def runs(self) -> list[Seen]:
        """The baseline, if there is one, and the run."""
        return [self.run] if self.baseline is None else [self.baseline, self.run]

    def train_scores(self) -> dict[str, Scores]:
        """Scores [n, C] of each run by its name."""
        return {seen.name: seen.train for seen in self.runs}


def take_sample(
    run: Run,
    cache: str | os.PathLike[str] | None,
    truth: LabelTable | None = None,
    baseline: Run | None = None,
) -> Sample:
    """Draw training images, and score these and the validation images with each run."""
    runs = [run] if baseline is None else [run, baseline]
    if baseline is not None:
        check_same(run, baseline)
    table, train, val, reserved = choose_rows(run.labels, run.settings)
    training = table.subset(train)
    true = None if truth is None else aligned(by_humans(truth), training)
    some = draw(training, _MOST_TRAINING)
    parts = np.repeat(np.arange(3), [len(some), len(val), len(reserved)])
    looked_at = table.subset(np.concatenate([train[some], val, reserved]))
    scored = [score(one, looked_at, one.record.images, cache) for one in runs]
    good = np.logical_and.reduce([one.readable for one in scored])
    early, middle, late = (good & (parts == part) for part in range(3))
    seen = [
        Seen(name, one, *(said.scores[rows] for rows in (early, middle, late)))
        for name, one, said in zip(names_of(runs), runs, scored, strict=True)
    ]
    return Sample(
        training,
        some[good[: len(some)]],
        looked_at.dense(np.flatnonzero(early)),
        looked_at.subset(early | middle),
        by_humans(looked_at).dense(np.flatnonzero(middle)),  # what a model filled in is no truth
        looked_at.subset(late),
        true,
        seen[0],
        seen[1] if len(seen) > 1 else None,
    )


def draw(table: LabelTable, most: int) -> NDArray[np.int64]:
    """Rows of at most so many images, the same whenever it is asked."""
    order = np.argsort(uniform(key("report"), keys(table.ids)), kind="stable")
    return np.asarray(np.sort(order[:most]))


def check_same(run: Run, baseline: Run) -> None:
    """Refuse a baseline that was not trained and validated on the same labels."""
    mine, theirs = run.record, baseline.record
    if mine.labels != theirs.labels:
        raise InputError(
            f"{baseline.folder}: was trained on other labels than {run.folder}; train both on the "
            "same label file to compare them"
        )
    rows: list[Any] = [choose_rows(one.labels, one.settings)[1:] for one in (run, baseline)]
    if mine.classes != theirs.classes or not all(map(np.array_equal, *rows)):
        raise InputError(
            f"{baseline.folder}: was trained or validated on other images or classes of these "
            f"labels than {run.folder}; train both with the same --seed, --split, --val, "
            "--val-split, --reserve and --drop-empty"
        )


def names_of(runs: list[Run]) -> list[str]:
    """What to call runs: by their folders, and if these are called alike by more than that."""
    for names in (
        [run.folder.resolve().name for run in runs],
        [f"{run.folder.resolve().name} ({run.settings.method})" for run in runs],
    ):
        if len(set(names)) == len(names):
            return names
    return [f"{number + 1}: {run.folder}" for number, run in enumerate(runs)]
