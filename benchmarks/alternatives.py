"""Side by side with what one would take otherwise, on the same frozen features.

    pip install mlcpl
    python -m benchmarks.alternatives voc/labels.csv --images voc/images

A plain PyTorch loop that takes unknown for absent; the same loop with the losses of mlcpl 0.1.7;
scikit-learn's logistic regression, a class at a time, on known labels; and partlabel. All have the
same features, draws of labels and validation images, and choose their settings (learning rate and
weight decay, or C, or L-BFGS and weight decay) on validation labels of the first draw. Without
mlcpl its rows are left out.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from benchmarks.report import machine, timed
from partlabel import LabelTable, metrics, read_labels, train
from partlabel.judging.scoring import score
from partlabel.labels import simulate
from partlabel.learning.methods import METHODS
from partlabel.models.prediction import predict
from partlabel.output.bench.results import spread
from partlabel.output.bench.sheets import Sheet, markdown
from partlabel.training.arguments import make_settings
from partlabel.training.build import build
from partlabel.training.inputs import make_inputs
from partlabel.training.selection import locate_all
from partlabel.training.settings import Execution

SEEDS, EPOCHS, BATCH = (0, 1, 2), 12, 32
CHOICES = [
    {"lr": lr, "weight_decay": decay}
    for lr, decay in itertools.product((3e-4, 1e-3, 3e-3), (0.0, 1e-3))
]
WHOLE = [{"optimizer": "lbfgs", "weight_decay": decay} for decay in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)]
OURS: dict[str, dict[str, dict[str, Any]]] = {
    "single-positive": {"an": {}, "em-apl": {"alpha": "auto"}, "em": {"alpha": "auto"}},
    "partial": {"bce": {}, "latent-noise": {}, "imcl": {"solve": True}},
}
REGULAR = [{"C": c} for c in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)]

Cost = Callable[[Tensor, Tensor], Tensor]
Numbers = NDArray[Any]


class Data:
    """Features and labels of one draw: training, validation and test images."""

    def __init__(
        self, features: Numbers, labels: LabelTable, test: Numbers, truth: Numbers
    ) -> None:
        rows = [np.flatnonzero(labels.in_split(name)) for name in ("train", simulate.HOLDOUT)]
        self.table = labels
        (self.train, self.val), self.test = (features[one] for one in rows), test
        (self.known, self.held), self.truth = (labels.dense(one) for one in rows), truth


def features_of(table: LabelTable, given: argparse.Namespace) -> Numbers:
    """[n, D] the mean of the last map of each image."""
    settings = make_settings(method="bce", frozen="all")
    model, _ = build(settings, list(table.classes), pretrained=True)
    paths = locate_all(table, given.images)
    inputs = make_inputs(model, table, paths, settings, Execution(cache=given.cache), print)
    found = np.zeros((len(table), model.backbone.channels), dtype=np.float32)
    for rows, part in predict(
        model,
        inputs,
        np.arange(len(table)),
        256,
        forward=lambda model, seen: model.backbone(seen).mean(dim=(2, 3)),
    ):
        found[rows] = part.numpy()
    return found


def loop(cost: Cost, data: Data, seed: int, lr: float, weight_decay: float) -> tuple[float, float]:
    """The loop one would write by hand; validation and test mAP of the best epoch."""
    torch.manual_seed(seed)
    head = nn.Linear(data.train.shape[1], data.known.shape[1])
    optimizer = torch.optim.Adam(head.parameters(), lr=lr, weight_decay=weight_decay)
    x, known = torch.from_numpy(data.train), torch.from_numpy(data.known).float()
    target = torch.where(known == 0, torch.nan, (known + 1) / 2)
    best = (0.0, 0.0)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(x)), BATCH):
            loss = cost(head(x[rows]), target[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        best = max(best, _mean_ap(lambda seen: head(torch.from_numpy(seen)), data))
    return best


def _mean_ap(says: Callable[[Numbers], Tensor], data: Data) -> tuple[float, float]:
    with torch.no_grad():
        held, test = (says(seen).sigmoid().numpy() for seen in (data.val, data.test))
    if np.isnan(held).any():  # the loss has become infinite on the way
        return 0.0, 0.0
    return metrics.evaluate(held, data.held)["mAP"], metrics.evaluate(test, data.truth)["mAP"]


def as_absent(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy with unknown labels taken for absent."""
    return nn.functional.binary_cross_entropy_with_logits(logits, target.nan_to_num(0.0))


def one_by_one(data: Data, seed: int, C: float) -> tuple[float, float]:  # noqa: N803
    """A logistic regression a class, on known labels alone."""
    weights, biases = [], []
    for j in range(data.known.shape[1]):
        rows = data.known[:, j] != 0
        found = LogisticRegression(C=C, max_iter=300, random_state=seed)
        found.fit(data.train[rows], data.known[rows, j])
        weights.append(found.coef_[0])
        biases.append(found.intercept_[0])
    weight, bias = torch.tensor(np.array(weights)).float(), torch.tensor(np.array(biases)).float()
    return _mean_ap(lambda seen: torch.from_numpy(seen) @ weight.T + bias, data)


