"""Whether the known labels of test images are a fair sample of all labels."""

import math

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import some
from partlabel.labels import LabelTable

_SURE = 4.0  # standard errors from which on a difference is said
_RATIO = 1.5  # shares of present labels that differ by less are not said
_UNEVEN = 2.0  # shares of known labels per class that differ by less are not said
WHOLE = 30  # fully labelled images that are enough to measure on


def whole_rows(labels: NDArray[np.int8]) -> NDArray[np.bool_]:
    """[n] which images have all labels [n, C] known."""
    return np.asarray((labels != 0).all(axis=1))


def bias_notes(table: LabelTable) -> list[str]:
    """What is known of test images, if that is not a random sample of their labels.

    Three signs are looked for: the share of present labels among the known ones differs for
    images of which less is known, or between sources; or some classes are known far
    more often than others.
    """
    labels = table.dense()
    if not (labels == 0).any() or not (labels != 0).any():
        return []
    return [*_by_image(labels), *_by_origin(table), *_by_class(table, labels)]


def _by_image(labels: NDArray[np.int8]) -> list[str]:
    known = (labels != 0).sum(axis=1)
    enough = whole_rows(labels).sum() >= WHOLE
    limit = labels.shape[1] if enough else max(1, np.quantile(known[known > 0], 0.75))
    much = known >= limit
    if much[known > 0].all():
        return []
    much_share, little_share = (_present(labels[rows]) for rows in (much, ~much))
    if not _differ(much_share, little_share):
        return []
    measured = (
        f" 'mAP_whole' is measured on the {int(whole_rows(labels).sum()):,} test images of which "
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


def _by_class(table: LabelTable, labels: NDArray[np.int8]) -> list[str]:
    known = (labels != 0).sum(axis=0)
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
