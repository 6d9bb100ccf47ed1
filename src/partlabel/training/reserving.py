"""Which known labels are hidden from a training, so that they can test what `complete` fills in.

Labels are drawn at random, label by label within each class and group of images, and so are a
random sample of the labels that the training does not see. Labels of one class in images that
belong together (near-duplicates, or one patient) are drawn together. How many are drawn depends on
half of the labels, the pilot, which is never drawn from: no number here depends on a label that may
test.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.randomness import key, keys, uniform
from partlabel.labels import ABSENT, CHOSEN, HUMAN, PRESENT, RANDOM, LabelTable
from partlabel.labels.cells import Cells
from partlabel.labels.groups import Groups as Together
from partlabel.metrics.bounds import fewest, needed_labels

ASKED = (CHOSEN, RANDOM)  # answers to questions are not a random sample of all labels
PRECISION = 0.95  # the precision that reserved labels are to show
_FOUND = 0.35  # share of the present labels that is expected beyond a threshold
_MOST = 0.3  # share of the known labels of a class that is reserved at most
_PILOT = 0.5  # share of the known labels that may not be reserved
_CLUMPED = 1.5  # spread of the labels per image, relative to chance, if labels come by image
_EVEN = 0.5  # the same, if images have the same number of labels
_TOGETHER = 0.5  # deviation of spreads from chance, if classes are known together
_SIGNS = 17  # sums of labels whose spread is looked at
_FEW = 8  # known labels of a class and group below which nothing is reserved

Mask = NDArray[np.bool_]


def may_test(table: LabelTable) -> Mask:
    """[m] which cells of a table may test a guarantee.

    A human gave the label, no model asked for it, and its origin noted both present and absent
    labels of the class. Labels of an origin that notes presences only would all be right. Questions
    that were drawn at random are drawn among confident scores: they test only what asked them.
    """
    cells = table.cells
    origin = cells.origins_or_none().astype(np.int64) * len(table.classes) + cells.columns
    size = (len(table.origins) + 1) * len(table.classes)
    usable = (cells.sources_or_human() == HUMAN) & ~np.isin(cells.asked_or_not(), ASKED)
    noted = [
        np.bincount(origin[usable & (cells.values == value)], minlength=size) > 0
        for value in (PRESENT, ABSENT)
    ]
    return np.asarray(usable & (cells.values != 0) & (noted[0] & noted[1])[origin])


def evidence(table: LabelTable) -> LabelTable:
    """The table with only those labels that may test a guarantee."""
    return table.with_cells(table.cells.where(may_test(table)))


def calibrating(table: LabelTable) -> LabelTable:
    """The table with the labels that calibrate scores, and set thresholds: those that may test.

    Tags beside other labels would make all classes look frequent. If no label may test, or all that
    may are of one kind, there is nothing better than all labels.

    >>> team = LabelTable(["a", "b"], ["cat"], [[1], [-1]]).with_origin("team")
    >>> web = LabelTable(["c"], ["cat"], [[1]]).with_origin("web")
    >>> calibrating(team.merge(web)).dense().ravel().tolist()
    [1, -1, 0]
    >>> calibrating(web).dense().ravel().tolist()
    [1]
    """
    tested = evidence(table)
    counts = tested.counts()
    return tested if counts.present.any() and counts.absent.any() else table


def tagged_images(table: LabelTable) -> Mask:
    """[n] images with a present label that may not test: a tag, an answer, a label of a model.

    A tag is a label of an origin that noted presences of its class only. Which images these are
    does not depend on labels that may be reserved: such an origin has none.
    """
    cells = table.cells
    tags = (cells.values == PRESENT) & ~may_test(table)
    tagged = np.zeros(len(table), dtype=np.bool_)
    tagged[cells.rows[tags]] = True
    return tagged


@dataclass(frozen=True)
class Groups:
    """Images that are labelled alike.

    Args:
        of_image: [n] the group of each image: the images with labels of the same origins that are
            all tagged, or not, since where one presence is known others are rarer.
        random: [G] whether the labels of a group are missing at random, label by label; not if
            whole images are labelled, or all images have the same number of labels, or no label
            shows an origin, or images belong together.
    """

    of_image: NDArray[np.int64]
    random: Mask


def image_groups(
    table: LabelTable, shown: Mask | None = None, together: Together | None = None
) -> Groups:
    """Group images by the origins of their labels, and see how their labels are missing.

    Images without any label belong to those with labels if chance leaves as many without.

    Args:
        shown: [m] the cells that show the origins of an image; None for all.
        together: images that belong together; they are apart from those on their own.
    """
    known = table.cells.where(table.cells.values != 0)
    cells = known if shown is None else table.cells.where(shown)
    pairs = _distinct(cells.rows * (len(table.origins) + 1) + cells.origins_or_none())
    marks = keys([f"{code}" for code in range(len(table.origins) + 1)])
    mark = np.zeros(len(table), dtype=np.uint64)
    with np.errstate(over="ignore"):
        np.add.at(mark, pairs // (len(table.origins) + 1), marks[pairs % (len(table.origins) + 1)])
    labelled = np.unique(mark[mark != 0])
    per_image, classes = np.diff(known.starts), len(table.classes)
    if len(labelled) == 1 and _by_chance(np.bincount(known.columns, minlength=classes), per_image):
        mark[:] = labelled[0]
    alone = np.ones(len(table), dtype=np.bool_) if together is None else together.sizes == 1
    kinds = np.stack([mark, alone.astype(np.uint64)], axis=1)
    groups, of_image = np.unique(kinds, axis=0, return_inverse=True)
    of_image = of_image.reshape(-1)
    per_class = counts_by_group(of_image[known.rows], known.columns, (len(groups), classes))
    spreads, images = _spreads(known, of_image, len(groups)), np.bincount(of_image)
    random = [
        bool(one.all()) and _missing_at_random(per_class[group], int(images[group]), spreads[group])
        for group, one in enumerate(groups)
    ]
    # the tagged images of a group, which is small maybe, are known as the group is
    used, of_image = np.unique(2 * of_image + tagged_images(table), return_inverse=True)
    return Groups(of_image.astype(np.int64), np.array(random, dtype=np.bool_)[used // 2])


def _distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct values in ascending order; fast if equal ones mostly follow each other."""
    return np.unique(values[np.diff(values, prepend=-1) != 0])


