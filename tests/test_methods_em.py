"""EM, EM + APL and entropy minimisation."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel.base.errors import FileError, InputError
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning.losses import entropy_maximization
from partlabel.learning.methods import Task
from partlabel.learning.methods.em import automatic_alpha
from partlabel.learning.methods.em_apl import EmApl
from partlabel.training.arguments import make_settings
from partlabel.training.train import train
from partlabel.training.trainer import Trainer


class TestEntropyMaximization(MethodConformance):
    name = "em"


class TestAutomaticAlpha(MethodConformance):
    name = "em"
    options = {"alpha": "auto"}  # noqa: RUF012


class TestEntropyMinimization(MethodConformance):
    name = "entmin"


class TestEmApl(MethodConformance):
    name = "em-apl"
    options = {"warmup": 1}  # noqa: RUF012


class TestAblations(MethodConformance):
    name = "em-apl"
    options = {"warmup": 1, "hard": True, "beta": 1.0, "theta": 0.1, "theta_positive": 0.1}  # noqa: RUF012


def table(labels: Any) -> LabelTable:
    labels = np.asarray(labels)
    names = [f"c{j}" for j in range(labels.shape[1])]
    return LabelTable([f"{i}" for i in range(len(labels))], names, labels)


@pytest.mark.parametrize(
    ("positives", "known", "alpha"),
    [(1.46, 1.0, 0.2), (2.94, 1.0, 0.1), (1.89, 1.0, 0.1), (31.4, 1.0, 0.01), (1.46, 0.146, 0.01)],
)
def test_automatic_alpha_is_close_to_that_of_the_paper(
    positives: float, known: float, alpha: float
) -> None:
    """VOC, COCO, NUS-WIDE, CUB; and VOC with 10% of all labels, where 0.01 is best."""
    rng = np.random.default_rng(0)
    classes, images = 320, 400
    validation = np.where(rng.random((images, classes)) < positives / classes, 1, -1)
    labels = np.zeros((images, classes), dtype=np.int8)
    labels[rng.random(images) < known, 0] = 1
    automatic = automatic_alpha(table(labels), table(validation))
    assert alpha / 3.5 < automatic < 1.5 * alpha


def test_automatic_alpha_has_its_minimum_at_a_logit_of_10() -> None:
    """The gradient for similar images, two of five with a known label."""
    labels, validation = table([[1], [0], [0], [1], [0]]), table([[1], [1]])
    with pytest.raises(InputError, match="alpha"):
        automatic_alpha(labels, validation)  # no label is known to be absent
    alpha = automatic_alpha(labels, table([[1, -1], [-1, 1]]))
    slopes = []
    for value in (9.9, 10.1):
        logit = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        dense = torch.from_numpy(labels.dense())
        entropy_maximization(logit.expand(5, 1), dense, alpha).backward()  # type: ignore[no-untyped-call]
        assert logit.grad is not None
        slopes.append(float(logit.grad))
    assert slopes[0] < 0 < slopes[1]


def predict_with(scores: Any) -> Any:
    """A ``predict`` function that yields these scores in two batches."""
    logits = torch.logit(torch.tensor(scores, dtype=torch.float64))

    def predict(forward: Any = None) -> Any:
        yield np.array([2, 0]), logits[[2, 0]]
        yield np.array([1, 3]), logits[[1, 3]]

    return predict


def test_equation_8_by_hand() -> None:
    labels = table([[1, 0], [0, -1], [0, 0], [0, 1]])
    method = EmApl(alpha=0.5, beta=0.25, theta=2 / 3, warmup=1)
    method.prepare(Task(labels, labels, epochs=2))
    scores = [[0.5, 0.2], [0.3, 0.5], [0.1, 0.6], [0.7, 0.5]]
    assert method.before_epoch(0, predict_with(scores)) == {}  # warm-up
    # two of three unknown labels of the first class, one of two (rounded) of the second class
    assert method.before_epoch(1, predict_with(scores)) == {"pseudo_labels": 3.0}
    logits = torch.tensor([[0.3, -0.2], [1.0, 2.0], [-1.0, 0.5], [0.1, 0.4]], dtype=torch.float64)
    rows = torch.tensor([3, 2, 1, 0])
    dense = torch.from_numpy(labels.dense())[rows].float()
    computed = method.cost(logits, Batch(rows, dense, {}))

    def entropy(p: float) -> float:
        return float(-p * np.log(p) - (1 - p) * np.log(1 - p))

    def soft(p: float, target: float) -> float:
        return float(-target * np.log(p) - (1 - target) * np.log(1 - p))

    p = torch.sigmoid(logits).numpy()
    cost = -0.5 * entropy(p[0, 0]) - np.log(p[0, 1])  # image 3: stays unknown; present
    cost += 0.25 * soft(p[1, 0], 0.1) - 0.5 * entropy(p[1, 1])  # image 2: soft at .1; unknown
    cost += 0.25 * soft(p[2, 0], 0.3) - np.log(1 - p[2, 1])  # image 1: soft at .3; absent
    cost += -np.log(p[3, 0]) + 0.25 * soft(p[3, 1], 0.2)  # image 0: present; soft at .2
    assert float(computed) == pytest.approx(cost / 8, rel=1e-6)


def test_ablations_give_other_pseudo_labels() -> None:
    labels = table(np.zeros((4, 1)))
    scores = [[0.2], [0.9], [0.4], [0.6]]
    for options, signs, values in (
        ({"theta": 0.25}, [-1, 0, 0, 0], [0.2]),
        ({"theta": 0.25, "hard": True}, [-1, 0, 0, 0], [0.0]),
        ({"theta": 0.5, "theta_positive": 0.25}, [-1, 1, -1, 0], [0.2, 0.9, 0.4]),
    ):
        method = EmApl(warmup=0, **options)  # type: ignore[arg-type]
        method.prepare(Task(labels, labels, epochs=1))
        method.before_epoch(0, predict_with(scores))
        given_signs, given_values = method.pseudo.memory_of(1).read(np.arange(4), 1)
        assert given_signs[:, 0].tolist() == signs
        assert given_values[given_signs != 0] == pytest.approx(values)


def test_early_stopping_makes_fewer_of_the_planned_rounds(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds have the size that was planned for all epochs, and those not reached are left out."""
    values = iter([0.5, 0.6, 0.4, 0.3, 0.9, 0.9, 0.9, 0.9])
    arguments = {**MethodConformance.tiny, "method": "em-apl", "options": {"warmup": 1}}
    whole = train(scene / "partial.csv", scene / "images", tmp_path / "whole",
                  **(arguments | {"epochs": 8}))  # fmt: skip
    monkeypatch.setattr(Trainer, "_validate", lambda self, model: next(values))
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run",
                **(arguments | {"epochs": 8, "patience": 2}))  # fmt: skip
    assert len(run.history()) == 4
    assert run.record.best_epoch == 2
    sizes = [[line.get("pseudo_labels", 0) for line in one.history()] for one in (whole, run)]
    unknown = whole.selection.training.counts().unknown
    planned = [np.rint(0.9 * unknown * number / 7).sum() for number in range(8)]
    assert np.cumsum(sizes[0]).tolist() == planned
    assert sizes[1] == sizes[0][:4]
    assert sum(sizes[1]) < sum(sizes[0]) / 2


