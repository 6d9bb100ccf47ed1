"""Trainings in double precision that give the same weights with any number of processes.

As a script, with ``torchrun``, it trains all of them in one group of processes, and the first
process writes the weights: ``torchrun --nproc-per-node 2 tests/process_cases.py FOLDER [CASE...]``.
"""

import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from partlabel.base import processes
from partlabel.base.errors import PartlabelWarning
from partlabel.base.randomness import key
from partlabel.images.batches import Inputs, Rows
from partlabel.labels import LabelTable
from partlabel.learning.methods import METHODS, Task
from partlabel.models import Backbone, Classifier
from partlabel.models.features.embeddings import GivenFeatures
from partlabel.training.arguments import make_settings
from partlabel.training.build import make_head
from partlabel.training.checkpoint import save_state
from partlabel.training.devices import make_fabric
from partlabel.training.examples import Examples
from partlabel.training.in_memory import SilentWatcher
from partlabel.training.trainer import Trainer

TRAIN, VAL, CLASSES, CHANNELS = 30, 8, 4, 6  # batches of 7: the last has two images
NOISE = 0.1


@dataclass(frozen=True)
class Case:
    """A training.

    Args:
        method: its name.
        options: settings of the method.
        backbone: a network to train end to end on images; None for frozen features.
        settings: further settings of the training.
    """

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    backbone: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)


SGD = {"optimizer": "sgd"}
SMALL_DECODER = {"width": 16}
OPTIONS: dict[str, dict[str, Any]] = {
    "em-apl": {"warmup": 1},
    "role-li": {"warmup": 1},
    "imcl": {"warmup": 1},
    "csl": {"warmup": 1},
    "partial-bce": {"curriculum": "b"},
    "sst": {"start": 1, "threshold": 0.2, "lowest": 0.1, "channels": 8},
    "hst": {"start": 1, "channels": 8, "prototypes": 2},
    "sarb": {"start": 1, "channels": 8, "prototypes": 2},
    "lac": {**SMALL_DECODER, "delta2": 0.5},
}
CASES = {name: Case(name, OPTIONS.get(name, {})) for name in METHODS}
CASES |= {
    f"{name} by lbfgs": Case(name, OPTIONS.get(name, {}), settings={"optimizer": "lbfgs"})
    for name, method in METHODS.items()
    if method.in_one_batch
}
CASES |= {
    "bce by sgd": Case("bce", settings={"optimizer": "sgd", "momentum": 0.9, "clip": 0.1}),
    "a teacher": Case("bce", {"normalize": "batch"}, settings={"ema": 0.9}),
    "dropout": Case("bce", settings={"head": "linear", "head_options": {"dropout": 0.5}}),
    "early stop": Case("bce", settings={"patience": 1, "schedule": "plateau"}),
    "gradients compared": Case("imcl", {"warmup": 1, "scale": "gradient"}),
    "a fixed copy": Case("imcl", {"warmup": 1, "images": "fixed"}),
    "doubts by dropout": Case("partial-bce", {"curriculum": "e", "passes": 5}),
    "lac of em-apl": Case("lac", {**SMALL_DECODER, "base": "em-apl", "warmup": 1}),
    "end to end": Case("bce", backbone="test_vit", settings=SGD),
    "end to end, two views": Case("sr", backbone="test_vit", settings=SGD),
    "end to end, a teacher": Case("en-scl", backbone="test_vit", settings=SGD),
}


STATISTICS = "batch statistics"  # the result depends on the number of processes
UNEQUAL = {STATISTICS: Case("bce", backbone="test_efficientnet", settings={"ema": 0.9})}
TURNS = ["a teacher", "latent-noise by lbfgs", "bce"]