def groups_without_reserved(
    table: LabelTable, rows: NDArray[np.int64], seed: int, together: Together | None = None
) -> Groups:
    """The groups of images as labels show them that are never reserved.

    An image that is in a group because of a reserved label would have this label reserved for sure,
    so that reserved labels would be no random sample of the group.

    Args:
        table, rows, seed, together: as in :func:`draw_reserved`.
    """
    draw = _draw(table, rows, seed, together)
    shown = (table.cells.values != 0) & (draw.pilot | ~draw.eligible)
    return image_groups(table, shown, together)


def counts_by_group(
    group: NDArray[np.int64], columns: NDArray[np.integer[Any]], shape: tuple[int, int]
) -> NDArray[np.int64]:
    """[G, C] the number of cells of each group and class, given those of each cell [m]."""
    return np.bincount(group * shape[1] + columns, minlength=math.prod(shape)).reshape(shape)


def _by_chance(per_class: NDArray[np.int64], per_image: NDArray[np.int64]) -> bool:
    """Whether as many images have no label as with labels that are missing at random.

    Args:
        per_class, per_image: [C] and [n] the numbers of known labels.
    """
    expected = len(per_image) * float(np.prod(1 - per_class / len(per_image)))
    none = int((per_image == 0).sum())
    return bool(none <= expected + 4 * np.sqrt(expected) + 1)


