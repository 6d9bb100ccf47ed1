"""What a completion rests on: labels that choose, and labels that test."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.base.randomness import key, keys, uniform
from partlabel.images.batches import Rows
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.metrics.known_cells import KnownCells, joined
from partlabel.training.out_of_fold import OutOfFold, out_of_fold
from partlabel.training.reserving import evidence, tagged_images
from partlabel.training.run import Run

Kind = Literal["exact", "cross"]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]

_MORE = 0.1  # share of additional labels above which images count as labelled differently
_CHOOSING = 1 / 3  # share of the reserved labels that choose, if there are no other labels to


class Judges(NamedTuple):
    """Known labels [m]: their images and classes, and 1 (present) or -1 (absent)."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    labels: NDArray[np.int8]

    def where(self, keep: Mask) -> "Judges":
        """Only the labels for which ``keep`` [m] is true."""
        return Judges(self.rows[keep], self.columns[keep], self.labels[keep])

    def with_scores(self, scores: NDArray[np.float64], classes: int) -> KnownCells:
        """The labels with scores [m]."""
        return KnownCells(self.rows, self.columns, self.labels, scores, classes)


def judges_of(table: LabelTable, rows: Rows, numbers: Rows | None = None) -> Judges:
    """The known labels of some rows of a table; ``numbers`` are the images, if not the rows."""
    cells = table.cells.take(rows)
    cells = cells.where(cells.values != 0)
    images = rows if numbers is None else numbers
    return Judges(images[cells.rows], cells.columns.astype(np.int64), cells.values)


@dataclass(frozen=True)
class HeldLabels:
    """The labels that a completion of a run rests on.

    Args:
        kind: ``exact`` if the labels that test were hidden from everything else; ``cross`` if each
            tests the models that were trained without its image.
        choosing: labels that calibrate and, unless they test too, decide what is tested. They have
            the scores of the final model.
        choosing_folds: more of them, with scores of models that were not trained on their images.
        tested: reserved labels.
        tagged: [n] images with a tag, which only images with tags can test for present labels; none
            if whole images are reserved.
        readable: [n] images that can be scored.
        folds: the scores of models that were not trained on an image, if these are tested.
    """

    kind: Kind
    choosing: Judges
    choosing_folds: KnownCells | None
    tested: Judges
    tagged: Mask
    readable: Mask
    folds: OutOfFold | None = None


def gather(run: Run, table: LabelTable, readable: Mask, kind: Kind | None = None) -> HeldLabels:
    """The labels of a run that choose and test.

    Args:
        table: the images of the run, and after them others that it was not given.
        readable: [n] which of them can be scored.
        kind: how to test; None for exact tests if labels are reserved.
    """
    selection = run.selection
    tagged = np.zeros(len(table), dtype=np.bool_)
    tagged[: len(selection.known)] = tagged_images(selection.known)
    folds = out_of_fold(run)
    if kind == "cross" and (folds is None or len(selection.reserved)):
        raise InputError(
            f"{run.folder}: has no scores of models that were not trained on an image; train with "
            "--method auto, without a split 'holdout', for --guarantee cross"
        )
    if kind == "exact" and selection.hidden is None and not len(selection.reserved):
        raise InputError(
            f"{run.folder}: reserved no labels; train with --reserve 0.2 for --guarantee exact"
        )
    if len(selection.reserved):
        parts = _reserved_images(run, readable)
        return HeldLabels("exact", parts[0], None, parts[1], np.zeros_like(tagged), readable)
    if folds is not None and (kind == "cross" or (kind is None and selection.hidden is None)):
        judges = evidence(selection.known)
        choosing = _judged_by_folds(judges, folds)
        tested = judges_of(judges, folds.rows)
        nothing = tested.where(np.zeros(len(tested.rows), dtype=np.bool_))
        return HeldLabels("cross", nothing, choosing, tested, tagged, readable, folds)
    choosing_model, choosing_folds, tested = _reserved_cells(run, table, readable, folds)
    return HeldLabels("exact", choosing_model, choosing_folds, tested, tagged, readable)


def _judged_by_folds(judges: LabelTable, folds: OutOfFold) -> KnownCells:
    """Labels of training images, with the scores of models that were not trained on them."""
    found = judges_of(judges, folds.rows, np.arange(len(folds.rows)))
    scores = folds.scores[found.rows, found.columns]
    images = found._replace(rows=folds.rows[found.rows])
    return images.with_scores(scores, len(judges.classes))


