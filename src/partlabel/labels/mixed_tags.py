"""Tags among other labels: images of which only presences were noted, without an own origin.

If people looked at labels at random, the share of present ones does not depend on how many labels
an image has, and several labels of an image are all present hardly more often than by chance. Tags
are always present. Other causes are possible: labels of another dataset, or of people who noted
what they saw first.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count
from partlabel.labels.cells import CHOSEN, HUMAN, RANDOM
from partlabel.labels.origins import NO_ORIGIN
from partlabel.labels.table import PRESENT, LabelTable

_STANDARD_ERRORS, _RATIO, _FEW = 5.0, 1.5, 10  # the least excess that is reported: all of these
_COMMON = 0.4  # if more labels are present, several of an image often are together
_TOGETHER = 20.0  # odds that classes are present together, relative to chance; more if seen

Floats = NDArray[np.float64]


class MixedTags(NamedTuple):
    """Images with present labels only, among images of the same origin with labels of both kinds.

    Args:
        origin: of the labels.
        images: the number of images that have present labels only.
        by_chance: how many of these would have present labels only by chance, at most about.
    """

    origin: str
    images: int
    by_chance: float

    def describe(self) -> str:
        """What was found, what it means, and what to do."""
        of = "" if self.origin == NO_ORIGIN else f" of '{self.origin}'"
        return (
            f"{count(self.images, 'image')}{of} have present labels only, about "
            f"{self.by_chance:,.0f} would by chance. If these are tags, so that nobody noted what "
            "is absent, a guarantee of `complete` may fail. Give them an origin of their own: put "
            "them in a file of their own, and join the files with `partlabel merge labels.csv "
            "tags.csv:origin=tags -o all.csv --to cells`"
        )


def find_mixed_tags(table: LabelTable) -> list[MixedTags]:
    """Origins of which some images look as if they had tags; labels without origin are one.

    Classes that an origin noted presences of, and never an absence, are left out: such labels are
    tags already. So are labels of models, and answers to their questions.

    >>> find_mixed_tags(LabelTable(["a", "b"], ["cat", "dog"], [[1, 0], [-1, 1]]))
    []
    """
    cells, classes = table.cells, len(table.classes)
    usable = (cells.values != 0) & (cells.sources_or_human() == HUMAN)
    usable &= ~np.isin(cells.asked_or_not(), (CHOSEN, RANDOM))
    chosen = np.flatnonzero(usable)
    chosen = chosen[np.argsort(cells.origins_or_none()[chosen], kind="stable")]
    rows, columns, values = cells.rows[chosen], cells.columns[chosen], cells.values[chosen]
    names = [NO_ORIGIN, *table.origins]
    ends = np.bincount(cells.origins_or_none()[chosen], minlength=len(names)).cumsum()
    found = []
    for name, start, end in zip(names, [0, *ends[:-1]], ends, strict=True):
        column, present = columns[start:end], values[start:end] == PRESENT
        both = np.bincount(column, present, classes) > 0
        both &= np.bincount(column, ~present, classes) > 0
        kept = both[column]
        one = _of_origin(rows[start:end][kept], column[kept], present[kept], table.shape)
        if one is not None:
            found.append(MixedTags(name, *one))
    return found


def _of_origin(
    rows: NDArray[Any],
    columns: NDArray[Any],
    present: NDArray[np.bool_],
    shape: tuple[int, int],
) -> tuple[int, float] | None:
    """The images with present labels only, and how many by chance; None if these explain them.

    Args:
        rows, columns, present: [m] the labels of an origin.
        shape: the number of images and of classes.
    """
    images, classes = shape
    number = np.bincount(rows, minlength=images)
    absent = np.bincount(rows, ~present, images)
    only = (number > 0) & (absent == 0)
    if not absent.any():
        return None
    # the share of present labels of a class: in all images with several labels, and in those with
    # another label that is absent, which tags do not have
    every = _shares(columns, present, number[rows] > 1, classes)
    beside = _shares(columns, present, absent[rows] - ~present > 0, classes)
    alone, several = number == 1, number > 1
    # whoever labelled an image for all classes looked for them: it has no tags
    several &= number < np.count_nonzero(np.bincount(columns))
    if float(every[columns].mean()) > _COMMON:
        several[:] = False
    chance = np.exp(np.bincount(rows, np.log(beside[columns]), images))
    many = number > np.median(number[absent > 0])
    odds = max(_TOGETHER, _odds(only[many], chance[many]))
    chance = odds * chance / (1 + (odds - 1) * chance)
    chance[alone] = np.bincount(rows, every[columns], images)[alone]
    compared = alone | several
    expected, found = float(chance[compared].sum()), int(only[compared].sum())
    least = max(_STANDARD_ERRORS * np.sqrt(expected + 1), (_RATIO - 1) * expected, _FEW)
    return (found, expected) if found - expected > least else None


def _odds(only: NDArray[np.bool_], chance: Floats) -> float:
    """How much larger the odds of images are to have present labels only than by chance [n]."""
    if not len(only):
        return 0.0
    by_chance = float((chance / (1 - np.minimum(chance, 0.999))).mean())
    share = float(only.mean())
    return share / max(1 - share, 1e-3) / max(by_chance, 1e-9)


def _shares(
    columns: NDArray[Any],
    present: NDArray[np.bool_],
    chosen: NDArray[np.bool_],
    classes: int,
) -> Floats:
    """[C] the share of some labels that are present; of all labels where these are few."""
    totals = np.bincount(columns[chosen], minlength=classes)
    presences = np.bincount(columns[chosen], present[chosen], classes)
    overall = np.bincount(columns, present, classes) / np.maximum(
        np.bincount(columns, minlength=classes), 1
    )
    prior = 2.0  # labels that count as the mean over all labels of the class
    return np.asarray((presences + prior * overall) / (totals + prior))
