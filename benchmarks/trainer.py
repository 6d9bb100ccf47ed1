"""Time of the trainer, compared with a plain PyTorch loop with the same model, loss and inputs."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import print_result
from partlabel.images.batches import in_batches
from partlabel.images.pictures import Pictures
from partlabel.labels import scenes
from partlabel.learning import losses
from partlabel.learning.methods.bce import Bce
from partlabel.models import Backbone, Classifier
from partlabel.models.features import cached_maps
from partlabel.models.prediction import InputSource
from partlabel.training.arguments import make_settings
from partlabel.training.build import make_head
from partlabel.training.examples import Examples
from partlabel.training.trainer import Trainer

IMAGES, SIZE, BATCH = 640, 96, 32


class Silent:
    """A watcher that does nothing."""

    def begin(self, *_: Any) -> None:
        """Do nothing."""

    step = end = saved = note = warn = begin


def _model(frozen: Any) -> Classifier:
    torch.manual_seed(0)
    backbone = Backbone("tf_efficientnet_lite0", "imagenet", frozen, SIZE)
    return Classifier(backbone, make_head(Bce(), backbone.channels, 20), scenes.CLASSES[:20])


def _plain_loop(model: Classifier, inputs: InputSource, labels: torch.Tensor, epochs: int) -> None:
    """A plain training loop."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=1e-3, fused=True)  # as in the trainer
    for epoch in range(epochs):
        model.train()
        rows = in_batches(np.random.default_rng(epoch).permutation(len(labels)), BATCH)
        for batch in inputs.batches(rows, ("weak",), epoch):
            loss = losses.bce(model(batch.views["weak"]), labels[torch.from_numpy(batch.rows)])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def _compare(
    case: str, frozen: Any, epochs: int, rounds: int, limit: float, folder: Path, table: Any
) -> None:
    paths = [folder / "images" / name for name in table.ids]
    pictures = Pictures(list(table.ids), paths, SIZE, seed=0)
    inputs: InputSource = pictures
    if frozen == "all":
        backbone = _model("all").backbone
        inputs = cached_maps(backbone, pictures, folder / "cache")
        inputs.apply(lambda maps: maps.mean(dim=(2, 3), keepdim=True), in_memory=True)
    labels = torch.from_numpy(table.dense()).float()
    settings = make_settings(method="bce", epochs=epochs, batch=BATCH, size=SIZE, frozen=frozen)
    rows = np.arange(len(table))
    ratios = []
    for number in range(rounds):
        model = _model(frozen)
        start = time.process_time()  # of the CPU: other work on the machine hardly counts
        _plain_loop(model, inputs, labels, epochs)
        plain_seconds = time.process_time() - start
        # without validation images, as in the plain loop
        train, val = Examples(table, inputs, rows), Examples(table, inputs, rows[:0])
        trainer = Trainer(
            _model(frozen), Bce(), train, val, settings, folder / f"{frozen}{number}", Silent()
        )
        start = time.process_time()
        trainer.fit()
        ratios.append((time.process_time() - start) / plain_seconds)
    ratio = float(np.median(ratios))
    print_result(f"trainer / plain loop, {case}", f"{ratio:.3f}", f"<= {limit}", ratio <= limit)


def run() -> None:
    """Compare both with a trained backbone, and with cached features."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "s"
        table = scenes.write(folder, IMAGES, scenes.World(20, SIZE, 0))
        _compare("trained backbone", "nothing", 1, 5, 1.05, folder, table)
        _compare("cached features", "all", 30, 15, 1.10, folder, table)
