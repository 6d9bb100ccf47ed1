"""Predictions of a model, batch by batch: the one way in which images become scores."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.images.batches import Inputs, Rows, in_batches

if TYPE_CHECKING:
    from partlabel.models.classifier import Classifier

Forward = Callable[["Classifier", Tensor], Tensor]
Predictions = Iterator[tuple[NDArray[np.int64], Tensor]]


class InputSource(Protocol):
    """Images or cached feature maps: gives the inputs of batches of rows."""

    def batches(
        self, rows: list[Rows], views: tuple[str, ...], epoch: int = 0, workers: int | None = None
    ) -> Iterator[Inputs]:
        """The inputs of these batches, in this order."""


def iterate_logits(
    model: "Classifier",
    inputs: InputSource,
    rows: Rows,
    batch: int,
    workers: int | None = None,
    *,
    forward: Forward | None = None,
    on_inputs: Callable[[Inputs], object] = lambda inputs: None,
) -> Predictions:
    """Rows [b] and logits [b, C] of clean images, with the model in evaluation mode.

    Args:
        workers: processes that decode images; None for a number that suits this computer.
        forward: a function of model and inputs to compute instead of logits.
        on_inputs: called with the inputs of each batch, which also name images that are unreadable.
    """
    model.eval()
    for part in inputs.batches(in_batches(rows, batch), ("clean",), 0, workers):
        on_inputs(part)
        if not len(part.rows):
            continue
        clean = part.views["clean"].to(model.device)
        with torch.no_grad(), model.backbone.autocast():  # closed before the caller's code runs
            output = (model(clean) if forward is None else forward(model, clean)).float()
        yield part.rows, output


def collect_scores(predictions: Predictions) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores [n, C] from 0 to 1, and their rows [n]."""
    # in double precision: in single precision, all logits above 17 would tie at 1
    parts = [(rows, torch.sigmoid(logits.cpu().double()).numpy()) for rows, logits in predictions]
    if not parts:
        return np.empty((0, 0)), np.empty(0, dtype=np.int64)
    rows = np.concatenate([rows for rows, _ in parts])
    return np.concatenate([scores for _, scores in parts]), rows
