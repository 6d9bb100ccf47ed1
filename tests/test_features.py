"""Cached maps: the same as computed ones, in every view that a bank holds."""

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


def computed(backbone: Backbone, shown: Pictures, row: int, view: str, number: int) -> torch.Tensor:
    """The map of a view of a picture, straight from the backbone."""
    content = content_key(shown.paths[row]).hex()
    seen = view_of(shown._picture(row), view, 0, number, content)
    with torch.inference_mode():
        return backbone.lower_maps(seen[None])[0].half().float()


def seen(maps: CachedMaps, view: str, epoch: int) -> torch.Tensor:
    (found,) = maps.batches([np.arange(6)], (view,), epoch)
    return found.views[view]


def test_a_bank_holds_what_the_backbone_makes_of_views(
    backbone: Backbone, scene: Path, tmp_path: Path
) -> None:
    shown = pictures(scene)
    said: list[str] = []
    bank = Bank(pictures=4, flip=True, strong=2)
    maps = cached_maps(backbone, "b", shown, tmp_path, bank=bank, told=said.append)
    assert len(said) == 1
    assert "12 further views" in said[0]
    allowed = {"weak": [("clean", 0), ("flip", 0)], "strong": [("strong", 0), ("strong", 1)]}
    for view, kinds in allowed.items():
        drawn = torch.stack([seen(maps, view, epoch) for epoch in range(12)])
        for row in range(6):
            # pictures that are not in the bank are seen as they are
            those = kinds if row < 4 else [("clean", 0)]
            wanted = torch.stack([computed(backbone, shown, row, *kind) for kind in those])
            apart = (drawn[:, None, row] - wanted).abs().amax(dim=(2, 3, 4))
            nearest = apart.min(dim=1)
            assert float(nearest.values.max()) < 0.02 * float(wanted.abs().max())
            assert set(nearest.indices.tolist()) == set(range(len(those)))  # all are drawn


def test_draws_depend_on_seed_epoch_and_name(
    backbone: Backbone, scene: Path, tmp_path: Path
) -> None:
    bank = Bank(pictures=6, flip=True, strong=2)
    one, again, other = (
        cached_maps(backbone, "b", pictures(scene, seed), tmp_path, bank=bank) for seed in (0, 0, 1)
    )
    epochs = range(6)
    same = [torch.equal(seen(one, "strong", e), seen(again, "strong", e)) for e in epochs]
    assert all(same)
    assert not all(torch.equal(seen(one, "strong", e), seen(other, "strong", e)) for e in epochs)
    assert not all(torch.equal(seen(one, "strong", e), seen(one, "strong", 0)) for e in epochs)
    (whole,) = one.batches([np.arange(6)], ("strong",), 3)
    (part,) = one.batches([np.array([4, 1])], ("strong",), 3)
    assert torch.equal(part.views["strong"], whole.views["strong"][[4, 1]])


def test_a_bank_is_computed_once(backbone: Backbone, scene: Path, tmp_path: Path) -> None:
    bank, computed = Bank(pictures=6, flip=True, strong=2), []
    for _ in range(2):
        cached_maps(
            backbone,
            "b",
            pictures(scene),
            tmp_path,
            bank=bank,
            progress=lambda done, total: computed.append(total),
        )
    assert computed == [6] * 4  # clean, flip, two strong ones; and nothing the second time


def test_without_a_bank_every_view_is_the_clean_one(
    backbone: Backbone, scene: Path, tmp_path: Path
) -> None:
    maps = cached_maps(backbone, "b", pictures(scene), tmp_path)
    (found,) = maps.batches([np.arange(6)], ("clean", "weak", "strong"), 5)
    assert torch.equal(found.views["weak"], found.views["clean"])
    assert torch.equal(found.views["strong"], found.views["clean"])


@pytest.mark.parametrize("in_memory", [False, True])
def test_maps_can_be_transformed(
    in_memory: bool, backbone: Backbone, scene: Path, tmp_path: Path
) -> None:
    bank = Bank(pictures=6, flip=True)
    plain, pooled = (cached_maps(backbone, "b", pictures(scene), tmp_path, bank=bank) for _ in "ab")
    pooled.apply(lambda maps: maps.mean(dim=(2, 3), keepdim=True), in_memory=in_memory)
    for epoch in range(4):
        wanted = seen(plain, "weak", epoch).mean(dim=(2, 3), keepdim=True)
        torch.testing.assert_close(seen(pooled, "weak", epoch), wanted)


def test_broken_pictures_are_left_out(backbone: Backbone, scene: Path, tmp_path: Path) -> None:
    shown = pictures(scene)
    broken: list[str] = []
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    shown.paths = [*shown.paths[:2], bad]
    bank = Bank(pictures=3, flip=True, strong=1)
    maps = cached_maps(backbone, "b", shown, tmp_path / "c", bank=bank, broken=broken.append)
    assert len(broken) == 1
    (found,) = maps.batches([np.array([2, 1, 0])], ("weak", "strong"), 0)
    assert found.rows.tolist() == [1, 0]
    assert len(found.views["strong"]) == 2
