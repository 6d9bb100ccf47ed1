"""How often the confidence intervals of the report hold: coverage of the true mAP, by simulation.

Scores of present and absent labels are normal, two standard deviations apart. The interval should
hold the mAP of an endless number of images in 95% of the cases.

    python -m benchmarks.intervals
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.metrics import evaluate
from partlabel.output.report.bootstrap import Rows, intervals

Array = NDArray[Any]

CLASSES, SHIFT, REPEATS, SAMPLES, ENDLESS = 10, 2.0, 200, 100, 400_000


def draw(rng: np.random.Generator, images: int, share: float, classes: int) -> tuple[Array, Array]:
    """Scores [n, C] and labels [n, C] with a share of present labels."""
    present = rng.random((images, classes)) < share
    logits = rng.normal(size=present.shape) + SHIFT * present
    return 1 / (1 + np.exp(-logits)), np.where(present, 1, -1)


def coverage(images: int, present: int) -> tuple[float, float]:
    """The share of intervals that hold the true mAP, and their mean width."""
    rng = np.random.default_rng(0)
    truth = evaluate(*draw(rng, ENDLESS, present / images, 1))["mAP"]
    widths, hits = [], 0
    for _ in range(REPEATS):
        scores, labels = draw(rng, images, present / images, CLASSES)

        def measure(rows: Rows, scores: Array = scores, labels: Array = labels) -> dict[str, float]:
            return {"mAP": evaluate(scores[rows], labels[rows])["mAP"]}

        low, high = intervals(measure, images, SAMPLES)["mAP"]
        widths.append(high - low)
        hits += low <= truth <= high
    return hits / REPEATS, float(np.mean(widths))


if __name__ == "__main__":
    print("images  present per class  coverage  width")
    for images, present in ((200, 2), (200, 5), (200, 10), (200, 20), (200, 50), (1000, 50)):
        share, width = coverage(images, present)
        print(f"{images:6}  {present:17}  {share:8.1%}  {width:.3f}")
