"""Whether an ensemble of ``auto`` gains if each class has weights of its own.

    python -m benchmarks.per_class voc=voc/labels.csv,voc/images coco=coco/labels.csv,coco/images

The label files have splits "train" and "val" with everything known. Labels of "train" are hidden,
and ``auto`` compares its candidates on folds of it. Weights are chosen on these out-of-fold scores:
once for all classes, as ``auto`` does, and once for each class by its average precision. The two
ensembles are mixed. In a class with n known positives its own one has the share n / (n + k), so
that a class with little evidence keeps the common one; with k = inf all classes do. The k to use
is chosen on random halves of the training images: weights from one half, figures from the other.
Labels of "val" are for the report alone. Without absent labels, unknown ones count as absent here.
With ``--test N``, N of the images of "val" are the test.
"""

import argparse
import itertools
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import machine
from partlabel import read_labels, train
from partlabel.labels import LabelTable, simulate
from partlabel.metrics import average_precision, evaluate
from partlabel.output.bench.sheets import Sheet, markdown
from partlabel.training.auto import automatic
from partlabel.training.auto.criterion import Criterion
from partlabel.training.auto.greedy import Logits, choose_weights, spread

Labels = NDArray[np.int8]
STRATEGIES: tuple[tuple[str, float | None], ...] = (("single-positive", None), ("partial", 0.1))
STRENGTHS = (0.0, 10.0, 30.0, 100.0, 300.0, 1000.0, math.inf)  # values of k
DRAWS = 4  # of halves, each used both ways
LEAST = 3  # known positives that a class needs for weights of its own
MEMBERS = 8


@dataclass(frozen=True)
class Scores:
    """What the candidates of a run say.

    Args:
        held_out: [n, C] of each candidate, for training images that it has not seen.
        test: [t, C] of each candidate, for test images.
        labels: [n, C] known labels of the training images.
        truth: [t, C] all labels of the test images.
    """

    held_out: list[Logits]
    test: list[Logits]
    labels: Labels
    truth: Labels

    def between(self, fitted: NDArray[np.int64], judged: NDArray[np.int64]) -> "Scores":
        """The same, with some training images in place of the test images."""
        return Scores(
            [part[fitted] for part in self.held_out],
            [part[judged] for part in self.held_out],
            self.labels[fitted],
            assumed(self.labels)[judged],
        )


def assumed(labels: Labels) -> Labels:
    """Known labels; if none is absent, unknown ones count as absent."""
    return labels if (labels < 0).any() else np.where(labels > 0, 1, -1).astype(np.int8)


def with_some_tests(table: LabelTable, number: int | None) -> LabelTable:
    """The images of "train", and so many random ones of "val"; all of them without a number."""
    train, test = (np.flatnonzero(table.in_split(split)) for split in ("train", "val"))
    chosen = np.random.default_rng(0).permutation(test)[:number]
    return table.subset(np.sort(np.concatenate([train, chosen])))


def collect(truth: LabelTable, known: LabelTable, images: str, budget: str) -> Scores:
    """Train by ``auto`` and keep the scores of all candidates that it could combine."""
    found: dict[str, Any] = {}
    choose = automatic._choose

    def noted(comparison: Any, finished: Any, base: Any) -> Any:
        candidates = automatic._varied(comparison, finished)
        found["held_out"] = [comparison.logits(one) for one in candidates]
        found["test"] = [comparison.refit(one).logits.numpy() for one in candidates]
        found["labels"] = comparison.criterion.labels
        return choose(comparison, finished, base)

    settings: dict[str, Any] = {"backbone": "tf_efficientnet_lite0", "val_split": "val"}
    settings |= {"reserve": 0.0, "budget": budget, "quiet": True}
    with mock.patch.object(automatic, "_choose", noted), tempfile.TemporaryDirectory() as folder:
        run = train(known, images, Path(folder) / "run", **settings)
        names = list(run.selection.validation.ids)
    place = {name: row for row, name in enumerate(truth.ids)}
    rows = np.array([place[name] for name in names])
    return Scores(**found, truth=truth.dense()[rows])


def with_common_weights(scores: Scores) -> Logits:
    """The test logits of the ensemble with the same weights for all classes."""
    weights = choose_weights(scores.held_out, Criterion(scores.labels, ""), MEMBERS)
    return total(scores.held_out, scores.test, weights)


