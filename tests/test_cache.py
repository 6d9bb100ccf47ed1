"""The cache as a whole: pooled vectors, its size, a limit, several processes at once."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import partlabel
from partlabel.base.errors import InputError, JobError
from partlabel.cli import main
from partlabel.images.pictures import Pictures
from partlabel.models import Backbone
from partlabel.models.features import (
    MapStore,
    cached_maps,
    list_stores,
    open_store,
    prune,
    read_size,
    usage,
)

SIZE = 64


def pictures(scene: Path, number: int = 6) -> Pictures:
    paths = sorted((scene / "images").iterdir())[:number]
    return Pictures([path.name for path in paths], paths, SIZE, 0)


def backbone(name: str = "test_efficientnet") -> Backbone:
    torch.manual_seed(0)
    return Backbone(name, "none", "all", SIZE)


def train(scene: Path, out: Path, cache: Path, **more: Any) -> Any:
    return partlabel.train(
        scene / "partial.csv",
        scene / "images",
        out,
        **{
            "method": "bce", "backbone": "test_efficientnet", "weights": "none", "size": SIZE,
            "frozen": "all", "epochs": 2, "cache": cache, **more,
        },
    )  # fmt: skip


def test_a_head_that_takes_the_mean_needs_only_pooled_vectors(scene: Path, tmp_path: Path) -> None:
    train(scene, tmp_path / "linear", tmp_path / "pooled")
    train(scene, tmp_path / "weldon", tmp_path / "maps", head="weldon")
    (pooled,), (maps,) = list_stores(tmp_path / "pooled"), list_stores(tmp_path / "maps")
    assert open_store(pooled).shape == (256, 1, 1)
    assert open_store(maps).shape == (256, 2, 2)
    assert open_store(pooled).size == 4 * 256  # bytes per image
    # a head whose maps are shown needs the maps after all
    assert main(["report", str(tmp_path / "linear"), "--cache", str(tmp_path / "pooled")]) == 0
    assert len(list_stores(tmp_path / "pooled")) == 2


@pytest.mark.parametrize("pooled", [False, True])
def test_half_precision_holds_features_to_its_last_digit(
    pooled: bool, scene: Path, tmp_path: Path
) -> None:
    network, rows = backbone(), np.arange(6)
    (images,) = pictures(scene).batches([rows], ("clean",))
    with torch.no_grad():
        exact = network.lower_maps(images.views["clean"])
    exact = exact.mean(dim=(2, 3), keepdim=True) if pooled else exact
    (cached,) = cached_maps(network, pictures(scene), tmp_path, pooled=pooled).batches(
        [rows], ("clean",)
    )
    limits = torch.finfo(torch.float16)
    torch.testing.assert_close(
        cached.views["clean"], exact, rtol=limits.eps / 2 + 1e-5, atol=limits.smallest_normal
    )


def test_large_features_stay_finite(scene: Path, tmp_path: Path) -> None:
    network = backbone()
    whole: Any = network.lower
    with torch.no_grad():
        whole.bn2.weight.mul_(1e9)
        whole.bn2.bias.fill_(1e9)
    (cached,) = cached_maps(network, pictures(scene), tmp_path).batches([np.arange(6)], ("clean",))
    assert bool(torch.isfinite(cached.views["clean"]).all())


def test_sizes_are_read() -> None:
    assert [read_size(text, "x") for text in ("0", "12", "3KB", "1.5 gb")] == [
        0, 12, 3000, 1_500_000_000,
    ]  # fmt: skip
    for text in ("", "-1", "much", "3XB", "1e9"):
        with pytest.raises(InputError, match="such as 500MB"):
            read_size(text, "--limit")


def make_stores(cache: Path) -> None:
    """Three stores of 1 MB; a is not used for 3 days, b for 2, c for 1."""
    for days, name in ((3, "a"), (2, "b"), (1, "c")):
        store = MapStore(cache / name, (1000,), np.uint8)
        with store.appending() as append:
            keys = [f"{name}{number:015}".encode() for number in range(1000)]
            append(keys, np.zeros((1000, 1000), dtype=np.uint8))
        del store
        used = time.time() - days * 86400
        os.utime(cache / name / "in_use", (used, used))


def names(cache: Path) -> list[str]:
    return [store.folder.name for store in usage(cache)]


def test_the_command_lists_and_prunes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_stores(tmp_path)
    cache = ["cache", "--cache", str(tmp_path)]
    assert main(cache) == 0
    text = capsys.readouterr().out
    assert "3 stores, 3.1 MB" in text
    assert names(tmp_path) == ["a", "b", "c"]  # listing is no use
    assert main([*cache, "--prune", "--days", "2.5"]) == 0
    assert "1 store removed, 1.0 MB freed" in capsys.readouterr().out
    assert names(tmp_path) == ["b", "c"]
    assert main([*cache, "--prune", "--limit", "1.1MB"]) == 0
    assert names(tmp_path) == ["c"]
    assert main([*cache, "--prune"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert main([*cache, "--limit", "1GB"]) == 2
    assert main([*cache, "--prune", "--limit", "lots"]) == 2


def test_a_store_in_use_is_not_removed(tmp_path: Path) -> None:
    make_stores(tmp_path)
    store = open_store(tmp_path / "b")
    assert [gone.folder.name for gone in prune(tmp_path, limit=0)] == ["a", "c"]
    del store
    assert [gone.folder.name for gone in prune(tmp_path, days=0)] == ["b"]


def test_a_limit_is_kept(scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_stores(tmp_path)
    monkeypatch.setenv("PARTLABEL_CACHE_LIMIT", "2.2MB")
    cached_maps(backbone(), pictures(scene), tmp_path)
    assert names(tmp_path)[:2] == ["b", "c"]
    assert sum(store.size for store in usage(tmp_path)) <= 2.2e6
    monkeypatch.setenv("PARTLABEL_CACHE_LIMIT", "1KB")
    with pytest.raises(JobError, match="set PARTLABEL_CACHE_LIMIT to more"):
        cached_maps(backbone("test_resnet"), pictures(scene), tmp_path)
    monkeypatch.setenv("PARTLABEL_CACHE_LIMIT", "huge")
    with pytest.raises(InputError, match="PARTLABEL_CACHE_LIMIT is 'huge'"):
        cached_maps(backbone("test_vit"), pictures(scene), tmp_path)


_FILL = """
import sys
from pathlib import Path
import numpy as np
from partlabel.models.features.store import MapStore
from partlabel.models.features.housekeeping import remove
folder, number = Path(sys.argv[1]), int(sys.argv[2])
for turn in range(30):
    store = MapStore(folder, (8,), np.uint8)
    key = b"%02d" % turn + bytes(14)
    with store.appending() as append:
        if key not in store.index:
            append([key], np.full((1, 8), turn, dtype=np.uint8))
    records = store.maps()
    assert records.read(np.array([store.index[key]]))[0, 0] == turn
    del store
    if turn % 7 == number:
        remove(folder)
"""


def test_several_processes_fill_and_remove_a_store_at_once(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", _FILL, str(tmp_path / "s"), str(number)])
        for number in range(3)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    if (tmp_path / "s").exists():
        store = open_store(tmp_path / "s")
        assert store.remove_damaged() == 0
        assert len(store.index) == len(store.entries)  # no key was stored twice
