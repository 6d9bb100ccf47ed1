"""What a completion rests on: labels that choose, labels that test, and labels to fill in."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError
from partlabel.base.randomness import key, keys, uniform
from partlabel.judging.scoring import Scored
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.metrics.calibration import Calibration, calibrate
from partlabel.metrics.sampling import Population, Unit
from partlabel.training.out_of_fold import OutOfFold, out_of_fold
from partlabel.training.reserving import evidence, groups_without_reserved, image_groups, may_test
from partlabel.training.run import Run
from partlabel.training.run_split import Selection

Kind = Literal["exact", "cross"]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]

_MORE = 0.1  # share of additional labels above which images count as labelled differently
_ALIKE = 0.5  # a group with a lower share of the mean ratio of reserved labels is not tested alone
_CHOOSING = 1 / 3  # share of the reserved labels that choose, if there are no other labels to


class Choosing(NamedTuple):
    """Labels that were not trained on, and that calibrate and choose: scores and labels [k, C]."""

    scores: Scores
    labels: NDArray[np.int8]


class Evidence(NamedTuple):
    """The labels that a completion of a run rests on.

    Args:
        kind: ``exact`` if the labels that test were hidden from everything else; ``cross`` if each
            tests the models that were trained without its image.
        choosing: labels that calibrate and, unless they test too, decide what is tested.
        calibration: turns scores into probabilities.
        logits: [n, C] calibrated, of all images; 0 for those that cannot be read.
        tested: [n, C] reserved labels; 0 for all other cells.
        unknown: [n, C] the cells to fill in.
        tagged: [n] images of which only presences are known; without fully labelled images no
            present label of them is filled in.
    """

    kind: Kind
    choosing: Choosing
    calibration: Calibration
    logits: Scores
    tested: NDArray[np.int8]
    unknown: Mask
    tagged: Mask


def gather(run: Run, scored: Scored, kind: Kind | None = None) -> Evidence:
    """The labels of a run that choose and test, with scores of all its images.

    Args:
        scored: the images of the run, and after them others that it was not given.
        kind: how to test; None for exact tests if labels are reserved.
    """
    selection, known = run.selection, scored.table
    scores = np.where(scored.readable[:, None], scored.scores, 0.5)
    unknown = (known.dense() == 0) & scored.readable[:, None]
    tagged = _padded(_tagged(selection.known), len(known))
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
        choosing, tested = _reserved_images(run, scored)
        tagged = np.zeros_like(tagged)
    elif folds is not None and (kind == "cross" or (kind is None and selection.hidden is None)):
        return Evidence("cross", *_crossed(run, folds, scores), unknown, tagged)
    else:
        choosing, tested = _reserved_cells(run, scored)
    calibration = calibrate(*choosing)
    logits = calibration.logits(scores)
    return Evidence("exact", choosing, calibration, logits, tested, unknown, tagged)


def _crossed(
    run: Run, folds: OutOfFold, scores: Scores
) -> tuple[Choosing, Calibration, Scores, NDArray[np.int8]]:
    """Labels of training images as tests of scores that they had no influence on.

    The scores of a fold are calibrated by the labels of the other folds.
    """
    known = run.selection.known
    labels = evidence(known).dense(folds.rows)
    calibration = calibrate(folds.scores, labels)
    logits = calibration.logits(scores)
    for fold in np.unique(folds.folds):
        held = folds.folds == fold
        others = calibrate(folds.scores[~held], labels[~held])
        logits[folds.rows[held]] = others.logits(folds.scores[held])
    tested = np.zeros(scores.shape, dtype=np.int8)
    tested[folds.rows] = labels
    return Choosing(folds.scores, labels), calibration, logits, tested


def _reserved_images(run: Run, scored: Scored) -> tuple[Choosing, NDArray[np.int8]]:
    """Labels that choose, and labels [n, C] that test, if whole images are reserved."""
    selection, known = run.selection, run.selection.known
    rows = [rows[scored.readable[rows]] for rows in (selection.val, selection.reserved)]
    judges = evidence(known)
    first, second = (judges.subset(part) for part in rows)
    training, seed = selection.training, run.settings.seed
    tested = np.zeros(scored.table.shape, dtype=np.int8)
    tested[rows[1]] = as_unknown(second, training, seed, first)
    return Choosing(scored.scores[rows[0]], as_unknown(first, training, seed, first)), tested


def _reserved_cells(run: Run, scored: Scored) -> tuple[Choosing, NDArray[np.int8]]:
    """Labels that choose, and labels [n, C] that test, if labels are reserved and not images."""
    selection = run.selection
    tested = _padded(selection.tested.dense(), len(scored.table))
    tested[~scored.readable] = 0
    val = selection.val[scored.readable[selection.val]]
    judges = evidence(selection.table)
    parts = [Choosing(scored.scores[val], judges.dense(val))]
    folds = out_of_fold(run)
    if folds is not None:
        labels = judges.dense(folds.rows)
        parts.append(Choosing(folds.scores, labels))
    choosing = Choosing(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    if all((choosing.labels == value).any() for value in (PRESENT, ABSENT)):
        return choosing, tested
    names = keys(scored.table.ids)[:, None], keys(scored.table.classes)
    chooses = uniform(key(run.settings.seed, "choosing"), *names) < _CHOOSING
    some = np.flatnonzero((chooses & (tested != 0)).any(axis=1))
    labels = np.where(chooses, tested, 0)[some].astype(np.int8)
    return Choosing(scored.scores[some], labels), np.where(chooses, 0, tested).astype(np.int8)


def _padded(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """The array with further rows of zeros."""
    padded = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    padded[: len(array)] = array
    return padded


def _tagged(known: LabelTable) -> Mask:
    """[n] images with a present label of an origin that noted presences of this class only."""
    cells = known.cells
    tags = (cells.values == PRESENT) & ~may_test(known)
    tagged = np.zeros(len(known), dtype=np.bool_)
    tagged[cells.rows[tags]] = True
    return tagged


def populations(
    selection: Selection, evidence: Evidence, seed: int, table: LabelTable | None = None
) -> list[Population]:
    """The labels to fill in with those that test them: drawn by label, and by image.

    Args:
        selection: what a run was trained and validated on.
        evidence: its labels that test.
        seed: of the draws that make ratios equal.
        table: the images of the selection, and after them others; None for those alone.
    """
    known, untagged = table or selection.known, ~evidence.tagged[:, None]
    # nothing of a tagged image is filled in by these tests, so its labels are no sample of the rest
    unknown, tested = evidence.unknown & untagged, np.where(untagged, evidence.tested, 0)
    names = keys(known.ids)[:, None], keys(known.classes)
    draws = uniform(key(seed, "equal ratios"), *names)
    if evidence.kind == "cross":
        groups = image_groups(selection.known)
    else:  # as they were when labels were reserved
        groups = groups_without_reserved(
            selection.learnable, selection.used, seed, selection.groups
        )
    of_image = _padded(groups.of_image, len(known))
    together = np.arange(len(known))
    together[: len(selection.groups)] = selection.groups.first
    by_label = np.zeros_like(unknown)
    if not len(selection.reserved):
        used = np.zeros(len(known), dtype=np.bool_)
        used[selection.train if evidence.kind == "cross" else selection.used] = True
        part = unknown & used[:, None]
        by_label = part & _tested_alone(part, tested != 0, of_image, groups.random)
    result = []
    pairs: tuple[tuple[Unit, Mask, Mask], ...] = (
        ("cell", by_label, _same_strata(by_label, of_image)),
        ("image", unknown & ~by_label, np.ones_like(unknown)),
    )
    for unit, cells, tests in pairs:
        if cells.any():
            labels = np.where(tests, tested, 0).astype(np.int8)
            result.append(
                Population(evidence.logits, labels, cells, draws, of_image, unit, together)
            )
    return result


def _tested_alone(unknown: Mask, tests: Mask, group: NDArray[np.int64], random: Mask) -> Mask:
    """[n, C] cells of classes and groups whose own reserved labels are a sample of them."""
    number = len(random)
    missing, reserved = (
        np.stack([part[group == g].sum(axis=0) for g in range(number)]) for part in (unknown, tests)
    )
    mean = reserved[random].sum() / max(missing[random].sum(), 1)
    enough = (reserved >= _ALIKE * mean * missing) & (reserved > 0) & random[:, None]
    return np.asarray(enough[group])


def _same_strata(cells: Mask, group: NDArray[np.int64]) -> Mask:
    """[n, C] all cells of the classes and groups that have any of these."""
    number = int(group.max(initial=0)) + 1
    return np.asarray(np.stack([cells[group == g].any(axis=0) for g in range(number)])[group])


def as_unknown(
    held: LabelTable, training: LabelTable, seed: int, choosing: LabelTable | None = None
) -> NDArray[np.int8]:
    """[n, C] the labels that would be unknown if these images were labelled like training images.

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
    labels, like = held.dense(), held if choosing is None else choosing
    if not has_more_labels(like, training):
        return labels
    images = keys(held.ids)
    draw = uniform(key(seed, "aside"), images[:, None], keys(held.classes))
    ties = uniform(key(seed, "like"), images)
    for value in (PRESENT, ABSENT):
        own, usual = (labels == value).sum(axis=1), np.sort(_per_image(like, value))
        low, high = (np.searchsorted(usual, own, side=side) for side in ("left", "right"))
        quantile = (low + ties * (high - low)) / len(usual)
        others = np.sort(_per_image(training, value))
        numbers = others[np.minimum((quantile * len(others)).astype(np.int64), len(others) - 1)]
        rank = np.argsort(np.argsort(np.where(labels == value, draw, 2.0), axis=1), axis=1)
        labels[(labels == value) & (rank < numbers[:, None])] = 0
    return labels


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
