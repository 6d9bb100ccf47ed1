"""The classes that a network was pretrained on, as further features."""

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import partlabel
from partlabel.base.errors import InputError
from partlabel.images.batches import Inputs, Rows
from partlabel.models import Backbone, Reduction
from partlabel.models.backbones import count_own_classes, own_classifier
from partlabel.models.heads import Ensemble, Linear
from partlabel.models.own_classes import OwnClasses
from partlabel.training.auto.material import fit_reduction
from partlabel.training.run import Run

FAMILIES = ("test_efficientnet", "test_resnet", "test_convnext", "test_vit", "test_vit2")
POWER, WEIGHT = 0.5, 3.0


def whole_network(name: str, folder: Path) -> tuple[nn.Module, str]:
    """A network with a random classifier, and the file of its weights."""
    torch.manual_seed(1)
    network = timm.create_model(name).eval()
    with torch.no_grad():
        network.get_classifier().weight.normal_(0, 1)  # type: ignore[operator]
    path = folder / f"{name}.safetensors"
    save_file(network.state_dict(), path)
    return network, str(path)


def random_own(features: int = 6, classes: int = 4, **options: Any) -> tuple[OwnClasses, nn.Linear]:
    torch.manual_seed(2)
    layer = nn.Linear(features, classes)
    return OwnClasses(features, classes, WEIGHT, POWER, **options).use(layer), layer


def by_hand(features: Tensor, layer: nn.Linear) -> np.ndarray[Any, Any]:
    """Square roots of features [n, D] and of probabilities, in NumPy."""
    x = features.double().numpy()
    logits = x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = powers / powers.sum(axis=1, keepdims=True)
    return np.hstack([np.sign(x) * np.abs(x) ** POWER, WEIGHT * probabilities**POWER])


