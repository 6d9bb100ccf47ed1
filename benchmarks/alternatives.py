"""Comparison with alternatives on the same frozen features.

    pip install mlcpl
    python -m benchmarks.alternatives voc/labels.csv --images voc/images

The alternatives are a plain PyTorch loop that treats unknown labels as absent, the same loop with
the losses of mlcpl 0.1.7, and one logistic regression of scikit-learn per class on known labels.
All use the same features, draws of labels and validation images. All choose their settings
(learning rate and weight decay, or C, or L-BFGS and weight decay) on the validation labels of the
first draw. Without mlcpl its rows are left out.
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
from partlabel.models.prediction import iterate_logits
from partlabel.output.bench.results import spread
from partlabel.output.bench.sheets import Sheet, markdown
from partlabel.training.arguments import make_settings
from partlabel.training.build import build
from partlabel.training.image_files import locate_all
from partlabel.training.inputs import make_inputs
from partlabel.training.settings import Execution

SEEDS, EPOCHS, BATCH = (0, 1, 2), 12, 32
ADAM = [
    {"lr": lr, "weight_decay": decay}
    for lr, decay in itertools.product((3e-4, 1e-3, 3e-3), (0.0, 1e-3))
]
LBFGS = [{"optimizer": "lbfgs", "weight_decay": decay} for decay in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)]
METHODS_AND_OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "single-positive": {"an": {}, "em-apl": {"alpha": "auto"}, "em": {"alpha": "auto"}},
    "partial": {"bce": {}, "latent-noise": {}, "imcl": {"solve": True}},
}
LOGISTIC = [{"C": c} for c in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)]

Cost = Callable[[Tensor, Tensor], Tensor]
Numbers = NDArray[Any]


class Data:
    """Features and labels of the training, validation and test images of one draw."""

    def __init__(
        self, features: Numbers, labels: LabelTable, test: Numbers, test_labels: Numbers
    ) -> None:
        splits = [np.flatnonzero(labels.in_split(name)) for name in ("train", simulate.HOLDOUT)]
        self.table = labels
        self.train, self.val = (features[rows] for rows in splits)
        self.train_labels, self.val_labels = (labels.dense(rows) for rows in splits)
        self.test, self.test_labels = test, test_labels


def features_of(table: LabelTable, args: argparse.Namespace) -> Numbers:
    """The mean of the last map of each image [n, D]."""
    settings = make_settings(method="bce", frozen="all")
    model, _ = build(settings, list(table.classes), pretrained=True)
    paths = locate_all(table, args.images)
    inputs = make_inputs(model, table, paths, settings, Execution(cache=args.cache), print)
    features = np.zeros((len(table), model.backbone.channels), dtype=np.float32)
    for rows, part in iterate_logits(
        model,
        inputs,
        np.arange(len(table)),
        256,
        forward=lambda model, batch: model.backbone(batch).mean(dim=(2, 3)),
    ):
        features[rows] = part.numpy()
    return features


def loop(cost: Cost, data: Data, seed: int, lr: float, weight_decay: float) -> tuple[float, float]:
    """A plain training loop. Returns the validation and test mAP of the best epoch."""
    torch.manual_seed(seed)
    head = nn.Linear(data.train.shape[1], data.train_labels.shape[1])
    optimizer = torch.optim.Adam(head.parameters(), lr=lr, weight_decay=weight_decay)
    x, labels = torch.from_numpy(data.train), torch.from_numpy(data.train_labels).float()
    target = torch.where(labels == 0, torch.nan, (labels + 1) / 2)
    best = (0.0, 0.0)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(x)), BATCH):
            loss = cost(head(x[rows]), target[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        best = max(best, _mean_ap(lambda features: head(torch.from_numpy(features)), data))
    return best


def _mean_ap(classify: Callable[[Numbers], Tensor], data: Data) -> tuple[float, float]:
    """Validation and test mAP of a function from features [n, D] to logits [n, C]."""
    with torch.no_grad():
        val, test = (classify(features).sigmoid().numpy() for features in (data.val, data.test))
    if np.isnan(val).any():  # the loss became infinite during training
        return 0.0, 0.0
    val_result = metrics.evaluate(val, data.val_labels)
    return val_result["mAP"], metrics.evaluate(test, data.test_labels)["mAP"]


def as_absent(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy that treats unknown labels as absent."""
    return nn.functional.binary_cross_entropy_with_logits(logits, target.nan_to_num(0.0))


def class_by_class(data: Data, seed: int, C: float) -> tuple[float, float]:  # noqa: N803
    """One logistic regression per class, on known labels only."""
    weights, biases = [], []
    for j in range(data.train_labels.shape[1]):
        rows = data.train_labels[:, j] != 0
        model = LogisticRegression(C=C, max_iter=300, random_state=seed)
        model.fit(data.train[rows], data.train_labels[rows, j])
        weights.append(model.coef_[0])
        biases.append(model.intercept_[0])
    weight, bias = torch.tensor(np.array(weights)).float(), torch.tensor(np.array(biases)).float()
    return _mean_ap(lambda features: torch.from_numpy(features) @ weight.T + bias, data)