def test_no_epoch_for_pseudo_labels_is_an_error(scene: Path, tmp_path: Path) -> None:
    """The corrected call can then use the same folder."""
    arguments = {"method": "em-apl", **MethodConformance.tiny}
    with pytest.raises(InputError, match="warm-up"):
        train(scene / "partial.csv", scene / "images", tmp_path / "run", **arguments)
    train(
        scene / "partial.csv",
        scene / "images",
        tmp_path / "run",
        options={"warmup": 1},
        **arguments,
    )


def test_a_run_without_its_pseudo_labels_cannot_be_resumed(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from partlabel.training import trainer

    arguments = {"method": "em-apl", "options": {"warmup": 0}, **MethodConformance.tiny}
    original = trainer.Trainer._save

    def stop_in_the_second_epoch(self: trainer.Trainer, *, force: bool = False) -> None:
        is_stop = (self.progress.epoch, self.progress.step) == (1, 1)
        original(self, force=force or is_stop)
        if is_stop:
            raise KeyError("stop")

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_save", stop_in_the_second_epoch)
        with pytest.raises(KeyError):
            train(scene / "partial.csv", scene / "images", tmp_path / "run", **arguments)
    shutil.rmtree(tmp_path / "run" / "memory")
    with pytest.raises(FileError, match="pseudo-labels are missing"):
        train(scene / "partial.csv", scene / "images", tmp_path / "run", resume=True, **arguments)
    assert not (tmp_path / "run" / "memory").exists()


@pytest.mark.parametrize(
    ("method", "option", "value"),
    [
        ("em", "alpha", -0.2),
        ("em", "alpha", "often"),
        ("em-apl", "theta", 90),
        ("em-apl", "theta_positive", 0.2),  # with theta 0.9
        ("em-apl", "beta", -1),
        ("em-apl", "warmup", -1),
        ("em-apl", "hard", "maybe"),
        ("epr", "expected", 0),
        ("ls", "epsilon", 2),
        ("n-ls", "epsilon", -1),
        ("asl", "margin", 1.5),
        ("asl", "gamma_negative", -2),
        ("focal", "alpha", 3),
        ("dw", "weight", -1),
        ("en-scl", "momentum", 1.5),
        ("role", "estimator_lr", -1),
        ("role-li", "warmup_lr", 0),
    ],
)
def test_settings_out_of_range(method: str, option: str, value: Any) -> None:
    with pytest.raises(InputError, match="theta" if "theta" in option else option):
        make_settings(method=method, options={option: value})
