"""Cached maps equal computed ones, for every view of a bank."""

from pathlib import Path

import numpy as np
import pytest
import torch

from partlabel.images.pictures import Pictures
from partlabel.images.views import view_of
from partlabel.models import Backbone
from partlabel.models.features import Bank, CachedMaps, cached_maps, content_key

SIZE = 64


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    return Backbone("test_efficientnet", "none", "all", SIZE)


def pictures(scene: Path, seed: int = 0) -> Pictures:
    paths = sorted((scene / "images").iterdir())[:6]
    return Pictures([path.name for path in paths], paths, SIZE, seed)


def computed(
    backbone: Backbone, images: Pictures, row: int, view: str, number: int
) -> torch.Tensor:
    """The map of a view of an image, computed by the backbone without a cache."""
    content = content_key(images.paths[row]).hex()
    image = view_of(images._picture(row), view, 0, number, content)
    with torch.inference_mode():
        return backbone.lower_maps(image[None])[0].half().float()


def cached(maps: CachedMaps, view: str, epoch: int) -> torch.Tensor:
    (inputs,) = maps.batches([np.arange(6)], (view,), epoch)
    return inputs.views[view]


def test_a_bank_holds_the_maps_of_all_views(
    backbone: Backbone, scene: Path, tmp_path: Path
) -> None:
    images = pictures(scene)
    messages: list[str] = []
    bank = Bank(pictures=4, flip=True, strong=2)
    maps = cached_maps(backbone, "b", images, tmp_path, bank=bank, told=messages.append)
    assert len(messages) == 1
    assert "12 additional views" in messages[0]
    allowed = {"weak": [("clean", 0), ("flip", 0)], "strong": [("strong", 0), ("strong", 1)]}
    for view, versions in allowed.items():
        drawn = torch.stack([cached(maps, view, epoch) for epoch in range(12)])
        for row in range(6):
            # images that are not in the bank have only the clean view
            choices = versions if row < 4 else [("clean", 0)]
            expected = torch.stack([computed(backbone, images, row, *choice) for choice in choices])
            difference = (drawn[:, None, row] - expected).abs().amax(dim=(2, 3, 4))
            nearest = difference.min(dim=1)
            assert float(nearest.values.max()) < 0.02 * float(expected.abs().max())
            assert set(nearest.indices.tolist()) == set(range(len(choices)))  # all are drawn


def test_draws_depend_on_seed_epoch_and_id(backbone: Backbone, scene: Path, tmp_path: Path) -> None:
    bank = Bank(pictures=6, flip=True, strong=2)
    one, again, other = (
        cached_maps(backbone, "b", pictures(scene, seed), tmp_path, bank=bank) for seed in (0, 0, 1)
    )
    first, repeated, reseeded = (
        [cached(maps, "strong", epoch) for epoch in range(6)] for maps in (one, again, other)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, repeated, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, reseeded, strict=True))
    assert not all(torch.equal(maps, first[0]) for maps in first)
    (whole,) = one.batches([np.arange(6)], ("strong",), 3)
    (part,) = one.batches([np.array([4, 1])], ("strong",), 3)
    assert torch.equal(part.views["strong"], whole.views["strong"][[4, 1]])


def test_a_bank_is_computed_once(backbone: Backbone, scene: Path, tmp_path: Path) -> None:
    bank, totals = Bank(pictures=6, flip=True, strong=2), []
    for _ in range(2):
        cached_maps(
            backbone,
            "b",
            pictures(scene),
            tmp_path,
            bank=bank,
            progress=lambda done, total: totals.append(total),
        )
    assert totals == [6] * 4  # clean, flip and two strong views; nothing the second time


def test_without_a_bank_every_view_is_the_clean_one(
    backbone: Backbone, scene: Path, tmp_path: Path
) -> None:
    maps = cached_maps(backbone, "b", pictures(scene), tmp_path)
    (inputs,) = maps.batches([np.arange(6)], ("clean", "weak", "strong"), 5)
    assert torch.equal(inputs.views["weak"], inputs.views["clean"])
    assert torch.equal(inputs.views["strong"], inputs.views["clean"])


@pytest.mark.parametrize("in_memory", [False, True])
def test_maps_can_be_transformed(
    in_memory: bool, backbone: Backbone, scene: Path, tmp_path: Path
) -> None:
    bank = Bank(pictures=6, flip=True)
    plain, pooled = (cached_maps(backbone, "b", pictures(scene), tmp_path, bank=bank) for _ in "ab")
    pooled.apply(lambda maps: maps.mean(dim=(2, 3), keepdim=True), in_memory=in_memory)
    for epoch in range(4):
        expected = cached(plain, "weak", epoch).mean(dim=(2, 3), keepdim=True)
        torch.testing.assert_close(cached(pooled, "weak", epoch), expected)


def test_broken_images_are_left_out(backbone: Backbone, scene: Path, tmp_path: Path) -> None:
    images = pictures(scene)
    broken: list[str] = []
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"not an image")
    images.paths = [*images.paths[:2], bad]
    bank = Bank(pictures=3, flip=True, strong=1)
    maps = cached_maps(backbone, "b", images, tmp_path / "c", bank=bank, broken=broken.append)
    assert len(broken) == 1
    (inputs,) = maps.batches([np.array([2, 1, 0])], ("weak", "strong"), 0)
    assert inputs.rows.tolist() == [1, 0]
    assert len(inputs.views["strong"]) == 2