def with_partlabel(
    method: str, options: dict[str, Any], args: argparse.Namespace, test: LabelTable
) -> Callable[..., tuple[float, float]]:
    """A function that trains with partlabel, and returns the validation and test mAP."""

    def run(data: Data, seed: int, **choice: Any) -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder:
            trained = train(
                data.table,
                args.images,
                Path(folder) / "run",
                cache=args.cache,
                method=method,
                options=options,
                frozen="all",
                epochs=EPOCHS,
                seed=seed,
                reserve=0,
                **choice,
            )
            val_map = trained.record.best_val_mAP or 0.0
            scores = score(trained, test).scores
        return val_map, metrics.evaluate(scores, test)["mAP"]

    return run


def _alternatives(strategy: str, args: argparse.Namespace, test: LabelTable) -> dict[str, Any]:
    """The training function of each alternative by name, and the settings to choose from."""
    has_absent = strategy == "partial"
    functions: dict[str, Any] = {"PyTorch, unknown is absent": (_looped(as_absent), ADAM)}
    try:
        from mlcpl import losses as mlcpl_losses
    except ImportError:
        print("mlcpl is not installed; its rows are left out")
    else:
        negative, selective = (
            mlcpl_losses.PartialNegativeBCEWithLogitLoss(),
            mlcpl_losses.PartialSelectiveBCEWithLogitLoss(likelihood_topk=1, prior_threshold=None),
        )
        functions["mlcpl, PartialNegativeBCE"] = (_looped(negative), ADAM)
        functions["mlcpl, PartialSelectiveBCE"] = (_looped(selective), ADAM)
        if has_absent:
            functions["mlcpl, PartialBCE"] = (_looped(mlcpl_losses.PartialBCEWithLogitLoss()), ADAM)
    if has_absent:
        functions["scikit-learn, class by class"] = (class_by_class, LOGISTIC)
    for method, options in METHODS_AND_OPTIONS[strategy].items():
        choices = ADAM + (LBFGS if METHODS[method].in_one_batch else [])
        functions[f"partlabel, `{method}`"] = (with_partlabel(method, options, args, test), choices)
    return functions


def _looped(cost: Cost) -> Callable[..., tuple[float, float]]:
    """:func:`loop` with a loss."""
    return lambda data, seed, **choice: loop(cost, data, seed, **choice)


def _compare_metrics(labels: Numbers, scores: Numbers) -> None:
    """Print the mAP of mlcpl and of partlabel, and the time that each takes."""
    try:
        from mlcpl.metrics import partial_multilabel_average_precision as mlcpl_map
    except ImportError:
        return
    target = torch.from_numpy(np.where(labels == 0, np.nan, (labels + 1) / 2))
    slow, expected = timed(lambda: float(mlcpl_map(torch.from_numpy(scores), target)), 3)
    fast, result = timed(lambda: metrics.evaluate(scores, labels), 3)
    print(
        f"mAP of {len(scores):,} x {scores.shape[1]} scores: mlcpl {expected:.6f} in {slow:.3f} s, "
        f"partlabel {result['mAP']:.6f} in {fast:.3f} s, with all other metrics"
    )


def main() -> None:
    """Choose the settings on the first draw, then train on all draws."""
    parser = argparse.ArgumentParser(description="Compare partlabel with alternatives.")
    parser.add_argument("labels", type=Path, help="a label file without unknown labels")
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--test-split", default="test")
    parser.add_argument("--cache", type=Path)
    args = parser.parse_args()
    full = read_labels(args.labels)
    test = full.split(args.test_split)
    features, test_features = features_of(full.split(args.split), args), features_of(test, args)
    test_labels = test.dense()
    _compare_metrics(test_labels, np.random.default_rng(0).random(test_labels.shape))
    for strategy, proportion in (("single-positive", None), ("partial", 0.1)):
        rows = []
        draws = {
            seed: Data(
                features,
                simulate.hide(full.split(args.split), strategy, proportion, seed, "train", 0.2),
                test_features,
                test_labels,
            )
            for seed in SEEDS
        }
        for name, (fit, choices) in _alternatives(strategy, args, test).items():
            results = [fit(draws[SEEDS[0]], SEEDS[0], **choice) for choice in choices]
            choice = choices[int(np.argmax([val for val, _ in results]))]
            start = time.perf_counter()
            test_maps = [100 * fit(draws[seed], seed, **choice)[1] for seed in SEEDS]
            seconds = (time.perf_counter() - start) / len(SEEDS)
            mean, deviation = spread(test_maps)
            chosen = ", ".join(f"{key} {value}" for key, value in choice.items())
            rows.append([name, f"{mean:.2f} ± {deviation:.2f}", chosen, f"{seconds:.1f}"])
            print(" | ".join(rows[-1]), flush=True)
        share = "" if proportion is None else f" {proportion:.0%}"
        header = [f"{strategy}{share}", "test mAP", "chosen", "seconds per training"]
        print(f"\n{machine()}; {len(SEEDS)} draws\n\n{markdown(Sheet(header, rows))}")


if __name__ == "__main__":
    main()