def _missing_at_random(
    per_class: NDArray[np.int64], images: int, spreads: NDArray[np.float64]
) -> bool:
    """Whether some labels are missing, each independently of the other labels of its image.

    Three other ways are seen: some images have more labels, all images have the same number, or
    classes are known together, or one instead of the other. Sums of labels per image, with random
    signs of the classes, then vary more or less than by chance.

    Args:
        per_class: [C] the numbers of known labels.
        images: how many there are.
        spreads: variances of the sums of :func:`_spreads`.
    """
    share = per_class / max(images, 1)
    expected = float((share * (1 - share)).sum())
    if not expected > 0:
        return False
    number, *signed = (spreads / expected).tolist()
    together = float(np.sqrt(np.mean((np.array(signed) - 1) ** 2)))
    return _EVEN <= number <= _CLUMPED and together <= _TOGETHER


def _spreads(known: Cells, group: NDArray[np.int64], groups: int) -> NDArray[np.float64]:
    """[G, _SIGNS] how the number of labels per image varies, and sums with random signs.

    Args:
        known: the known labels.
        group: [n] the group of each image, of ``groups``.
    """
    classes = int(known.columns.max(initial=-1)) + 1
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (_SIGNS, classes))
    signs[0] = 1.0  # the number of labels
    images = np.maximum(np.bincount(group, minlength=groups), 1)
    spreads = []
    for sign in signs:
        sums = np.bincount(known.rows, sign[known.columns], len(group))
        mean = np.bincount(group, sums, groups) / images
        spreads.append(np.bincount(group, (sums - mean[group]) ** 2, groups) / images)
    return np.stack(spreads, axis=1)