class MadeUp:
    """Inputs that depend on the row and the view: feature maps, or images."""

    def __init__(self, shape: tuple[int, ...], images: bool) -> None:
        self.shape, self.images = shape, images

    def batches(
        self,
        rows: Sequence[Rows],
        views: tuple[str, ...],
        epoch: int = 0,
        workers: int | None = None,
    ) -> Iterator[Inputs]:
        """The inputs of batches of rows."""
        for part in rows:
            yield Inputs(part, {view: self._stack(part, view) for view in views})

    def _stack(self, rows: Rows, view: str) -> Tensor:
        made = [self._make(int(row), view) for row in rows]
        return torch.stack(made) if made else self._make(0, view)[None][:0]

    def _make(self, row: int, view: str) -> Tensor:
        generator = torch.Generator().manual_seed(key("row", row))
        noise = torch.Generator().manual_seed(key("row", row, view))
        if self.images:
            pixels = torch.randint(0, 200, self.shape, generator=generator)
            return (pixels + torch.randint(0, 50, self.shape, generator=noise)).to(torch.uint8)
        maps = torch.randn(self.shape, generator=generator, dtype=torch.float64)
        changed = torch.randn(self.shape, generator=noise, dtype=torch.float64)
        return (maps + NOISE * changed).abs()


def make_table() -> LabelTable:
    """Labels of which two thirds of the training images are known."""
    draws = np.random.default_rng(0)
    truth = np.where(draws.random((TRAIN + VAL, CLASSES)) < 0.4, 1, -1)
    truth[:TRAIN][draws.random((TRAIN, CLASSES)) < 1 / 3] = 0
    ids, classes = [f"i{row}" for row in range(len(truth))], [f"c{j}" for j in range(CLASSES)]
    return LabelTable(ids, classes, truth)


def train_case(name: str) -> dict[str, Any]:
    """The weights and figures after a training."""
    case, table = (CASES | UNEQUAL)[name], make_table()
    chosen: dict[str, Any] = {"optimizer": "adam", "lr": 0.02, "epochs": 3} | case.settings
    if chosen["optimizer"] == "lbfgs":
        chosen |= {"lr": 1.0, "weight_decay": 1e-2}
    else:
        chosen["batch"] = 7
    frozen = "all" if case.backbone is None else "nothing"
    settings = make_settings(
        method=case.method, options=case.options, frozen=frozen, seed=3, **chosen
    )
    torch.manual_seed(0)
    method = METHODS[case.method](**settings.options)
    backbone = (
        GivenFeatures(CHANNELS)
        if case.backbone is None
        else Backbone(case.backbone, "none", "nothing", 64)
    )
    head = make_head(method, backbone.channels, CLASSES, settings.head, settings.head_options)
    model = Classifier(backbone, head, list(table.classes)).double()
    train, val = np.arange(TRAIN), np.arange(TRAIN, TRAIN + VAL)
    method.prepare(Task(table.subset(train), table.subset(val), settings.epochs))
    shape = (CHANNELS, 2, 2) if case.backbone is None else (3, 64, 64)
    inputs = MadeUp(shape, images=case.backbone is not None)
    trainer = Trainer(
        model,
        method,
        Examples(table, inputs, train),
        Examples(table, inputs, val),
        settings,
        None,
        SilentWatcher(),
        fabric=make_fabric("cpu"),
    )
    progress = trainer.fit()
    figures = [
        {figure: value for figure, value in line.items() if figure != "images_per_second"}
        for line in progress.history
    ]
    return {"weights": model.trained_weights(), "figures": figures}


def main(folder: Path, names: Sequence[str]) -> None:
    """Train all cases, and write the results of the first process.

    Before, the processes take turns with trainings that each does alone.
    """
    with processes.together():
        for number, result in processes.take_turns(lambda number: train_case(TURNS[number]), 3):
            if processes.is_first():
                save_state(folder / f"turn {number}.safetensors", result)
        for name in names or CASES:
            result = train_case(name)
            if processes.is_first():
                save_state(folder / f"{name}.safetensors", result)
    print(json.dumps({"cases": len(names or CASES)}))


if __name__ == "__main__":
    warnings.simplefilter("ignore", PartlabelWarning)
    main(Path(sys.argv[1]), sys.argv[2:])
