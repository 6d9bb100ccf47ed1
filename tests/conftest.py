"""Fixtures and settings for all test modules."""

import os
import signal
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run in parallel, each on one core

import pytest
from hypothesis import settings

from partlabel.base import torchvision_shim  # noqa: F401  # must come before any import of timm

# A shell starts background jobs with these signals ignored, and children would inherit that
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

settings.register_profile("partlabel", deadline=None)  # a slow machine must not fail a test
settings.load_profile("partlabel")


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty images; ``labels.csv`` has all labels, ``partial.csv`` 60% of the training labels."""
    from partlabel.labels import formats, scenes, simulate

    folder = tmp_path_factory.mktemp("scene") / "s"
    full = scenes.write(folder, 40, scenes.World(classes=5, size=64, seed=0), test=0.25)
    partial = simulate.hide(full, "partial", 0.6, seed=0, split="train", holdout=0.2)
    formats.write_labels(partial, folder / "partial.csv")
    return folder
