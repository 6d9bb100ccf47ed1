"""Confidence intervals by the bootstrap over images.

[1] Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 5.2.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.randomness import key, keys, uniform

_MOST, _FEWEST = 400, 100  # bootstrap samples
_CELLS = 100_000_000  # labels to measure in all samples together, to bound the time
_TWO_SIDED = 1.96  # standard deviations on either side that hold 95% of a normal distribution

Rows = NDArray[np.int64]


class Interval(NamedTuple):
    """A confidence interval of 95%; NaN if the bootstrap samples do not differ."""

    low: float
    high: float

    @property
    def exists(self) -> bool:
        """Whether there is an interval."""
        return not np.isnan(self.low)


def sample_count(cells: int) -> int:
    """The number of bootstrap samples for this many labels: fewer if there are many labels."""
    return int(np.clip(_CELLS // max(cells, 1), _FEWEST, _MOST))


def draw_rows(images: int, sample: int) -> Rows:
    """The rows [images] of one bootstrap sample, drawn with replacement."""
    positions = np.arange(images, dtype=np.uint64)
    draws = uniform(key("report", "bootstrap"), keys([f"{sample}"]), positions)
    return np.asarray((draws * images).astype(np.int64))


def intervals(
    measure: Callable[[Rows], Mapping[str, float]], images: int, samples: int
) -> dict[str, Interval]:
    """Confidence intervals of the figures of some images.

    The intervals are normal and corrected for bias [1]: the figure of all images, minus the
    mean deviation of the samples from it, plus and minus 1.96 standard deviations of the samples.
    Plain percentiles would be too high for an average precision, because an image that is drawn
    twice confirms itself.

    Args:
        measure: the figures of the images in these rows, by name.
        images: the number of images.
        samples: the number of bootstrap samples.
    """
    figures = measure(np.arange(images))
    measured = [measure(draw_rows(images, sample)) for sample in range(samples)] if images else []
    return {
        name: _interval(value, np.array([sample[name] for sample in measured]))
        for name, value in figures.items()
    }


def _interval(value: float, samples: NDArray[np.float64]) -> Interval:
    valid = samples[~np.isnan(samples)]
    if len(valid) < 2 or valid.std() < 1e-12:
        return Interval(np.nan, np.nan)
    center, margin = 2 * value - valid.mean(), _TWO_SIDED * valid.std(ddof=1)
    return Interval(float(center - margin), float(center + margin))
