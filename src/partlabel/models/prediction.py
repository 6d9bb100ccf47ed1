"""Apply a model to images, batch by batch."""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.images.pictures import Inputs, Rows, in_batches
from partlabel.models import Classifier

Forward = Callable[[Classifier, Tensor], Tensor]
Predictions = Iterator[tuple[NDArray[np.int64], Tensor]]


class InputSource(Protocol):
    """A source of model inputs: images or cached maps."""

    def batches(
        self, rows: list[Rows], views: tuple[str, ...], epoch: int = 0, workers: int = 0
    ) -> Iterator[Inputs]:
        """The inputs of batches of rows, in this order."""


def predict(
    model: Classifier,
    inputs: InputSource,
    rows: Rows,
    batch: int,
    workers: int = 0,
    *,
    forward: Forward | None = None,
    seen: Callable[[Inputs], object] = lambda part: None,
) -> Predictions:
    """Rows [b] and logits [b, C] of each batch, with the model in evaluation mode.

    Args:
        model: the classifier, which is set to evaluation mode.
        inputs: where the inputs come from; their clean view is used.
        rows: [n] which rows to predict.
        batch: rows per batch.
        workers: processes that decode images; 0 to decode in this process.
        forward: a function of model and inputs whose result is returned in place of the logits.
        seen: called with the inputs of each batch, also if all of its images are broken.
    """
    model.eval()
    for part in inputs.batches(in_batches(rows, batch), ("clean",), 0, workers):
        seen(part)
        if not len(part.rows):
            continue
        clean = part.views["clean"].to(model.device)
        with torch.no_grad():  # must be closed before ``yield``, where code of the caller runs
            outputs = (model(clean) if forward is None else forward(model, clean)).float()
        yield part.rows, outputs


def gather(predictions: Predictions) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores [n, C] from 0 to 1, and their rows [n]."""
    # in double precision: in single precision all logits above 17 would give a score of 1
    parts = [(rows, torch.sigmoid(logits.cpu().double()).numpy()) for rows, logits in predictions]
    if not parts:
        return np.empty((0, 0)), np.empty(0, dtype=np.int64)
    rows = np.concatenate([rows for rows, _ in parts])
    return np.concatenate([scores for _, scores in parts]), rows