def ours(
    method: str, options: dict[str, Any], given: argparse.Namespace, test: LabelTable
) -> Callable[..., tuple[float, float]]:
    """A training with partlabel."""

    def run(data: Data, seed: int, **choice: Any) -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder:
            done = train(
                data.table,
                given.images,
                Path(folder) / "run",
                cache=given.cache,
                method=method,
                options=options,
                frozen="all",
                epochs=EPOCHS,
                seed=seed,
                reserve=0,
                **choice,
            )
            held = done.record.best_val_mAP or 0.0
            said = score(done, test).scores
        return held, metrics.evaluate(said, test)["mAP"]

    return run


def _contenders(strategy: str, given: argparse.Namespace, test: LabelTable) -> dict[str, Any]:
    """Who takes part, and what each may choose from."""
    both = strategy == "partial"
    found: dict[str, Any] = {"PyTorch, unknown is absent": (_looped(as_absent), CHOICES)}
    try:
        from mlcpl import losses as theirs
    except ImportError:
        print("mlcpl is not installed; its rows are left out")
    else:
        negative, selective = (
            theirs.PartialNegativeBCEWithLogitLoss(),
            theirs.PartialSelectiveBCEWithLogitLoss(likelihood_topk=1, prior_threshold=None),
        )
        found["mlcpl, PartialNegativeBCE"] = (_looped(negative), CHOICES)
        found["mlcpl, PartialSelectiveBCE"] = (_looped(selective), CHOICES)
        if both:
            found["mlcpl, PartialBCE"] = (_looped(theirs.PartialBCEWithLogitLoss()), CHOICES)
    if both:
        found["scikit-learn, one class at a time"] = (one_by_one, REGULAR)
    for method, options in OURS[strategy].items():
        choices = CHOICES + (WHOLE if METHODS[method].in_one_batch else [])
        found[f"partlabel, `{method}`"] = (ours(method, options, given, test), choices)
    return found


def _looped(cost: Cost) -> Callable[..., tuple[float, float]]:
    return lambda data, seed, **choice: loop(cost, data, seed, **choice)


def _metrics(truth: Numbers, scores: Numbers) -> None:
    try:
        from mlcpl.metrics import partial_multilabel_average_precision as theirs
    except ImportError:
        return
    target = torch.from_numpy(np.where(truth == 0, np.nan, (truth + 1) / 2))
    slow, found = timed(lambda: float(theirs(torch.from_numpy(scores), target)), 3)
    fast, result = timed(lambda: metrics.evaluate(scores, truth), 3)
    print(
        f"mAP of {len(scores):,} x {scores.shape[1]} scores: mlcpl {found:.6f} in {slow:.3f} s, "
        f"partlabel {result['mAP']:.6f}, with all its other figures, in {fast:.3f} s"
    )


def main() -> None:
    """Choose on the first draw, then train on all of them."""
    parser = argparse.ArgumentParser(description="partlabel beside what one would take otherwise")
    parser.add_argument("labels", type=Path, help="a full label file")
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--test-split", default="test")
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args()
    full = read_labels(given.labels)
    test = full.split(given.test_split)
    features, test_features = features_of(full.split(given.split), given), features_of(test, given)
    truth = test.dense()
    _metrics(truth, np.random.default_rng(0).random(truth.shape))
    for strategy, proportion in (("single-positive", None), ("partial", 0.1)):
        rows = []
        draws = {
            seed: Data(
                features,
                simulate.hide(full.split(given.split), strategy, proportion, seed, "train", 0.2),
                test_features,
                truth,
            )
            for seed in SEEDS
        }
        for name, (fit, choices) in _contenders(strategy, given, test).items():
            tried = [fit(draws[SEEDS[0]], SEEDS[0], **choice) for choice in choices]
            choice = choices[int(np.argmax([val for val, _ in tried]))]
            start = time.perf_counter()
            found = [100 * fit(draws[seed], seed, **choice)[1] for seed in SEEDS]
            seconds = (time.perf_counter() - start) / len(SEEDS)
            mean, deviation = spread(found)
            chosen = ", ".join(f"{key} {value}" for key, value in choice.items())
            rows.append([name, f"{mean:.2f} ± {deviation:.2f}", chosen, f"{seconds:.1f}"])
            print(rows[-1], flush=True)
        share = "" if proportion is None else f" {proportion:.0%}"
        header = [f"{strategy}{share}", "test mAP", "chosen", "seconds a training"]
        print(f"\n{machine()}; {len(SEEDS)} draws\n\n{markdown(Sheet(header, rows))}")


if __name__ == "__main__":
    main()