def test_the_mean_is_that_of_the_whole_image() -> None:
    own, layer = random_own()
    maps = torch.randn(3, 6, 5, 5)
    expected = by_hand(maps.mean(dim=(2, 3)), layer)
    np.testing.assert_allclose(own(maps).mean(dim=(2, 3)).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("at_positions", [False, True])
def test_features_of_0_stay_0_in_half_precision(at_positions: bool) -> None:
    own, _ = random_own(at_positions=at_positions)
    maps = torch.randn(3, 6, 5, 5).relu()
    maps[:, 2] = 0
    with torch.autocast("cpu", dtype=torch.float16):
        found = own(maps.half())
    torch.testing.assert_close(found, own(maps), atol=1e-2, rtol=1e-2)


def test_each_position_has_its_own_probabilities() -> None:
    own, layer = random_own(at_positions=True)
    maps = torch.randn(3, 6, 5, 5)
    rows = maps.movedim(1, -1).reshape(-1, 6)
    found = own(maps).movedim(1, -1).reshape(len(rows), -1).numpy()
    np.testing.assert_allclose(found, by_hand(rows, layer), atol=1e-5)


def test_the_weight_gives_probabilities_a_share_of_the_deviation() -> None:
    own, _ = random_own(at_positions=True)
    batches = [torch.randn(8, 6, 5, 5) for _ in range(3)]
    own.balance(batches, 0.5)
    rows = torch.cat([own(maps).movedim(1, -1).flatten(0, 2) for maps in batches])
    features, classes = rows.var(dim=0, correction=0).tensor_split([6])
    assert float((classes.sum() / features.sum()) ** 0.5) == pytest.approx(0.5, rel=0.01)


def test_the_weight_is_finite_without_any_deviation() -> None:
    own, _ = random_own()
    own.balance([torch.ones(1, 6, 1, 1) / 3], 0.5)
    assert own.weight > 0


def test_auto_reads_maps_a_batch_at_a_time() -> None:
    """Maps of a thousand images of a large network would not fit into the memory."""
    alive: list[weakref.ref[Tensor]] = []
    most = 0

    class Source:
        def batches(self, rows: list[Rows], *rest: object, **more: object) -> Iterator[Inputs]:
            nonlocal most
            for part in rows:
                maps = torch.rand(len(part), 6, 2, 2)
                alive.append(weakref.ref(maps))
                inputs = Inputs(part, {"clean": maps})
                del maps
                most = max(most, sum(ref() is not None for ref in alive))
                yield inputs
                del inputs

    _, layer = random_own()
    reduction = fit_reduction(Source(), np.arange(640), 640, layer)
    assert reduction is not None
    assert reduction.own is not None
    assert most <= 3  # of ten


def test_components_are_found_of_features_and_probabilities() -> None:
    own, layer = random_own(at_positions=True)
    reduction = Reduction(6, 10, POWER, own)
    maps = [torch.randn(8, 6, 5, 5) for _ in range(4)]
    reduction.fit(maps)
    rows = np.vstack([by_hand(part.movedim(1, -1).reshape(-1, 6), layer) for part in maps])
    values = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
    found = torch.cat([reduction(part).movedim(1, -1).reshape(-1, 10) for part in maps])
    np.testing.assert_allclose(found.var(dim=0, correction=0).numpy(), values, atol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_classifier_gives_the_logits_of_the_network(name: str, tmp_path: Path) -> None:
    network, path = whole_network(name, tmp_path)
    backbone = Backbone(name, path, "all", 160).eval()
    layer = own_classifier(backbone, path)
    assert layer is not None
    assert layer.out_features == count_own_classes(name)
    images = torch.randint(0, 256, (2, 3, 160, 160), dtype=torch.uint8)
    with torch.no_grad():
        logits = network((images - backbone.mean) / backbone.std)
        found = layer(backbone.lower_maps(images).mean(dim=(2, 3)))
    torch.testing.assert_close(found, logits, atol=1e-3, rtol=1e-3)


def test_the_packaged_network_recognises_its_own_classes() -> None:
    backbone = Backbone("tf_efficientnet_lite0", "imagenet", "all", 64).eval()
    layer = own_classifier(backbone, "imagenet")
    assert layer is not None
    assert layer.weight.shape == (1000, 1280)


def test_networks_without_a_classifier_of_their_own(tmp_path: Path) -> None:
    assert count_own_classes("vit_small_patch14_dinov2.lvd142m") == 0
    assert count_own_classes("test_vit+test_efficientnet") == 0
    network, _ = whole_network("test_efficientnet", tmp_path)
    state = {k: v for k, v in network.state_dict().items() if not k.startswith("classifier")}
    save_file(state, tmp_path / "bare.safetensors")
    for weights in ("none", str(tmp_path / "bare.safetensors")):
        assert own_classifier(Backbone("test_efficientnet", weights, "all", 64), weights) is None


@pytest.mark.parametrize(
    "name",
    [
        "vit_base_patch16_clip_224.openai",
        "convnext_base.clip_laion2b",
        "eva02_base_patch16_clip_224.merged2b",
        "vit_large_patch14_clip_224.openai",
    ],
)
def test_an_embedding_of_images_and_texts_has_no_classes(name: str) -> None:
    assert timm.get_pretrained_cfg(name).num_classes > 0  # type: ignore[union-attr]
    assert count_own_classes(name) == 0


def settings_for(path: str) -> dict[str, Any]:
    return {"backbone": "test_efficientnet", "weights": path, "size": 64, "workers": 0}


@pytest.mark.parametrize("reduce", [None, 32])
def test_a_method_trains_on_them(scene: Path, tmp_path: Path, reduce: int | None) -> None:
    """The scores of a run that is loaded are those from cached features and from images."""
    _, path = whole_network("test_efficientnet", tmp_path)
    partlabel.train(
        scene / "partial.csv",
        images=scene / "images",
        out=tmp_path / "run",
        method="bce",
        optimizer="lbfgs",
        weight_decay=1e-3,
        frozen=True,
        own_classes=2.0,
        power=0.5,
        reduce=reduce,
        cache=tmp_path / "cache",
        epochs=3,
        **settings_for(path),
    )
    Path(path).unlink()  # the run has what it needs
    model = partlabel.load(tmp_path / "run")
    width = reduce or count_own_classes("test_efficientnet") + 256
    assert model.backbone.channels == width
    files = sorted((scene / "images").iterdir())[:6]
    alone = np.vstack([model.predict([file]) for file in files])
    table = partlabel.predict(
        tmp_path / "run", scene / "images", threshold=0.5, cache=tmp_path / "cache"
    )
    cells = table.cells
    assert cells.scores is not None
    scores = cells.scores.reshape(table.shape)  # every label has one
    rows = [[Path(i).name for i in table.ids].index(file.name) for file in files]
    np.testing.assert_allclose(scores[rows], alone, atol=2e-3)


def test_what_they_cannot_be_used_with(scene: Path, tmp_path: Path) -> None:
    _, path = whole_network("test_efficientnet", tmp_path)
    common: dict[str, Any] = {"images": scene / "images", "method": "bce", "own_classes": 1.0}
    labels = scene / "partial.csv"
    with pytest.raises(InputError, match="own-classes has no effect without --frozen"):
        partlabel.train(labels, out=tmp_path / "a", **common, **settings_for(path))
    with pytest.raises(InputError, match="has no classifier for classes of its own"):
        partlabel.train(labels, out=tmp_path / "b", frozen=True, **common, **settings_for("none"))


def test_auto_uses_them_and_its_run_needs_no_weight_file(scene: Path, tmp_path: Path) -> None:
    _, path = whole_network("test_efficientnet", tmp_path)
    partlabel.train(
        scene / "partial.csv",
        images=scene / "images",
        out=tmp_path / "run",
        budget="12",
        folds=2,
        cache=tmp_path / "cache",
        **settings_for(path),
    )
    Path(path).unlink()
    members = Run(tmp_path / "run").record.members
    assert any(member.settings.own_classes is not None for member in members)
    head = partlabel.load(tmp_path / "run").head
    assert isinstance(head, Ensemble)
    stages = [branch.reduction for branch in head.branches]
    owns = [
        stage if isinstance(stage, OwnClasses) else getattr(stage, "own", None) for stage in stages
    ]
    assert any(own is not None and bool(own.matrix.abs().sum() > 0) for own in owns)
    lines = [part for branch in head.branches for part in branch.heads]  # type: ignore[union-attr]
    assert all(isinstance(part, Linear) or hasattr(part, "class_maps") for part in lines)
