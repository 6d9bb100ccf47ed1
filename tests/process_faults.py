"""Faults and bad input with several processes: a script that ``torchrun`` starts.

``torchrun --nproc-per-node 2 tests/process_faults.py SCENARIO FOLDER``. FOLDER has labels and
features that ``write_data`` made. What happens is written to it.
"""

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from partlabel import LabelTable, train, write_labels
from partlabel.base import launch, processes
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.cli import run
from partlabel.images.batches import Batch
from partlabel.training.arguments import make_settings
from partlabel.training.embed import embed_images
from partlabel.training.settings import Execution
from partlabel.training.trainer import Trainer
from partlabel.training.whole_set import WholeSet

METHOD: dict[str, Any] = {
    "method": "em-apl",
    "options": {"warmup": 1},
    "epochs": 4,
    "batch": 9,
    "device": "cpu",
}
STEP = 11  # of 16, in the third epoch; there is a checkpoint before each epoch with new labels


def write_data(folder: Path) -> None:
    """Labels of 40 images, three features of each, other labels, and two images."""
    draws = np.random.default_rng(0)
    vectors = draws.normal(size=(40, 3)).astype(np.float32)
    truth = np.where(vectors @ draws.normal(size=(3, 2)) > 0, 1, -1)
    truth[draws.random(truth.shape) < 0.3] = 0
    ids = [f"{row}.png" for row in range(40)]
    np.savez(folder / "features.npz", ids=np.array(ids), vectors=vectors)
    write_labels(LabelTable(ids, ["a", "b"], truth), folder / "labels.csv")
    write_labels(LabelTable(ids, ["a", "b"], -truth), folder / "others.csv")
    write_labels(LabelTable(ids[:1], ["a"], [[1]]), folder / "one.csv")
    (folder / "images").mkdir()
    for name in ids[:3]:
        Image.new("RGB", (32, 32), (10 * len(name), 0, 0)).save(folder / "images" / name)


def at_step(step: int, act: Callable[[], None]) -> None:
    """Do something before a step of the next training."""
    original = Trainer._train_step

    def step_or_act(self: Trainer, batch: Batch | WholeSet, position: float) -> None:
        if self.progress.total_steps == step:
            Trainer._train_step = original  # type: ignore[method-assign]
            act()
        original(self, batch, position)

    Trainer._train_step = step_or_act  # type: ignore[method-assign]


def killed(folder: Path) -> None:
    """Train a run to its end, stop one, and kill the last process while it trains a third."""
    source: dict[str, Any] = {
        "labels": folder / "labels.csv",
        "features": folder / "features.npz",
    }
    train(out=folder / "whole", **source, **METHOD)
    if not launch.is_restarted():
        at_step(STEP, stop)
        with suppress(KeyError):
            train(out=folder / "half", **source, **METHOD)
        if launch.launched_rank() == launch.number_in("WORLD_SIZE", 1) - 1:
            at_step(STEP, lambda: os.kill(os.getpid(), signal.SIGKILL))
    train(out=folder / "cut", **source, **METHOD)


def stop() -> None:
    """Stop a training."""
    raise KeyError("stop")


def refused(folder: Path) -> None:
    """Write what is said about input that is bad in all processes, then fail in one alone."""
    first = launch.launched_rank() == 0
    labels, images = folder / "labels.csv", folder / "images"
    features, cache = folder / "features.npz", folder / ("cache" if first else "cache2")
    calls: dict[str, Callable[[], object]] = {
        "labels": lambda: train(
            labels if first else folder / "others.csv",
            out=folder / "x",
            features=features,
            **METHOD,
        ),
        "settings": lambda: train(
            labels, out=folder / "x", features=features, **METHOD, seed=int(first)
        ),
        "few": lambda: train(folder / "one.csv", images, folder / "x", method="bce", val=0.0),
        "versions": lambda: processes.agree({"partlabel": f"1.{launch.launched_rank()}"}),
        "cache": lambda: embed_images(
            {path.name: path for path in sorted(images.iterdir())},
            make_settings(
                method="bce", backbone="test_efficientnet", weights="none", size=32, frozen="all"
            ),
            Execution(cache=cache),
        ),
    }
    messages = {}
    with processes.together():
        for name, call in calls.items():
            try:
                call()
            except InputError as error:
                messages[name] = str(error)
    if first:
        (folder / "messages.json").write_text(json.dumps(messages))
    seen = images if first else folder / "not-mounted"
    command(folder, ["embed", str(seen), "-o", str(folder / "x.npz")])


def hanging(folder: Path) -> None:
    """The last process does nothing any more."""
    if launch.launched_rank() == launch.number_in("WORLD_SIZE", 1) - 1:
        at_step(STEP, hang)
    files = [str(folder / "labels.csv"), "--features", str(folder / "features.npz")]
    options = ["--method", "em-apl", "--set", "warmup=1", "--epochs", "4", "--batch", "9"]
    command(folder, ["train", *files, "--out", str(folder / "hung"), *options])


def cut_off(folder: Path) -> None:
    """Train a run to its end, then say so, and wait in a second one for the network to be cut."""
    source: dict[str, Any] = {
        "labels": folder / "labels.csv",
        "features": folder / "features.npz",
    }
    train(out=folder / "whole", **source, **METHOD)
    ready = folder / f"ready{launch.launched_rank()}"
    at_step(STEP, lambda: wait_until_cut(ready))
    files = [str(folder / "labels.csv"), "--features", str(folder / "features.npz")]
    options = ["--method", "em-apl", "--set", "warmup=1", "--epochs", "4", "--batch", "9"]
    command(folder, ["train", *files, "--out", str(folder / "cut"), *options])


def wait_until_cut(ready: Path) -> None:
    """Say that the network can be cut, and go on once it is."""
    ready.touch()
    while not (ready.parent / "is-cut").exists():
        time.sleep(0.1)


def hang() -> None:
    """Do nothing, until torchrun ends this process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(1000)


def command(folder: Path, words: list[str]) -> None:
    """Run a command; the exit code of each process is written, and when it ended."""
    sys.argv[1:] = words
    start = time.monotonic()
    try:
        run()
    except SystemExit as end:
        outcome = {"code": end.code, "seconds": time.monotonic() - start}
        (folder / f"end{launch.launched_rank()}.json").write_text(json.dumps(outcome))
        raise


if __name__ == "__main__":
    warnings.simplefilter("ignore", PartlabelWarning)
    scenarios = {"killed": killed, "refused": refused, "hanging": hanging, "cut-off": cut_off}
    scenarios[sys.argv[1]](Path(sys.argv[2]))
