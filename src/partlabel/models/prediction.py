"""What a model says of pictures, batch by batch."""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.images.batches import Inputs, Rows, in_batches
from partlabel.models import Classifier

Forward = Callable[[Classifier, Tensor], Tensor]
Predictions = Iterator[tuple[NDArray[np.int64], Tensor]]


class InputSource(Protocol):
    """Pictures or cached maps: gives the inputs of batches of rows."""

    def batches(
        self, rows: list[Rows], views: tuple[str, ...], epoch: int = 0, workers: int = 0
    ) -> Iterator[Inputs]:
        """The inputs of these batches, in this order."""


def predict(
    model: Classifier,
    inputs: InputSource,
    rows: Rows,
    batch: int,
    workers: int = 0,
    *,
    forward: Forward | None = None,
    seen: Callable[[Inputs], object] = lambda found: None,
) -> Predictions:
    """Rows [b] and logits [b, C] of clean pictures, model in evaluation mode.

    Args:
        forward: what to ask instead of logits, a function of model and inputs.
        seen: is told what was read, also of pictures that cannot be.
    """
    model.eval()
    for found in inputs.batches(in_batches(rows, batch), ("clean",), 0, workers):
        seen(found)
        if not len(found.rows):
            continue
        clean = found.views["clean"].to(model.device)
        with torch.no_grad():  # closed before the caller's own code runs
            said = (model(clean) if forward is None else forward(model, clean)).float()
        yield found.rows, said


def gather(predictions: Predictions) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores [n, C] from 0 to 1, and their rows [n]."""
    # in double precision: in single, all logits above 17 would tie at 1
    parts = [(rows, torch.sigmoid(logits.cpu().double()).numpy()) for rows, logits in predictions]
    if not parts:
        return np.empty((0, 0)), np.empty(0, dtype=np.int64)
    rows = np.concatenate([rows for rows, _ in parts])
    return np.concatenate([scores for _, scores in parts]), rows
