"""Whether the known labels of test images are a fair sample of all labels."""

import math

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import some
from partlabel.labels import LabelTable
from partlabel.labels.cells import Cells

_SURE = 4.0  # standard errors from which on a difference is said
_RATIO = 1.5  # shares of present labels that differ by less are not said
_UNEVEN = 2.0  # shares of known labels per class that differ by less are not said
WHOLE = 30  # fully labelled images that are enough to measure on


def bias_notes(table: LabelTable) -> list[str]:
    """What is known of test images, if that is not a random sample of their labels.

    Three signs are looked for: the share of present labels among the known ones differs for
    images of which less is known, or between sources; or some classes are known far
    more often than others.
    """
    cells = table.cells.where(table.cells.values != 0)
    if not 0 < len(cells.values) < math.prod(table.shape):
        return []
    return [*_by_image(table, cells), *_by_origin(table), *_by_class(table, cells)]


def _by_image(table: LabelTable, cells: Cells) -> list[str]:
    known, classes = np.diff(cells.starts), len(table.classes)
    whole = int((known == classes).sum())
    enough = whole >= WHOLE
    limit = classes if enough else max(1, np.quantile(known[known > 0], 0.75))
    much = known >= limit
    if much[known > 0].all():
        return []
    of_much = much[cells.rows]
    much_share, little_share = (_present(cells.values[some]) for some in (of_much, ~of_much))
    if not _differ(much_share, little_share):
        return []
    measured = (
        f" 'mAP_whole' is measured on the {whole:,} test images of which "
        "all labels are known: trust it more"
        if enough
        else " A few hundred test images with all labels known would show which method is better"
    )
    return [
        f"the known labels of test images are not a random sample: {_percent(little_share)} "
        f"of them are present in images with fewer than {int(limit)} known labels, and "
        f"{_percent(much_share)} in the others. So mAP may favour a wrong method.{measured}"
    ]


def _by_origin(table: LabelTable) -> list[str]:
    names = list(table.origins)
    if len(names) < 2:
        return []
    values, origins = table.cells.values, table.cells.origins_or_none()
    shares = {
        name: _present(values[origins == number]) for number, name in enumerate(names, start=1)
    }
    known = {name: share for name, share in shares.items() if share[1]}
    low, high = (
        pick(known, key=lambda name: known[name][0] / known[name][1]) for pick in (min, max)
    )
    if low == high or not _differ(known[low], known[high]):
        return []
    return [
        f"the sources of the test labels differ: {_percent(known[low])} of the labels from '{low}' "
        f"are present, and {_percent(known[high])} of those from '{high}'; mAP mixes them"
    ]


def _by_class(table: LabelTable, cells: Cells) -> list[str]:
    known = np.bincount(cells.columns, minlength=len(table.classes))
    rare = np.flatnonzero(known * _UNEVEN < np.median(known))
    # a difference that random gaps would hardly make
    rare = rare[(np.median(known) - known[rare]) > _SURE * math.sqrt(max(np.median(known), 1))]
    if not len(rare):
        return []
    names = [table.classes[int(j)] for j in rare]
    return [
        f"test labels are known less often for {some(names)} ({int(known[rare].min()):,} and more, "
        f"half of the classes have {int(np.median(known)):,} and more): their average precision "
        "has the same weight in mAP, and is less certain"
    ]


Present = tuple[int, int]  # of so many known labels, so many are present


def _present(values: NDArray[np.int8]) -> Present:
    """The number of present labels, and of known ones."""
    return int((values > 0).sum()), int((values != 0).sum())


def _differ(one: Present, other: Present) -> bool:
    """Whether two shares of present labels differ by much, and more than by chance."""
    if not one[1] or not other[1]:
        return False
    shares = [part[0] / part[1] for part in (one, other)]
    pooled = (one[0] + other[0]) / (one[1] + other[1])
    error = math.sqrt(max(pooled * (1 - pooled), 1e-12) * (1 / one[1] + 1 / other[1]))
    return max(shares) > _RATIO * min(shares) and abs(shares[0] - shares[1]) > _SURE * error


def _percent(part: Present) -> str:
    return f"{part[0] / max(part[1], 1):.0%}"
