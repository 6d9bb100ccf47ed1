"""sr: conformance, and each row of the paper's ablation against a plain computation."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable, simulate
from partlabel.labels.formats import read_labels
from partlabel.learning.methods import Task
from partlabel.learning.methods.sr import SaliencyRegularization
from partlabel.models import Classifier
from partlabel.models.heads import Saliency
from partlabel.training.arguments import make_settings
from partlabel.training.run import load
from partlabel.training.train import train


class TestSaliency(MethodConformance):
    name = "sr"


class TestSaliencyAlone(MethodConformance):
    name = "sr"
    options: ClassVar[dict[str, Any]] = {"consistency": "none", "predict": "p"}


class TestFrozen(MethodConformance):
    """With views from a bank of cached maps."""

    name = "sr"
    tiny = MethodConformance.tiny | {"frozen": "all", "view_bank": 1}


ROWS: dict[str, dict[str, Any]] = {
    "S-BCE": {"saliency": False, "consistency": "none", "normalize": "classes"},
    "BN-BCE": {"saliency": False, "consistency": "none"},
    "per image": {"saliency": False, "consistency": "none", "normalize": "image"},
    "PL": {"saliency": False, "consistency": "pl"},
    "CR": {"saliency": False, "consistency": "plain"},
    "SR": {"consistency": "none"},
    "SR, CR": {"consistency": "plain"},
    "SR, CR with SR": {},
}


class Maps(torch.nn.Module):
    """A backbone whose inputs are feature maps already."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps


def by_hand(row: str, weak: Any, strong: Any, labels: Any) -> float:
    """The loss of a row of the ablation, cell by cell, with alpha 0.5, k 5 and tau 0.6."""

    def score(class_map: Any, *, salient: bool) -> float:
        top = np.sort(class_map.ravel())[-5:].mean()
        return float(1 / (1 + np.exp(-(class_map.mean() + (0.5 * top if salient else 0.0)))))

    def cost(p: float, label: int) -> float:
        return float(-np.log(p if label == 1 else 1 - p))

    salient, two_views = row.startswith("SR"), "CR" in row
    views = [weak, strong] if two_views else [weak]
    if row == "per image":
        return float(
            np.mean([by_hand("BN-BCE", weak[[i]], strong[[i]], labels[[i]]) for i in range(4)])
        )
    known = [
        cost(score(view[cell], salient=salient), labels[cell])
        for view in views
        for cell in np.ndindex(labels.shape)
        if labels[cell]
    ]
    loss = sum(known) / (labels.size if row == "S-BCE" else len(known))
    unknown = []
    if two_views or row == "PL":
        salient_consistency = row == "SR, CR with SR"
        for cell in np.ndindex(labels.shape):
            p = score(weak[cell], salient=salient_consistency)
            if labels[cell] == 0 and max(p, 1 - p) >= 0.6:
                q = score((strong if two_views else weak)[cell], salient=salient_consistency)
                unknown.append(cost(q, 1 if p > 0.5 else -1))
    return loss + (sum(unknown) / len(unknown) if unknown else 0.0)


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_the_ablation(row: str) -> None:
    rng = np.random.default_rng(1)
    weak, strong = rng.normal(0, 1, (2, 4, 3, 3, 4)) + rng.normal(0, 1, (2, 4, 3, 1, 1))
    labels = np.array([[1, 0, -1], [0, 1, 0], [-1, 0, 0], [0, -1, 1]])
    costs = {one: by_hand(one, weak, strong, labels) for one in ROWS}
    assert len({round(cost, 6) for cost in costs.values()}) == len(ROWS)  # no two rows are alike
    method = SaliencyRegularization(**ROWS[row])
    head = method.head(3, 3)
    assert isinstance(head, Saliency)
    assert head.classifier.bias is not None
    with torch.no_grad():  # so that class maps equal the features
        head.classifier.weight.copy_(torch.eye(3)[:, :, None, None])
        head.classifier.bias.zero_()
    model = Classifier(Maps(), head.double(), ["a", "b", "c"])  # type: ignore[arg-type]
    views = {"weak": torch.from_numpy(weak), "strong": torch.from_numpy(strong)}
    assert ("strong" in method.views) == ("CR" in row)
    batch = Batch(torch.arange(4), torch.from_numpy(labels), views)
    parts = method.loss(model.train(), batch)
    assert float(parts["loss"].detach()) == pytest.approx(costs[row])


def test_the_weak_view_gets_no_gradient_from_unknown_labels() -> None:
    """Its predictions are targets. Without known labels it gets no gradient at all."""
    method = SaliencyRegularization()
    model = Classifier(Maps(), method.head(3, 3), ["a", "b", "c"]).train()  # type: ignore[arg-type]
    views = {name: torch.randn(2, 3, 4, 4).mul(9).requires_grad_() for name in ("weak", "strong")}
    batch = Batch(torch.arange(2), torch.zeros(2, 3), views)
    method.loss(model, batch)["loss"].backward()  # type: ignore[no-untyped-call]
    assert views["strong"].grad is not None
    assert views["strong"].grad.abs().sum() > 0
    assert views["weak"].grad is not None
    assert not views["weak"].grad.any()


def test_one_backbone_pass_per_step() -> None:
    method, calls = SaliencyRegularization(), []
    backbone = Maps()
    backbone.register_forward_hook(lambda *_: calls.append(1))
    model = Classifier(backbone, method.head(3, 3), ["a", "b", "c"])  # type: ignore[arg-type]
    views = {name: torch.randn(2, 3, 4, 4) for name in ("weak", "strong")}
    method.loss(model, Batch(torch.arange(2), torch.zeros(2, 3), views))
    assert len(calls) == 1


def test_predictions_without_saliency() -> None:
    maps = torch.randn(2, 3, 4, 4)
    head = SaliencyRegularization(predict="p").head(3, 3)
    assert isinstance(head, Saliency)
    scores = head.class_maps(maps)
    torch.testing.assert_close(head.eval()(maps), scores.mean(dim=(2, 3)))
    assert not torch.allclose(head.train()(maps), scores.mean(dim=(2, 3)))


def test_full_labels_and_images_without_labels(scene: Path, tmp_path: Path) -> None:
    """The paper's other settings: all labels known, and some images without any known label."""
    table = read_labels(scene / "labels.csv")
    dense = simulate.hide(table, "dense", 0.5, split="train", holdout=0.2)
    for name, labels in (("full", table), ("half", dense)):
        run = train(
            labels, scene / "images", tmp_path / name, method="sr", **MethodConformance.tiny
        )
        assert run.record.finished
    assert (dense.split("train").counts().unknown > 0).all()


@pytest.mark.parametrize("method", ["em", "em-apl", "partial-bce", "bce"])
def test_other_methods_with_this_head(method: str, scene: Path, tmp_path: Path) -> None:
    options = {"warmup": 1} if method == "em-apl" else {}
    arguments: dict[str, Any] = {"method": method, "options": options, **MethodConformance.tiny}
    arguments |= {"head": "saliency", "head_options": {"k": 2}}
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **arguments)
    head = load(run.folder).head
    assert isinstance(head, Saliency)
    assert head.k == 2


def test_a_warning_if_only_present_labels_are_known() -> None:
    labels = LabelTable(["a"], ["x"], [[1]])
    with pytest.warns(PartlabelWarning, match="sr learns that everything is present"):
        SaliencyRegularization().prepare(Task(labels, labels, 1))


def test_a_view_bank_needs_cached_features() -> None:
    with pytest.raises(InputError, match="--view-bank"):
        make_settings(method="sr", view_bank=2)
