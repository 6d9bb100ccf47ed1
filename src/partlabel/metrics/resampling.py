"""mAP of resampled images, all samples at once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.metrics.known_cells import KnownCells

Floats = NDArray[np.float64]


def resampled_map(cells: KnownCells, times: NDArray[np.int64]) -> Floats:
    """The mAP of each sample of images, as :func:`metrics.evaluate` computes it.

    A class counts in those samples in which it is known to be present in an image, and absent in
    another.

    Args:
        cells: the known labels of images, with their scores.
        times: [S, n] how often each image is in each sample.

    Returns:
        [S] NaN for a sample in which no class counts.
    """
    precisions = np.stack(
        [
            _average_precisions(cells.scores[own], cells.labels[own], times, cells.rows[own])
            for own in cells.by_class
        ],
        axis=1,
    )
    counted = ~np.isnan(precisions)
    total = np.where(counted, precisions, 0).sum(axis=1)
    return np.where(counted.any(axis=1), total / np.maximum(counted.sum(axis=1), 1), np.nan)


def _average_precisions(
    scores: NDArray[Any], labels: NDArray[np.int8], times: NDArray[np.int64], images: NDArray[Any]
) -> Floats:
    """[S] the average precision of a class, by its known labels [m] in the order of their images.

    Equal scores share one precision.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.diff(scores[order], append=np.nan) != 0)  # of equal scores
    present = labels[order] > 0
    drawn = times[:, images[order]]
    hits = np.cumsum(drawn * present, axis=1)[:, ends]
    alarms = np.cumsum(drawn, axis=1)[:, ends]
    gained = np.diff(hits, axis=1, prepend=0)
    if not len(ends):
        return np.full(len(times), np.nan)
    positives = hits[:, -1]
    total = (gained * hits / np.maximum(alarms, 1)).sum(axis=1)
    counts = (positives > 0) & (positives < alarms[:, -1])
    return np.where(counts, total / np.maximum(positives, 1), np.nan)
