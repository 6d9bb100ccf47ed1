"""Time of ``partlabel evaluate`` on a tiny run, compared with importing torch and timm."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import partlabel
from benchmarks.report import print_result
from partlabel.labels import scenes

ROUNDS, LIMIT = 7, 1.3
IMPORTS = "import partlabel.base.torchvision_shim, torch, timm"
"""The shim declares two operators that timm's imports need where torchvision has no CPU build."""


def _cpu_seconds(*words: str) -> float:
    """The time of the CPU that a Python process takes; other work on the machine hardly counts."""
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{words} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def run() -> None:
    """Measure both in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = scenes.write(folder / "s", 40, scenes.World(5, 64, 0), test=0.25)
        partlabel.train(
            table,
            folder / "s" / "images",
            folder / "run",
            method="bce",
            backbone="test_efficientnet",
            weights="none",
            size=64,
            frozen="all",
            epochs=1,
            cache=folder / "cache",
        )
        call = ["-m", "partlabel", "evaluate", str(folder / "run"), str(folder / "s/labels.csv")]
        call += ["--split", "test", "--cache", str(folder / "cache")]
        ratios = []
        for _ in range(ROUNDS + 1):
            imports = _cpu_seconds("-c", IMPORTS)
            ratios.append(_cpu_seconds(*call) / imports)
    ratio = float(np.median(ratios[1:]))  # the first ones read files from the disk
    text = "evaluate a tiny run / import torch and timm"
    print_result(text, f"{ratio:.2f}", f"<= {LIMIT}", ratio <= LIMIT)
