"""Throughput of feature extraction, compared with a bare loop of the same network."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.report import print_result
from partlabel.base.allocation import keep_freed_memory
from partlabel.images.pictures import Pictures, read_picture
from partlabel.labels import scenes
from partlabel.models import Backbone
from partlabel.models.features import cached_maps

IMAGES, SIZE, BATCH, ROUNDS = 640, 224, 32, 3


class Decoded(Dataset[Tensor]):
    """Images, decoded one by one."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Tensor:
        return read_picture(self.paths[row], SIZE)


def _bare_loop(backbone: Backbone, paths: list[Path]) -> float:
    """Seconds of a plain loop, whose images are decoded by other processes."""
    lower: Any = backbone.lower
    start = time.perf_counter()
    loader = DataLoader(Decoded(paths), BATCH, num_workers=max(1, len(os.sched_getaffinity(0)) - 1))
    with torch.inference_mode():
        for images in loader:
            normalised = (images - backbone.mean) / backbone.std
            lower(normalised.contiguous(memory_format=torch.channels_last)).mean(dim=(2, 3))
    return time.perf_counter() - start


def _extraction(backbone: Backbone, paths: list[Path], folder: Path) -> float:
    """Seconds until the pooled features of all images are on disk."""
    pictures = Pictures([path.name for path in paths], paths, SIZE, seed=0)
    start = time.perf_counter()
    cached_maps(backbone, pictures, folder, pooled=True)
    return time.perf_counter() - start


def run() -> None:
    """Compare both, in turns; both keep freed memory, as every run does."""
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = scenes.write(folder / "s", IMAGES, scenes.World(20, 320, 0))
        paths = [folder / "s" / "images" / image for image in table.ids]
        backbone = Backbone("tf_efficientnet_lite0", "imagenet", "all", SIZE).eval()
        ratios, speeds = [], []
        for number in range(ROUNDS):
            bare = _bare_loop(backbone, paths)
            own = _extraction(backbone, paths, folder / f"cache{number}")
            ratios.append(bare / own)
            speeds.append(IMAGES / own)
        ratio = float(np.median(ratios))
        print_result("feature extraction / bare loop", f"{ratio:.3f}", ">= 0.95", ratio >= 0.95)
        speed = f"{float(np.median(speeds)):.1f} images/s"
        print_result("feature extraction, lite0 at 224", speed, "none", reached=True)
