"""Backbones: ImageNet weights, splitting into two parts, reduction, and error messages."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import sklearn
import timm
import torch

from partlabel.base.choices import DEFAULT_BACKBONE
from partlabel.base.errors import InputError
from partlabel.images.pictures import read_picture
from partlabel.models import Backbone, Classifier, Frozen, Reduction
from partlabel.models.backbones import packaged
from partlabel.models.backbones.packaged import load_packaged
from partlabel.models.heads import Linear

PHOTOS = {
    Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg": 652,  # military uniform
    Path(sklearn.__file__).parent / "datasets" / "images" / "flower.jpg": 985,  # daisy
}


def test_photos_get_their_imagenet_classes() -> None:
    name = "tf_efficientnet_lite0"
    model = timm.create_model(name)
    load_packaged(model, name)
    model.eval()
    for path, label in PHOTOS.items():
        pixels = (read_picture(path, 224)[None].float() - 127.5) / 127.5
        with torch.inference_mode():
            assert int(model(pixels).argmax()) == label


def test_the_backbone_equals_the_timm_network() -> None:
    model = timm.create_model(DEFAULT_BACKBONE)
    load_packaged(model)
    model.eval()
    backbone = Backbone(DEFAULT_BACKBONE, "imagenet", "all", 64)
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    with torch.inference_mode():
        network: Any = model
        expected = network.forward_features((pixels.float() - 127.5) / 127.5)
        assert torch.allclose(backbone(pixels), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "resnet18", "mobilenetv2_100"])
def test_splitting_a_backbone_does_not_change_its_output(name: str) -> None:
    torch.manual_seed(0)
    whole = Backbone(name, "none", "nothing", 64)
    torch.manual_seed(0)
    split = Backbone(name, "none", "lower", 64)
    whole.eval()
    split.eval()
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    maps = split.lower_maps(pixels)
    assert maps.shape[-1] == 4
    assert torch.allclose(split(maps), whole(pixels), atol=1e-5)
    trained = sum(p.numel() for p in split.parameters() if p.requires_grad)
    assert 0 < trained < sum(p.numel() for p in split.parameters())


def test_frozen_layers_do_not_change() -> None:
    kinds: tuple[Frozen, ...] = ("all", "lower")
    for frozen in kinds:
        backbone = Backbone("test_efficientnet", "none", frozen, 64)
        model = Classifier(backbone, Linear(backbone.channels, 3), list("abc"))
        before = {name: value.clone() for name, value in backbone.lower.state_dict().items()}
        model.train()
        assert not any(module.training for module in backbone.lower.modules())
        model(torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8)).sum().backward()
        after = backbone.lower.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert all(parameter.grad is None for parameter in backbone.lower.parameters())


def test_errors_for_bad_backbones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean resnet50"):
        Backbone("resnet_50", "none", "nothing", 64)
    with pytest.raises(InputError, match="not one feature per position"):
        Backbone("crossvit_tiny_240", "none", "nothing", 240)
    with pytest.raises(InputError, match="no such file"):
        Backbone("resnet18", str(tmp_path / "nothing.pth"), "nothing", 64)
    (tmp_path / "bad.pth").write_bytes(b"not weights")
    with pytest.raises(InputError, match="not weights that can be loaded safely"):
        Backbone("resnet18", str(tmp_path / "bad.pth"), "nothing", 64)
    torch.save({"a": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(InputError, match="not the weights of resnet18"):
        Backbone("resnet18", str(tmp_path / "other.pth"), "nothing", 64)


def test_weights_are_loaded_from_a_file(tmp_path: Path) -> None:
    model = timm.create_model("test_efficientnet")
    torch.save(model.state_dict(), tmp_path / "w.pth")
    backbone = Backbone("test_efficientnet", str(tmp_path / "w.pth"), "nothing", 64)
    weight = backbone.upper.state_dict()["conv_stem.weight"]
    assert torch.equal(weight, model.state_dict()["conv_stem.weight"])


def test_pickled_code_in_a_weight_file_is_not_run(tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "owned",))

    with (tmp_path / "evil.pth").open("wb") as stream:
        pickle.dump({"conv_stem.weight": Evil()}, stream)
    with pytest.raises(InputError, match="loaded safely"):
        Backbone("test_efficientnet", str(tmp_path / "evil.pth"), "nothing", 64)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("components", [1, 3, 6])
def test_reduction_equals_pca_of_scikit_learn(components: int) -> None:
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(0)
    maps = rng.normal(size=(20, 6, 3, 2)) * np.arange(1, 7)[:, None, None] + 5
    reduction = Reduction(6, components).double()
    reduction.fit(torch.from_numpy(part) for part in np.array_split(maps, 3))
    positions = maps.transpose(0, 2, 3, 1).reshape(-1, 6)
    expected = PCA(components).fit(positions).transform(positions)
    reduced = reduction(torch.from_numpy(maps)).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(np.abs(reduced.reshape(-1, components)), np.abs(expected), atol=1e-9)
    with pytest.raises(InputError, match="6 channels"):
        Reduction(6, 7)


def test_a_reduced_backbone_gives_the_same_features_for_images_and_cached_maps() -> None:
    torch.manual_seed(0)
    backbone = Backbone("test_efficientnet", "none", "all", 64, reduce=4)
    assert backbone.channels == 4
    images = torch.randint(0, 255, (8, 3, 64, 64), dtype=torch.uint8)
    maps = backbone.lower_maps(images)
    assert isinstance(backbone.reduction, Reduction)
    backbone.reduction.fit([maps])
    torch.testing.assert_close(backbone(images), backbone(backbone.reduction(maps)))
    assert not list(backbone.reduction.parameters())  # nothing to train


def test_damaged_packaged_weights_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the start of the hash is right, which the name of the file has."""
    digest = hashlib.sha256(b"other weights").hexdigest()
    other = replace(packaged.PACKAGED[DEFAULT_BACKBONE], sha256=digest[:8] + "0" * 56)
    file = tmp_path / "models" / other.name
    file.parent.mkdir()
    file.write_bytes(b"other weights")
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    monkeypatch.setitem(packaged.PACKAGED, DEFAULT_BACKBONE, other)
    packaged._tensors.cache_clear()
    with pytest.raises(InputError, match="the ImageNet weights are damaged; install"):
        load_packaged(timm.create_model(DEFAULT_BACKBONE))
    packaged._tensors.cache_clear()
