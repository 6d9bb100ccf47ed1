"""Two processes on two cores against one process on one core: features, and training end to end.

Each process has one core and one thread. Only the work itself is measured, not the start.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import print_result
from partlabel.base import launch, processes
from partlabel.base.allocation import keep_freed_memory
from partlabel.images.pictures import Pictures
from partlabel.labels import scenes
from partlabel.models import Backbone
from partlabel.models.features import cached_maps
from partlabel.training.train import train

IMAGES, SIZE, ROUNDS, WANTED = 640, 224, 3, 1.6  # twenty batches


def work(folder: Path, out: Path) -> None:
    """Compute features, and train a network for two epochs; write the images per second."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[launch.place_on_this_computer() % len(cores)]})
    keep_freed_memory()
    paths = sorted((folder / "images").iterdir())
    backbone = Backbone("tf_efficientnet_lite0", "imagenet", "all", SIZE)

    def compute(some: list[Path], cache: Path) -> None:
        cached_maps(backbone, Pictures([path.name for path in some], some, SIZE, 0), cache)

    with processes.together():
        compute(paths[:64], out / "first")  # the first batches wait for memory
        processes.wait_for_all()
        start = time.perf_counter()
        compute(paths, out)
        features = len(paths) / (time.perf_counter() - start)
    settings: dict[str, Any] = {
        "method": "bce",
        "epochs": 2,
        "size": SIZE,
        "val": 0.0,
        "split_duplicates": True,
    }
    run = train(folder / "labels.csv", folder / "images", out / "run", cache=out, **settings)
    speeds = {"features": features, "training": run.history()[-1]["images_per_second"]}
    if launch.launched_rank() == 0:
        (out / "speeds.json").write_text(json.dumps(speeds))


def measured(folder: Path, out: Path, number: int) -> dict[str, float]:
    """The images per second of one or more processes."""
    out.mkdir()
    start = [sys.executable, "-m"]
    if number > 1:
        start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={number}", "-m"]
    words = [*start, "benchmarks.several_processes", str(folder), str(out)]
    limited = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    subprocess.run(words, env=os.environ | limited, check=True, capture_output=True)
    speeds: dict[str, float] = json.loads((out / "speeds.json").read_text())
    return speeds


def run() -> None:
    """Measure one and two processes in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "scene"
        scenes.write(folder, IMAGES, scenes.World(classes=8, size=SIZE, seed=0), test=0.0)
        rounds = [
            [measured(folder, Path(name) / f"{turn}-{number}", number) for number in (1, 2)]
            for turn in range(ROUNDS)
        ]
    for kind in ("features", "training"):
        one, two = (np.median([turn[number][kind] for turn in rounds]) for number in (0, 1))
        ratio = np.median([turn[1][kind] / turn[0][kind] for turn in rounds])
        name = f"{kind}, two processes / one ({two:.1f} / {one:.1f} images/s)"
        print_result(name, f"{ratio:.2f}", f">= {WANTED}", bool(ratio >= WANTED))


if __name__ == "__main__":
    work(Path(sys.argv[1]), Path(sys.argv[2]))
