"""A training on vectors in memory: the same methods and the same loop, and no run to keep."""

import io
import warnings
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.base.randomness import key
from partlabel.labels import LabelTable
from partlabel.learning.extensions import HasMembers
from partlabel.learning.method import Task
from partlabel.models import Classifier, Reduction
from partlabel.models.features.embeddings import Embeddings, Vectors
from partlabel.training.arguments import effective
from partlabel.training.build import build
from partlabel.training.examples import Examples
from partlabel.training.run_split import cut
from partlabel.training.settings import Settings
from partlabel.training.train import train
from partlabel.training.trainer import InterruptedTrainingError, Trainer


class SilentWatcher:
    """Shows nothing but warnings."""

    def begin(self, epoch: int, epochs: int, steps: int, done: int) -> None:
        """Nothing is shown."""

    def step(self, figures: dict[str, float], images: int) -> None:
        """Nothing is shown."""

    def end(self, record: dict[str, Any]) -> None:
        """Nothing is shown."""

    def saved(self, history: list[dict[str, Any]]) -> None:
        """Nothing is shown."""

    def note(self, message: str) -> None:
        """Nothing is shown."""

    def warn(self, message: str) -> None:
        """Issue a warning."""
        warnings.warn(message, PartlabelWarning, stacklevel=2)


def fit_vectors(
    vectors: Vectors, dimension: int, table: LabelTable, settings: Settings
) -> Classifier:  # fmt: skip
    """Train a head on vectors, whose rows are those of the table.

    The share ``settings.val`` of the rows is validated on; with 0 the last epoch is kept.
    """
    rows = np.arange(len(table))
    val, train = cut(table, rows, settings.val or 0.0, key(settings.seed, "validation"))
    with torch.random.fork_rng():  # the caller's generator stays as it is
        torch.manual_seed(key(settings.seed, "init"))
        model, method = build(settings, list(table.classes), pretrained=True, features=dimension)
        if isinstance(method, HasMembers) and method.members > 1:
            raise InputError("an ensemble needs a run on disk; use partlabel.train")
        if isinstance(model.backbone.reduction, Reduction):
            raise InputError("reduce vectors before, with PCA for example")
        method.prepare(Task(table.subset(train), table.subset(val), settings.epochs))
        parts = table.subset(np.concatenate([train, val]))
        inputs = Embeddings(vectors, np.concatenate([train, val]))
        examples = (
            Examples(parts, inputs, np.arange(len(train))),
            Examples(parts, inputs, np.arange(len(train), len(rows))),
        )
        trainer = Trainer(model, method, *examples, settings, None, SilentWatcher())
        try:
            trainer.fit()
        except InterruptedTrainingError:
            raise KeyboardInterrupt from None
    return model.cpu().eval()


def search_vectors(
    vectors: NDArray[np.float32], table: LabelTable, settings: Settings
) -> Classifier:
    """Let ``auto`` search on vectors [n, D], whose rows are those of the table.

    Its trainings are in a temporary folder, which is removed in the end.
    """
    with TemporaryDirectory() as name:
        features = Path(name) / "features.npz"
        np.savez(features, ids=np.array(list(table.ids)), vectors=vectors)
        chosen = effective(settings)
        chosen.pop("backbone")
        with redirect_stderr(io.StringIO()):  # its progress
            run = train(table, out=Path(name) / "run", features=features, device="cpu", **chosen)
        return run.classifier()