def _reserved_images(run: Run, readable: Mask) -> tuple[Judges, Judges]:
    """Labels that choose, and labels that test, if whole images are reserved."""
    selection, judges = run.selection, evidence(run.selection.known)
    training, seed = selection.training, run.settings.seed
    chooses, tests = (rows[readable[rows]] for rows in (selection.val, selection.reserved))
    choosing = judges.subset(chooses)
    parts = [
        judges_of(
            as_unknown(judges.subset(rows), training, seed, choosing), np.arange(len(rows)), rows
        )
        for rows in (chooses, tests)
    ]
    return parts[0], parts[1]


def _reserved_cells(
    run: Run, table: LabelTable, readable: Mask, folds: OutOfFold | None
) -> tuple[Judges, KnownCells | None, Judges]:
    """Labels that choose, and labels that test, if labels are reserved and not images."""
    selection = run.selection
    tested = judges_of(selection.tested, np.flatnonzero(readable[: len(selection.known)]))
    judges = evidence(selection.table)
    choosing = judges_of(judges, selection.val[readable[selection.val]])
    by_folds = None if folds is None else _judged_by_folds(judges, folds)
    labels = [choosing.labels, *([] if by_folds is None else [by_folds.labels])]
    if all(any((part == value).any() for part in labels) for value in (PRESENT, ABSENT)):
        return choosing, by_folds, tested
    names = keys(table.ids)[tested.rows], keys(table.classes)[tested.columns]
    chooses = uniform(key(run.settings.seed, "choosing"), *names) < _CHOOSING
    return tested.where(chooses), None, tested.where(~chooses)


def chosen_by(held: HeldLabels, scores: Scores, classes: int) -> KnownCells:
    """The labels that choose, given the scores of the final model for those that it has."""
    parts = [held.choosing.with_scores(scores, classes)]
    parts += [] if held.choosing_folds is None else [held.choosing_folds]
    return joined(parts, classes)


def as_unknown(
    held: LabelTable, training: LabelTable, seed: int, choosing: LabelTable | None = None
) -> LabelTable:
    """The labels that would be unknown if these images were labelled like training images.

    If held-out images have more labels than training images, their labels are no sample of the
    unknown labels there. With one positive per training image, for example, most present labels are
    known already. So each held-out image leaves out as many random labels of each kind as a
    training image has: the image with the most labels as many as the training image with the most,
    and so on. Images that are labelled like training images are a sample as they are.

    What an image leaves out depends on its own labels, and on images that choose. Images that test
    therefore stay independent of each other.

    Args:
        held: human labels of held-out images.
        training: the labels of the training images.
        seed: decides which labels are left out.
        choosing: labels of held-out images that choose, which show how many labels such images
            have; None for the held-out images themselves.
    """
    like = held if choosing is None else choosing
    if not has_more_labels(like, training):
        return held
    images, cells = keys(held.ids), held.cells
    draw = uniform(key(seed, "aside"), images[cells.rows], keys(held.classes)[cells.columns])
    ties, keep = uniform(key(seed, "like"), images), cells.values != 0
    for value in (PRESENT, ABSENT):
        own, usual = _per_image(held, value), np.sort(_per_image(like, value))
        low, high = (np.searchsorted(usual, own, side=side) for side in ("left", "right"))
        quantile = (low + ties * (high - low)) / len(usual)
        others = np.sort(_per_image(training, value))
        numbers = others[np.minimum((quantile * len(others)).astype(np.int64), len(others) - 1)]
        chosen = np.flatnonzero(cells.values == value)
        order = chosen[np.lexsort((draw[chosen], cells.rows[chosen]))]
        first = np.concatenate([[0], np.cumsum(own)])[:-1]
        rank = np.arange(len(order)) - first[cells.rows[order]]
        keep[order[rank < numbers[cells.rows[order]]]] = False
    return held.with_cells(cells.where(keep))


def has_more_labels(held: LabelTable, training: LabelTable) -> bool:
    """Whether images have more labels of a kind than training images, by more than chance."""
    for value in (PRESENT, ABSENT):
        ours, theirs = _per_image(held, value), _per_image(training, value)
        if not len(ours) or not len(theirs):
            continue
        noise = math.sqrt(ours.var() / len(ours) + theirs.var() / len(theirs))
        more = ours.mean() - theirs.mean()
        if more > max(3 * noise, _MORE * theirs.mean(), 1e-9):
            return True
    return False


def _per_image(table: LabelTable, value: int) -> NDArray[np.int64]:
    """[n] the number of labels of this kind per image."""
    return np.bincount(table.cells.rows, table.cells.values == value, len(table)).astype(np.int64)
