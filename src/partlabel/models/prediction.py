"""Predictions of a model, batch by batch: the one way in which images become scores."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base import processes
from partlabel.images.batches import Inputs, Rows, in_batches
from partlabel.labels import LabelTable
from partlabel.metrics.known_cells import KnownCells, joined

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


@runtime_checkable
class ReadsBlocks(Protocol):
    """A source whose inputs are small, so that more rows than a batch has are scored at a time."""

    block: int
    """Rows that are scored at a time, at least."""


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
        batch: images at a time.
        workers: processes that decode images; None for a number that suits this computer.
        forward: a function of model and inputs to compute instead of logits.
        on_inputs: called with the inputs of each batch, which also name images that are unreadable.
    """
    model.eval()
    size = max(batch, inputs.block) if isinstance(inputs, ReadsBlocks) else batch
    batches = in_batches(rows, size)
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


def collect_known(predictions: Predictions, table: LabelTable) -> KnownCells:
    """The known labels of a table for the images that are predicted, with their scores."""
    parts = [known_part(rows, logits, table) for rows, logits in predictions]
    return joined(parts, len(table.classes))


def known_part(rows: NDArray[np.int64], logits: Tensor, table: LabelTable) -> KnownCells:
    """The known labels of some rows of a table, with their scores.

    Args:
        rows: [b]
        logits: [b, C]
    """
    cells = table.cells.take(rows)
    if not cells.values.all():
        cells = cells.where(cells.values != 0)
    image, columns = cells.rows, cells.columns
    own = logits[torch.from_numpy(image), torch.from_numpy(columns).long()]
    scores = torch.sigmoid(own.cpu().double()).numpy()
    return KnownCells(rows[image], columns, cells.values, scores, len(table.classes))