def with_own_weights(scores: Scores) -> Logits:
    """The test logits of the ensemble with weights for each class; NaN for too few positives."""
    result = np.full_like(scores.test[0], np.nan)
    labels = assumed(scores.labels)
    for column in np.flatnonzero((labels > 0).sum(axis=0) >= LEAST):
        held_out = [part[:, [column]] for part in scores.held_out]
        test = [part[:, [column]] for part in scores.test]
        weights = choose_weights(held_out, OneClass(labels[:, column]), MEMBERS)
        result[:, [column]] = total(held_out, test, weights)
    return result


@dataclass(frozen=True)
class OneClass:
    """The average precision of a class with labels [n]."""

    labels: Labels

    def __call__(
        self, logits: Logits, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """The figure of logits [n, 1], of all images or of ``rows`` alone."""
        labels = self.labels if rows is None else self.labels[rows]
        return np.array([average_precision(logits[:, 0], labels)])


def total(held_out: Sequence[Logits], test: Sequence[Logits], weights: Any) -> Logits:
    """The weighted sum of test logits, on the scale of held-out ones."""
    parts = [w / spread(h) * t for w, h, t in zip(weights, held_out, test, strict=True) if w]
    return np.asarray(np.sum(parts, axis=0))


def mixed(common: Logits, own: Logits, positives: NDArray[np.int64], strength: float) -> Logits:
    """Own logits with the share n / (n + strength), and common ones for the rest."""
    share = positives / np.maximum(positives + strength, 1e-9)
    share = np.where(np.isnan(own).any(axis=0), 0.0, share)
    return np.asarray((1 - share) * standard(common) + share * np.nan_to_num(standard(own)))


def standard(logits: Logits) -> Logits:
    """Logits divided by their standard deviation in each class."""
    deviation = logits.std(axis=0)
    return np.asarray(logits / np.where(deviation > 0, deviation, 1.0))


def judge(scores: Scores) -> list[float]:
    """The test mAP with each strength, in percent."""
    common, own = with_common_weights(scores), with_own_weights(scores)
    positives = (scores.labels > 0).sum(axis=0)
    ensembles = [mixed(common, own, positives, strength) for strength in STRENGTHS]
    return [100 * evaluate(ensemble, scores.truth)["mAP"] for ensemble in ensembles]


def choose_strength(scores: Scores) -> int:
    """The place of the strength that is best on halves of the training images."""
    rng, images = np.random.default_rng(0), len(scores.labels)
    figures = []
    for _ in range(DRAWS):
        order = rng.permutation(images)
        first, second = np.sort(order[: images // 2]), np.sort(order[images // 2 :])
        figures += [judge(scores.between(*halves)) for halves in ((first, second), (second, first))]
    return int(np.argmax(np.mean(figures, axis=0)))


def main() -> None:
    """Print a table: test mAP with each strength, and with the one that is chosen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="+", help="name=labels.csv,images")
    parser.add_argument("--budget", default="small")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--test", type=int)
    arguments = parser.parse_args()
    print(machine(), flush=True)
    rows = []
    for text, (strategy, share) in itertools.product(arguments.data, STRATEGIES):
        name, _, files = text.partition("=")
        labels, _, images = files.partition(",")
        truth = with_some_tests(read_labels(labels), arguments.test)
        shown = simulate.hide(truth, strategy, share, arguments.seed, "train")
        values = np.where(truth.in_split("val")[:, None], 0, shown.dense())
        known = LabelTable(truth.ids, truth.classes, values, truth.splits)
        scores = collect(truth, known, images, arguments.budget)
        figures, chosen = judge(scores), choose_strength(scores)
        title = f"{name}, {strategy}" + (f" {share:.0%}" if share else "")
        gain = figures[chosen] - figures[-1]
        cells = [f"{figure:.2f}" for figure in figures]
        cells += [f"{STRENGTHS[chosen]:g}", f"{gain:+.2f}", str(len(scores.test))]
        rows.append([title, *cells])
        print(*rows[-1], flush=True)
    columns = [f"k = {strength:g}" for strength in STRENGTHS]
    print(markdown(Sheet(["", *columns, "chosen k", "gain", "candidates"], rows)))


if __name__ == "__main__":
    main()
