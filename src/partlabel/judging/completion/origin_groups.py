"""Images by the origins of their labels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import LabelTable
from partlabel.labels.origins import NO_ORIGIN

NO_LABEL = "(no label)"
NEW = "(not in the label file)"
FEW = "(other origins)"
LEAST = 30  # images of an origin below which a comparison says nothing


class OriginGroups(NamedTuple):
    """Images with labels of the same origins.

    Args:
        names: [G] such as ``north`` or ``north + south``.
        of_image: [n] the group of each image.
    """

    names: list[str]
    of_image: NDArray[np.int64]


def group_by_origins(known: LabelTable, images: int | None = None) -> OriginGroups:
    """Group the images of a table by the origins of their labels.

    Groups that are too small to be compared with others are joined, if there are several.

    Args:
        known: the labels.
        images: the number of images, if there are more after those of the table; these are a group.

    >>> north = LabelTable(["a", "b"], ["cat"], [[1], [0]]).with_origin("north")
    >>> group_by_origins(north, 3).names
    ['(no label)', '(not in the label file)', 'north']
    """
    total = len(known) if images is None else images
    cells = known.cells.where(known.cells.values != 0)
    noted = np.zeros((len(known), len(known.origins) + 1), dtype=np.bool_)
    noted[cells.rows, cells.origins_or_none()] = True
    kinds, inverse = np.unique(noted, axis=0, return_inverse=True)
    origins = [NO_ORIGIN, *known.origins]
    names = [" + ".join(origins[code] for code in np.flatnonzero(kind)) for kind in kinds]
    of_kind = np.full(total, len(names))
    of_kind[: len(known)] = inverse.reshape(-1)
    used = [*(name or NO_LABEL for name in names), NEW][: len(names) + (total > len(known))]
    found, place = np.unique(np.array(used, dtype=str), return_inverse=True)
    of_image = place[of_kind]
    sizes = np.bincount(of_image, minlength=len(found))
    small = (sizes < LEAST) & ~np.isin(found, [NO_LABEL, NEW])
    if small.sum() > 1:
        found, place = np.unique(np.where(small, FEW, found), return_inverse=True)
        of_image = place[of_image]
    return OriginGroups(found.tolist(), of_image.astype(np.int64))
