"""L-BFGS reaches the minimum that scikit-learn finds; which settings cannot be used with it."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from partlabel.base.choices import Optimizer, Schedule
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.labels.formats import read_labels
from partlabel.learning.methods import METHODS
from partlabel.models.prediction import iterate_logits
from partlabel.training.arguments import make_settings
from partlabel.training.checkpoint import load_state, same
from partlabel.training.image_files import locate_all
from partlabel.training.inputs import make_inputs
from partlabel.training.optimizers import OPTIMIZERS, WholeBatch
from partlabel.training.run import Run
from partlabel.training.schedule import SCHEDULES
from partlabel.training.train import train

DECAY = 1e-5


def fit(scene: Path, out: Path, **changes: Any) -> Run:
    return train(
        scene / "partial.csv",
        scene / "images",
        out,
        cache=out.parent / "cache",
        **{
            "method": "bce",
            "backbone": "test_efficientnet",
            "weights": "none",
            "size": 64,
            "frozen": "all",
            "optimizer": "lbfgs",
            "weight_decay": DECAY,
            "keep": "last",
            **changes,
        },
    )


def test_the_head_equals_that_of_scikit_learn(scene: Path, tmp_path: Path) -> None:
    run = fit(scene, tmp_path / "run", epochs=30)
    model = run.classifier()
    table = read_labels(scene / "partial.csv").split("train")
    settings, paths = run.settings, locate_all(table, scene / "images")
    inputs = make_inputs(model, table, paths, settings, run.execution, pytest.fail)
    predictions = iterate_logits(
        model,
        inputs,
        np.arange(len(table)),
        len(table),
        forward=lambda model, inputs: model.backbone(inputs).mean(dim=(2, 3)),
    )
    rows, means = next(predictions)
    features = means.numpy()
    labels = table.dense(rows)
    assert 0 < np.count_nonzero(labels == 0) < labels.size
    head = model.head.classifier
    assert isinstance(head, nn.Linear)
    for j in range(labels.shape[1]):
        known = labels[:, j] != 0
        # our cost is divided by the number of all cells, that of scikit-learn is a sum
        exact = LogisticRegression(C=1 / (DECAY * labels.size), tol=1e-9, max_iter=100_000)
        exact.fit(features[known], labels[known, j])
        weight, bias = head.weight[j].detach().numpy(), head.bias[j].item()
        logits, expected = features @ weight + bias, exact.decision_function(features)
        assert np.ptp(expected) > 1  # the classifier is not trivial
        np.testing.assert_allclose(logits, expected, rtol=0, atol=0.01 * np.ptp(expected))


def test_weight_decay_is_part_of_the_cost() -> None:
    """(w - 1)^2 + 6/2 w^2 has its minimum at 1/4; without decay the minimum is at 1."""
    weight, bias = (nn.Parameter(torch.zeros(1)) for _ in range(2))
    groups: list[dict[str, Any]] = [
        {"params": [weight], "lr": 1.0, "weight_decay": 6.0},
        {"params": [bias], "lr": 1.0, "weight_decay": 0.0},
    ]
    optimizer = WholeBatch(groups, lr=1.0)

    def closure() -> float:
        optimizer.zero_grad()
        cost = (weight - 1).square().sum() + (bias - 1).square().sum()
        cost.backward()  # type: ignore[no-untyped-call]
        return float(cost.detach())

    assert optimizer.step(closure) == pytest.approx(2.0)  # the cost before the step
    assert weight.item() == pytest.approx(0.25, abs=1e-4)
    assert bias.item() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.exact
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "em-apl", "options": {"warmup": 1}},  # pseudo-labels change the cost
        {
            "method": "imcl",
            "options": {"solve": True},
            "optimizer": "adam",
            "batch": 8,
            "schedule": "cosine",  # of the second stage
            "lr_warmup": 0.5,
        },
    ],
)
def test_a_run_that_was_stopped_ends_in_the_same_bits(
    settings: dict[str, Any], scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from partlabel.training import trainer

    whole = fit(scene, tmp_path / "whole", epochs=4, **settings)
    original, stops = trainer.Trainer._save, [1, 2]

    def save_and_stop(self: trainer.Trainer, *, force: bool = False) -> None:
        is_stop = bool(stops) and self.progress.epoch == stops[0] and self.progress.step == 0
        original(self, force=force or is_stop)
        if is_stop:
            stops.pop(0)
            raise KeyError("stop")

    monkeypatch.setattr(trainer.Trainer, "_save", save_and_stop)
    for _ in range(2):
        with pytest.raises(KeyError, match="stop"):
            fit(scene, tmp_path / "cut", epochs=4, resume=True, **settings)
    cut = fit(scene, tmp_path / "cut", epochs=4, resume=True, **settings)
    states = [load_state(run.checkpoint) for run in (whole, cut)]
    for part in ("model", "best", "optimizer", "method"):
        assert same(*(state[part] for state in states)), part
    assert states[0]["optimizer"]["state"], "the optimiser has a state"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frozen": "nothing"}, "--frozen"),
        ({"frozen": "lower"}, "--frozen"),
        ({"batch": 8}, "--batch has no effect: lbfgs takes one step per epoch"),
        ({"schedule": "cosine"}, "--schedule has no effect: lbfgs"),
        ({"lr_warmup": 0.1}, "--lr-warmup has no effect: lbfgs"),
        ({"ema": 0.9}, "--ema has no effect: lbfgs"),
        ({"clip": 1.0}, "--clip has no effect: lbfgs finds"),
        ({"method": "imcl"}, "cannot take all images at once"),
        ({"method": "role"}, "cannot take all images at once"),
        ({"method": "lac"}, "cannot take all images at once"),
    ],
)
def test_settings_without_effect_on_lbfgs_are_errors(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_settings(**{"method": "bce", "optimizer": "lbfgs", "frozen": "all", **change})


def test_a_warm_up_by_lbfgs() -> None:
    arguments: dict[str, Any] = {"method": "imcl", "options": {"solve": True}, "epochs": 6}
    settings = make_settings(**arguments, frozen="all", lr=3e-4, batch=16)
    first, last = METHODS["imcl"](**settings.options).stages(6, None)
    assert (first.optimizer, first.lr, first.epochs) == ("lbfgs", 1.0, 3)
    assert (last.optimizer, last.lr) == (None, None)
    with pytest.raises(InputError, match="--frozen"):
        make_settings(**arguments)
    with pytest.raises(InputError, match="without a warmup"):
        make_settings(method="imcl", options={"solve": True, "warmup": 0}, frozen="all")


def test_the_default_learning_rate_of_lbfgs_is_one() -> None:
    solved: dict[str, Any] = {"method": "bce", "optimizer": "lbfgs", "frozen": "all"}
    assert make_settings(**solved, weight_decay=1e-3).lr == 1
    assert make_settings(**solved, weight_decay=1e-3, lr=0.5).lr == 0.5
    with pytest.warns(PartlabelWarning, match="without --weight-decay it memorises"):
        make_settings(**solved)
    assert make_settings(method="bce", frozen="all").lr == 1e-3


def test_every_optimiser_and_schedule_that_can_be_chosen_is_there() -> None:
    assert list(OPTIMIZERS) == list(get_args(Optimizer))
    assert list(SCHEDULES) == list(get_args(Schedule))
