"""Predictions of a model, batch by batch: the one way in which images become scores."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base import processes
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

    Several processes take turns with the batches, and each gets the results of all.

    Args:
        workers: processes that decode images; None for a number that suits this computer.
        forward: a function of model and inputs to compute instead of logits.
        on_inputs: called with the inputs of each batch, which also name images that are unreadable.
    """
    model.eval()
    batches = in_batches(rows, batch)
    parts = inputs.batches(batches[processes.rank() :: processes.size()], ("clean",), 0, workers)
    for _ in range(0, len(batches), processes.size()):
        for part, output in _exchanged(model, next(parts, None), forward):
            on_inputs(part)
            if output is not None:
                yield part.rows, output


def _exchanged(
    model: "Classifier", part: Inputs | None, forward: Forward | None
) -> Iterator[tuple[Inputs, Tensor | None]]:
    """The outputs for a batch, and those of the batches of other processes, in their order.

    Args:
        part: None if there is no batch left for this process.
    """
    output = None if part is None else _output(model, part, forward)
    if processes.size() == 1:
        if part is not None:
            yield part, output
        return
    own = None
    if part is not None:  # without the inputs, which others do not need
        results = None if output is None else output.cpu()
        own = Inputs(part.rows, {}, part.broken), results
    for each in processes.exchange(own):
        if each is not None:
            yield each[0], None if each[1] is None else each[1].to(model.device)


def _output(model: "Classifier", part: Inputs, forward: Forward | None) -> Tensor | None:
    if not len(part.rows):
        return None
    clean = part.views["clean"].to(model.device)
    with torch.no_grad(), model.backbone.autocast():  # closed before the caller's code runs
        return (model(clean) if forward is None else forward(model, clean)).float()


def collect_scores(predictions: Predictions) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores [n, C] from 0 to 1, and their rows [n]."""
    # in double precision: in single precision, all logits above 17 would tie at 1
    parts = [(rows, torch.sigmoid(logits.cpu().double()).numpy()) for rows, logits in predictions]
    if not parts:
        return np.empty((0, 0)), np.empty(0, dtype=np.int64)
    rows = np.concatenate([rows for rows, _ in parts])
    return np.concatenate([scores for _, scores in parts]), rows
