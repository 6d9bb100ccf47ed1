"""Cached maps equal computed ones, for every view of a bank."""

from pathlib import Path

import numpy as np
import pytest
import torch

from partlabel.base.errors import InputError, JobError, data_size
from partlabel.cli import main
from partlabel.images.pictures import Pictures
from partlabel.images.views import view_of
from partlabel.models import Backbone
from partlabel.models.features import (
    Bank,
    CachedMaps,
    cached_maps,
    content_key,
    list_stores,
    open_store,
)

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
    maps = cached_maps(backbone, images, tmp_path, bank=bank, on_note=messages.append)
    images_first, views_next = messages
    record = 2 * int(np.prod(maps.maps.shape[1:]))
    assert f"the features of 6 images, which takes {data_size(6 * record)} on disk" in images_first
    assert f"12 additional views of images, which takes {data_size(12 * record)}" in views_next
    cached_maps(backbone, images, tmp_path, bank=bank, on_note=messages.append)
    assert len(messages) == 2  # the second time, nothing is computed
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
        cached_maps(backbone, pictures(scene, seed), tmp_path, bank=bank) for seed in (0, 0, 1)
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
            pictures(scene),
            tmp_path,
            bank=bank,
            progress=lambda done, total: totals.append(total),
        )
    assert totals == [6] * 4  # clean, flip and two strong views; nothing the second time


def test_without_a_bank_every_view_is_the_clean_one(
    backbone: Backbone, scene: Path, tmp_path: Path
) -> None:
    maps = cached_maps(backbone, pictures(scene), tmp_path)
    (inputs,) = maps.batches([np.arange(6)], ("clean", "weak", "strong"), 5)
    assert torch.equal(inputs.views["weak"], inputs.views["clean"])
    assert torch.equal(inputs.views["strong"], inputs.views["clean"])


@pytest.mark.parametrize("in_memory", [False, True])
def test_maps_can_be_transformed(
    in_memory: bool, backbone: Backbone, scene: Path, tmp_path: Path
) -> None:
    bank = Bank(pictures=6, flip=True)
    plain, pooled = (cached_maps(backbone, pictures(scene), tmp_path, bank=bank) for _ in "ab")
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
    maps = cached_maps(backbone, images, tmp_path / "c", bank=bank, broken=broken.append)
    assert len(broken) == 1
    (inputs,) = maps.batches([np.array([2, 1, 0])], ("weak", "strong"), 0)
    assert inputs.rows.tolist() == [1, 0]
    assert len(inputs.views["strong"]) == 2


def test_damaged_records_are_noticed_and_can_be_removed(
    backbone: Backbone, scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = cached(cached_maps(backbone, pictures(scene), tmp_path), "clean", 0)
    (folder,) = list_stores(tmp_path)
    content = bytearray((folder / "maps").read_bytes())
    size = len(content) // 6
    content[2 * size : 3 * size] = bytes(size)
    (folder / "maps").write_bytes(content)
    maps = cached_maps(backbone, pictures(scene), tmp_path)
    (intact,) = maps.batches([np.array([0, 1])], ("clean",))
    assert torch.equal(intact.views["clean"], expected[:2])
    with pytest.raises(JobError, match="partlabel cache --verify"):
        cached(maps, "clean", 0)
    assert main(["cache", "--cache", str(tmp_path), "--verify"]) == 0
    assert "1 damaged record removed" in capsys.readouterr().out
    assert main(["cache", "--cache", str(tmp_path)]) == 0
    assert "5" in capsys.readouterr().out.split()
    mended = cached_maps(backbone, pictures(scene), tmp_path)
    torch.testing.assert_close(cached(mended, "clean", 0), expected, rtol=1e-2, atol=1e-3)


def test_a_key_that_occurs_twice_is_tolerated(
    backbone: Backbone, scene: Path, tmp_path: Path
) -> None:
    expected = cached(cached_maps(backbone, pictures(scene), tmp_path), "clean", 0)
    (folder,) = list_stores(tmp_path)
    for name in ("maps", "index"):
        content = (folder / name).read_bytes()
        with (folder / name).open("ab") as stream:
            stream.write(content[: len(content) // 6])
    again = cached_maps(backbone, pictures(scene), tmp_path)
    assert torch.equal(cached(again, "clean", 0), expected)
    store = open_store(folder)
    assert (len(store.entries), len(store.index)) == (7, 6)
    with store.appending() as append:  # goes on after the last record, not after the last key
        append([b"k" * 16], np.ones((1, *store.shape), dtype=np.float16))
    assert store.index[b"k" * 16] == 7
    assert float(store.maps().read(np.array([7])).min()) == 1


def test_records_of_a_crash_are_dropped(backbone: Backbone, scene: Path, tmp_path: Path) -> None:
    """Records without an entry, and an entry that was cut off."""
    expected = cached(cached_maps(backbone, pictures(scene), tmp_path), "clean", 0)
    (folder,) = list_stores(tmp_path)
    index = (folder / "index").read_bytes()
    (folder / "index").write_bytes(index[: len(index) * 2 // 3 - 7])
    mended = cached_maps(backbone, pictures(scene), tmp_path)
    torch.testing.assert_close(cached(mended, "clean", 0), expected, rtol=1e-2, atol=1e-3)
    assert (folder / "index").stat().st_size == len(index)


def test_a_folder_that_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"shape": [0], "kind": "object"}')
    with pytest.raises(InputError, match=r"store\.json: not a store"):
        open_store(tmp_path)
