"""CFT: a base method, then each class apart on its known labels."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from conformance import MethodConformance
from partlabel import heads, train
from partlabel.base.errors import InputError
from partlabel.labels import LabelTable
from partlabel.learning.method import Task
from partlabel.learning.methods.cft import BASES, CategoryFineTuning, known_cost
from partlabel.models import Classifier
from partlabel.models.features.embeddings import GivenFeatures
from partlabel.training.arguments import make_settings
from partlabel.training.best_epoch import check_rows, take_rows
from partlabel.training.devices import make_fabric
from partlabel.training.examples import Examples
from partlabel.training.in_memory import SilentWatcher
from partlabel.training.trainer import Trainer
from process_cases import CHANNELS, MadeUp

TRAIN, VAL, CLASSES = 60, 30, 4
FROZEN = MethodConformance.tiny | {"epochs": 1, "frozen": "all", "size": 64}


class TestOnAn(MethodConformance):
    name = "cft"
    options: ClassVar[dict[str, Any]] = {"steps": 1, "strongest": 0.1}
    tiny = FROZEN


class TestOnEm(MethodConformance):
    name = "cft"
    options: ClassVar[dict[str, Any]] = {"base": "em", "steps": 1, "strongest": 0.1}
    tiny = FROZEN


def make_table() -> LabelTable:
    """Classes that depend on a feature; no training label of the last class is absent."""
    inputs = MadeUp((CHANNELS, 2, 2), images=False)
    (maps,) = inputs.batches([np.arange(TRAIN + VAL)], ("weak",))
    features = maps.views["weak"].mean(dim=(2, 3)).numpy()[:, :CLASSES]
    draws = np.random.default_rng(0)
    noisy = features + draws.normal(0, 0.3, features.shape)
    truth = np.where(noisy > np.quantile(noisy, 0.6, axis=0), 1, -1)
    train_part = truth[:TRAIN]
    train_part[draws.random((TRAIN, CLASSES)) < 0.5] = 0
    train_part[:, -1] = np.maximum(train_part[:, -1], 0)
    return LabelTable([f"i{n}" for n in range(len(truth))], list("abcd"), truth)


def make_trainer(head: str = "linear", keep: str = "best", **options: Any) -> Trainer:
    """A training in double precision, on feature maps that are made up."""
    settings = make_settings(
        method="cft", options=options, frozen="all", keep=keep, epochs=3, head=head
    )
    torch.manual_seed(0)
    method, table = CategoryFineTuning(**settings.options), make_table()
    model = Classifier(
        GivenFeatures(CHANNELS), heads.HEADS[head](CHANNELS, CLASSES), list(table.classes)
    )
    train_rows, val_rows = np.arange(TRAIN), np.arange(TRAIN, TRAIN + VAL)
    method.prepare(Task(table.subset(train_rows), table.subset(val_rows), settings.epochs))
    inputs = MadeUp((CHANNELS, 2, 2), images=False)
    return Trainer(
        model.double(),
        method,
        Examples(table, inputs, train_rows),
        Examples(table, inputs, val_rows),
        settings,
        None,
        SilentWatcher(),
        fabric=make_fabric("cpu"),
    )


def test_the_second_stage_solves_each_class_exactly() -> None:
    """Compared with scipy, which solves one class at a time; a class of one sign does not move."""
    pull = 0.05
    trainer = make_trainer(keep="last", strongest=pull, weakest=pull, steps=4)
    trainer.fit()
    assert isinstance(trainer.method, CategoryFineTuning)
    first = trainer.method.anchor.weights
    table, inputs = make_table(), MadeUp((CHANNELS, 2, 2), images=False)
    labels = table.dense()[:TRAIN].astype(float)
    (maps,) = inputs.batches([np.arange(TRAIN)], ("weak",))
    features = np.column_stack([maps.views["weak"].mean(dim=(2, 3)).numpy(), np.ones(TRAIN)])
    moved = []
    for number in range(CLASSES):
        known = labels[:, number] != 0
        start = np.append(
            first["head.classifier.weight"][number], first["head.classifier.bias"][number]
        )

        def cost(weights: NDArray[Any], number: int = number, known: Any = known) -> float:
            margins = labels[known, number] * (features[known] @ weights)
            distance = ((weights - start) ** 2).sum()  # noqa: B023
            return float(np.logaddexp(0, -margins).mean() + pull / 2 * distance)

        best = minimize(cost, start, method="BFGS", options={"gtol": 1e-9}).x
        if number == CLASSES - 1:
            best = start
        head = trainer.model.head
        ours = np.append(
            head.classifier.weight[number].detach(),  # type: ignore[index, union-attr]
            head.classifier.bias[number].detach(),  # type: ignore[index, union-attr]
        )
        np.testing.assert_allclose(ours, best, atol=2e-5)
        moved.append(float(np.abs(ours - start).max()))
    assert min(moved[:-1]) > 0.05
    assert moved[-1] < 1e-9


@pytest.mark.parametrize("head", ["linear", "saliency"])
def test_each_class_keeps_its_best_epoch(head: str) -> None:
    trainer, scores = make_trainer(head, strongest=1.0, weakest=1e-4, steps=5), []
    score_classes = trainer.best.score_classes

    def record(model: Classifier) -> NDArray[np.float64]:
        scores.append(score_classes(model))
        return scores[-1]

    trainer.best.score_classes = record
    progress = trainer.fit()
    assert len(scores) == 1 + 5  # of the first stage, and of each pull
    best = np.max(scores, axis=0)
    assert len(set(np.argmax(scores, axis=0))) > 1  # not all classes in the same epoch
    np.testing.assert_allclose(score_classes(trainer.model), best, rtol=1e-9)
    assert progress.best == pytest.approx(best.mean())
    assert progress.best >= max(line["val_mAP"] for line in progress.history[3:])
    pulls = [line["pull"] for line in progress.history[3:]]
    assert pulls == pytest.approx([10 ** (-n) for n in range(5)])


def test_the_cost_of_known_labels() -> None:
    draws = np.random.default_rng(1)
    logits, labels = draws.normal(size=(5, 3)), draws.choice([-1, 0, 1], size=(5, 3))
    weights = np.array([2.0, 0.0, 0.5])
    expected = sum(
        weights[j] * np.log1p(np.exp(-labels[i, j] * logits[i, j]))
        for i, j in zip(*np.nonzero(labels), strict=True)
    )
    ours = known_cost(*map(torch.from_numpy, (logits, labels, weights)))
    assert float(ours) == pytest.approx(expected / 15)


def test_the_first_stage_is_that_of_the_base() -> None:
    for base in BASES:
        method = CategoryFineTuning(base=base)
        table = make_table()
        rows = np.arange(TRAIN), np.arange(TRAIN, TRAIN + VAL)
        method.prepare(Task(table.subset(rows[0]), table.subset(rows[1]), 3))
        assert method.figures().keys() >= method.base.figures().keys()
        assert method.is_settled(0) == method.base.is_settled(0)


def test_rows_of_classes_from_two_epochs() -> None:
    def state(value: float) -> dict[str, torch.Tensor]:
        return {
            "head.classifier.weight": torch.full((3, 2, 1, 1), value),
            "head.classifier.bias": torch.full((3,), value),
            "backbone.upper.weight": torch.full((3,), value),
        }

    mixed = take_rows(state(0), state(1), np.array([False, False, True]))
    assert mixed["head.classifier.weight"][:, 0, 0, 0].tolist() == [0, 0, 1]
    assert mixed["head.classifier.bias"].tolist() == [0, 0, 1]
    assert mixed["backbone.upper.weight"].tolist() == [0, 0, 0]


def test_what_cannot_be_tuned_by_class(scene: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="linear, weldon, saliency, boosted"):
        check_rows(heads.LabelDecoder(8, 3, width=16))
    with pytest.raises(InputError, match="weakest"):
        CategoryFineTuning(strongest=0.1, weakest=1.0)
    files = scene / "labels.csv", scene / "images"
    network: dict[str, Any] = {"backbone": "test_efficientnet", "weights": "none", "size": 64}
    with pytest.raises(InputError, match="--frozen"):
        train(*files, tmp_path / "r", method="cft", frozen="lower", **network)
    with pytest.raises(InputError, match="holdout"):
        train(*files, tmp_path / "r", method="cft", val=0.0, **network)