def draw_reserved(
    table: LabelTable,
    rows: NDArray[np.int64],
    seed: int,
    share: float | None,
    together: Together | None = None,
    *,
    all_or_none: bool = False,
) -> Mask:
    """[m] which cells of a table are hidden from the training.

    Labels of one class in images that belong together are hidden together: otherwise a label would
    test a model that was trained on nearly the same one.

    Args:
        rows: the images in use.
        seed: of the draws.
        share: of the labels of each class; None for as many as a guarantee of 95% needs.
        together: images that belong together; None if every image is on its own.
        all_or_none: reserve no labels at all if fewer than needed can be reserved.
    """
    cells, classes = table.cells, len(table.classes)
    draws, pilot, eligible, unit = _draw(table, rows, seed, together)
    groups = groups_without_reserved(table, rows, seed, together)
    stratum = groups.of_image[cells.rows] * classes + cells.columns
    shape = int(groups.of_image.max(initial=0)) + 1, classes
    group = groups.of_image[cells.rows]
    known = counts_by_group(group[eligible], cells.columns[eligible], shape)
    present, total = (
        np.bincount(cells.columns[pilot & eligible & chosen], minlength=classes)
        for chosen in (cells.values == PRESENT, cells.values != 0)
    )
    used = np.zeros(len(table), dtype=np.bool_)
    used[rows] = True
    labelled = used[cells.rows] & (cells.values != 0)
    unknown = np.bincount(groups.of_image[rows], minlength=shape[0])[:, None] - counts_by_group(
        group[labelled], cells.columns[labelled], shape
    )
    rates = (present + 0.5) / (total + 1)
    number = numbers_to_reserve(known, unknown, rates, share, groups.random)
    if all_or_none and share is None and _found(number, rates) < _needed():
        number *= 0
    reserved = np.zeros(len(draws), dtype=np.bool_)
    room = number.reshape(-1)[stratum]
    candidates = eligible & ~pilot
    candidates &= np.bincount(unit, candidates)[unit] <= room  # a larger unit never fits
    chosen = np.flatnonzero(candidates)
    order = chosen[np.lexsort((unit[chosen], draws[chosen], stratum[chosen]))]
    starts = np.searchsorted(stratum[order], stratum[order], side="left")
    last = np.zeros(int(unit.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(last, unit[order], np.arange(len(order)) - starts)
    reserved[order[last[unit[order]] < room[order]]] = True
    return reserved


class _Draw(NamedTuple):
    """What is drawn for cells [m].

    Args:
        draws: uniform random numbers, the same for all cells of a unit.
        pilot: never reserved.
        eligible: may test.
        unit: the cells of one class in images that belong together.
    """

    draws: NDArray[np.float64]
    pilot: Mask
    eligible: Mask
    unit: NDArray[np.int64]


def _draw(
    table: LabelTable, rows: NDArray[np.int64], seed: int, together: Together | None
) -> _Draw:
    cells = table.cells
    used = np.zeros(len(table), dtype=np.bool_)
    used[rows] = True
    first = cells.rows if together is None else together.first[cells.rows]
    names = keys(table.ids)[first], keys(table.classes)[cells.columns]
    pilot = uniform(key(seed, "pilot"), *names) < _PILOT
    eligible = used[cells.rows] & _may_test_by(table, pilot & used[cells.rows])
    unit = _ranks(first * len(table.classes) + cells.columns)
    trained = np.bincount(unit, (cells.values != 0) & ~eligible)[unit] > 0
    draws = uniform(key(seed, "reserved labels"), *names)
    return _Draw(draws, pilot, eligible & ~trained, unit)


def _ranks(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """[m] the place of each value among the distinct ones, in ascending order.

    >>> _ranks(np.array([7, 7, 9])).tolist(), _ranks(np.array([2, 5, 6])).tolist()
    ([0, 0, 1], [0, 1, 2])
    """
    if len(values) and (values[1:] >= values[:-1]).all():  # there is no need to sort
        return np.cumsum(np.diff(values, prepend=values[0]) > 0)
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _needed() -> float:
    """The reserved labels of a value that a pool of all classes needs."""
    return needed_labels(PRECISION) / _FOUND


def _found(numbers: NDArray[np.int64], rates: NDArray[np.float64]) -> float:
    """The present labels that are expected among those reserved, with one percent to spare."""
    return 1.01 * float((numbers * rates).sum()) + 1


def _may_test_by(table: LabelTable, pilot: Mask) -> Mask:
    """[m] which cells may test, where only labels of the pilot show what an origin noted."""
    cells = table.cells
    origin = cells.origins_or_none().astype(np.int64) * len(table.classes) + cells.columns
    noted = may_test(table.with_cells(cells.where(pilot)))
    pairs = np.unique(origin[np.flatnonzero(pilot)[noted]])
    human = (cells.sources_or_human() == HUMAN) & ~np.isin(cells.asked_or_not(), ASKED)
    return np.asarray(np.isin(origin, pairs) & human & (cells.values != 0))


def numbers_to_reserve(
    known: NDArray[np.int64],
    unknown: NDArray[np.int64],
    rates: NDArray[np.float64],
    share: float | None = None,
    alone: Mask | None = None,
) -> NDArray[np.int64]:
    """[G, C] how many labels of each group and class to reserve.

    The same number per unknown label in all classes, so that classes can be tested together: as
    many as a pool of all classes needs to show 95%, of present and of absent labels.

    Args:
        known, unknown: [G, C] labels that may test, and unknown ones.
        rates: [C] the share of labels that are present.
        share: of the known labels to reserve, also of a class of which all are known; None to
            compute it.
        alone: [G] groups whose labels test their own unknown ones; None for all.
    """
    total = known.sum(axis=0)
    if share is None:
        wanted = unknown.sum(axis=0) * (total >= _FEW)
        expected = min(float((wanted * part).sum()) for part in (rates, 1 - rates))
        ratio = _needed() / max(expected, 1.0)
        number = np.minimum(ratio * wanted, _MOST * total)
    else:
        number = share * total
    # labels of a group test its unknown labels first; the rest test those of groups without labels
    own = np.where((known > 0) & (True if alone is None else alone[:, None]), unknown, 0)
    weight = own + known * ((unknown - own).sum(axis=0) / np.maximum(total, 1))
    weight = np.where(unknown.any(axis=0), weight, known)  # these test the model alone
    spread = number * weight / np.maximum(weight.sum(axis=0), 1e-12)
    rounded = np.round(spread)
    if rounded.sum() < fewest(PRECISION) <= spread.sum():  # very many classes, a fraction each
        rounded = np.ceil(spread)
    numbers = np.minimum(rounded, (1 - _PILOT) * known).astype(np.int64)
    # fewer labels cannot show anything, so they had better be trained on
    enough = share is not None or numbers.sum() >= fewest(PRECISION)
    return np.asarray(numbers if enough else 0 * numbers)
