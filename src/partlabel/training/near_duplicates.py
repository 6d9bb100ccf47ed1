"""Near-duplicates among images: equal files, and features that are almost the same.

The same photo under two names, a crop of it, or the next shot of a burst would make a validation
too good, if one is trained on and the other is validated on.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count
from partlabel.images.batches import Rows
from partlabel.images.stored import ImageFile, size_of
from partlabel.labels.groups import Groups
from partlabel.models.features import content_key

Floats = NDArray[np.float32]

SIMILAR = 0.85
"""Images with this cosine similarity of centred features are near-duplicates.

With the default backbone, photos that were compressed again, mirrored, or cut to 90% of their area
have 0.88 and more in 19 of 20 cases, those cut to 80% have 0.84. Of 13 million pairs of different
photos of VOC 2012, two have 0.85 (``docs/results/near-duplicates.md``).
"""

_STRICTER = (SIMILAR, 0.9, 0.95, 0.98)  # where images are all of a kind, such as X-rays
_LARGEST = 0.2  # share of the images that a group by similarity may have
_FEW = 20  # images that may always be one group
_NUMBERS = 64  # features that a vector needs, so that few pairs are similar by chance
MOST = 100_000  # images whose features are compared: the time grows with the square
TOO_MANY = (
    "only equal files are found to be near-duplicates: comparing features takes too long for more "
    f"than {MOST:,} images"
)
_AXES = 64  # principal axes that find pairs which may be similar
_SAMPLE = 512  # images that the axes are fitted on
_BLOCK = 1 << 24  # pairs that are compared at a time
_PAIRS = 1 << 21  # pairs that are kept before they are merged into groups
_DENSE = 0.02  # share of possible pairs from which on all are compared


def equal_files(paths: Sequence[ImageFile]) -> Groups:
    """Groups of images with the same content; only those of equal size are read.

    Where only reading tells the size, as in Parquet files, all are read.
    """
    sizes = np.array([_size(path) for path in paths], dtype=np.int64)
    codes = np.full(len(paths), -1, dtype=np.int64)
    _, inverse, times = np.unique(sizes, return_inverse=True, return_counts=True)
    numbers: dict[bytes, int] = {}
    for row in np.flatnonzero((times[inverse] > 1) & (sizes >= 0)).tolist():
        codes[row] = numbers.setdefault(content_key(paths[row]), len(numbers))
    return Groups.of_codes(codes)


def _size(path: ImageFile) -> int:
    """Number of bytes; 0 if only reading tells, -1 if the image cannot be read."""
    try:
        return size_of(path) or 0
    except OSError:  # decoding reports it
        return -1


def similar_images(features: Floats) -> tuple[Groups, str]:
    """Groups of images with similar features [n, D], and what to say about the search.

    If more images than a fold are all similar to each other, similarity does not show near-
    duplicates. The threshold is then raised; if that does not help, no image is grouped.
    """
    if len(features) > MOST:
        return Groups.none(len(features)), TOO_MANY
    if features.shape[1] < _NUMBERS:
        return Groups.none(len(features)), ""
    unit = _unit(features)
    for threshold in _STRICTER:
        groups = similar(unit, threshold)
        largest = int(groups.sizes.max(initial=0))
        if largest <= max(_FEW, _LARGEST * len(features)):
            stricter = threshold > SIMILAR and groups.images
            return groups, f"similarity of at least {threshold}" if stricter else ""
    return Groups.none(len(features)), (
        "the features of these images are too alike to show near-duplicates: name a column that "
        "tells which belong together with --group"
    )


def _unit(features: Floats) -> Floats:
    """Features minus their mean over the images, of length 1; a zero vector stays zero."""
    centred = features - features.mean(axis=0, dtype=np.float64).astype(np.float32)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.maximum(length, 1e-12), dtype=np.float32)


def similar(unit: Floats, threshold: float) -> Groups:
    """Groups of rows of length 1 whose products are at least a threshold.

    The first principal axes give an upper bound of each product, so that few are computed in full.
    Pairs are looked at in blocks: memory does not grow with their number.
    """
    groups, waiting = Groups.none(len(unit)), [np.empty((0, 2), dtype=np.int64)]
    for pairs in _similar_pairs(unit, threshold):
        waiting.append(pairs)
        if sum(map(len, waiting)) > _PAIRS:
            groups = groups.joined(Groups.of_pairs(len(unit), np.concatenate(waiting)))
            waiting = [np.empty((0, 2), dtype=np.int64)]
    return groups.joined(Groups.of_pairs(len(unit), np.concatenate(waiting)))


def _similar_pairs(unit: Floats, threshold: float) -> Iterator[Rows]:
    bounds, step = _bounds(unit), max(1, _BLOCK // max(len(unit), 1))
    for start in range(0, len(unit), step):
        block, later = np.arange(start, min(start + step, len(unit))), np.arange(start, len(unit))
        possible = bounds[block] @ bounds[later].T >= threshold - 1e-5
        possible &= block[:, None] < later[None, :]
        if possible.sum() > _DENSE * possible.size:
            possible &= unit[block] @ unit[later].T >= threshold
        pairs = np.argwhere(possible) + start
        for part in np.array_split(pairs, len(pairs) // 65_536 + 1):
            products = np.einsum("pd,pd->p", unit[part[:, 0]], unit[part[:, 1]])
            yield part[products >= threshold]


def _bounds(unit: Floats) -> Floats:
    """[n, axes + 1] vectors whose products are upper bounds of the products of the rows.

    What the axes leave of two rows has at most the product of its lengths (Cauchy-Schwarz).
    """
    sample = unit[np.unique(np.linspace(0, len(unit) - 1, min(len(unit), _SAMPLE)).astype(int))]
    _, _, axes = np.linalg.svd(sample, full_matrices=False)
    short = unit @ axes[:_AXES].T
    rest = np.sqrt(np.maximum(1 - np.square(short).sum(axis=1, keepdims=True), 0))
    return np.asarray(np.concatenate([short, rest], axis=1), dtype=np.float32)


def describe(groups: Groups, what: str) -> str:
    """What is kept together, for the log.

    >>> describe(Groups.of_pairs(9, np.array([[0, 1], [1, 2], [4, 5]])), "near-duplicates")
    '5 images in 2 groups of near-duplicates stay together'
    """
    number = count(groups.groups, "group")
    return f"{count(groups.images, 'image')} in {number} of {what} stay together"
