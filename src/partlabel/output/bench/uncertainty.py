"""How sure a difference between two methods is: over seeds, and over the choice of test images.

[1] Nadeau and Bengio, Inference for the Generalization Error, Machine Learning 52, 2003.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from partlabel.output.report.bootstrap import draw_rows

Floats = NDArray[np.float64]

SAMPLES = 200  # bootstrap samples of the test images
RESAMPLED = "resampled"  # the mAP of each of these samples
TEST_IMAGES = "test_images"  # a hash of the test images


class Sureness(NamedTuple):
    """An interval of 95% for the mean difference, and the p-value of no difference."""

    low: float
    high: float
    p_value: float


def draw_samples(images: int) -> NDArray[np.int64]:
    """[samples, images] how often each test image is in each bootstrap sample."""
    return np.stack([np.bincount(draw_rows(images, n), minlength=images) for n in range(SAMPLES)])


def sureness(
    values: Sequence[float], resampled: Sequence[Floats], *, same_images: bool, folds: int
) -> Sureness | None:
    """The interval and p-value of a mean over seeds; None if nothing varies.

    If all seeds have the same test images, the variance of the mean over seeds is added to that
    over resampled images, with the degrees of freedom of Welch and Satterthwaite. If each seed has
    its own test images (a fold), differences over seeds have both; their training images overlap,
    so their variance is corrected [1].

    Args:
        values: a difference per seed.
        resampled: for each seed, the difference in each sample of its test images.
        same_images: whether all seeds have the same test images.
        folds: the number of parts of the images, if each seed has another one to test on.
    """
    number, mean = len(values), float(np.mean(values))
    over_seeds = float(np.var(values, ddof=1)) / number if number > 1 else 0.0
    if same_images or number == 1:
        over_images = float(np.nanvar(np.mean(resampled, axis=0), ddof=1))
        parts = [(over_seeds, number - 1), (over_images, len(resampled[0]) - 1)]
    else:
        parts = [(over_seeds * (1 + number / (folds - 1)), number - 1)]
    variance = sum(part for part, _ in parts)
    if variance < 1e-18:
        return None
    freedom = variance**2 / sum(part**2 / df for part, df in parts if df)
    margin = math.sqrt(variance) * float(student.ppf(0.975, freedom))
    p_value = 2 * float(student.sf(abs(mean) / math.sqrt(variance), freedom))
    return Sureness(mean - margin, mean + margin, p_value)
