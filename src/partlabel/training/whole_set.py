"""All training images as one batch for L-BFGS, part by part: memory does not grow with them."""

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from torch import Tensor, nn

from partlabel.base.allocation import physical_memory
from partlabel.base.errors import InputError, data_size
from partlabel.base.numerics import widest
from partlabel.images.batches import Batch, Rows, in_batches
from partlabel.learning.methods import Method
from partlabel.training.examples import Examples

_LABELS = 1 << 22  # labels of a part: their costs and gradients take about ten arrays of this size
_NUMBERS = 1 << 25  # numbers of the inputs of a part
_ARRAYS = 10  # arrays as large as the labels that a loss and its gradient take


@dataclass(frozen=True)
class WholeSet:
    """All images of a training, which are loaded again each time one goes over their parts.

    Args:
        rows: [N] the rows of the training table.
        size: rows of a part.
        load: the batches of lists of rows.
    """

    rows: Rows
    size: int
    load: Callable[[list[Rows]], Iterator[Batch]]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Batch]:
        return self.load(in_batches(self.rows, self.size))


def whole_set(
    examples: Examples, method: Method, load: Callable[[list[Rows]], Generator[Batch]]
) -> Iterator[Batch] | Iterator[WholeSet]:
    """All images of a training: one batch, or parts that take a few hundred megabytes each.

    If the loss of a method cannot be summed up over parts, it is always one batch. It is an error
    if that is more than the memory of this computer.
    """
    size = _part_size(examples, method, load)
    if size >= len(examples.rows):
        return load([examples.rows])
    return iter([WholeSet(examples.rows, size, load)])


def _first_readable(rows: Rows, load: Callable[[list[Rows]], Generator[Batch]]) -> Batch | None:
    """A batch with an image that can be read: of the first one, or of more; None if none can."""
    start, size = 0, 1
    while start < len(rows):
        with closing(load([rows[start : start + size]])) as parts:
            first = next(parts, None)
        if first is not None and len(first):
            return first
        start, size = start + size, 2 * size
    return None


def _part_size(
    examples: Examples, method: Method, load: Callable[[list[Rows]], Generator[Batch]]
) -> int:
    rows, classes = examples.rows, max(len(examples.table.classes), 1)
    first = _first_readable(rows, load)
    if first is None:
        return len(rows)  # which the training then reports
    views = {view.data_ptr(): view for view in first.views.values()}.values()
    numbers = max(sum(view.numel() for view in views) // len(first), 1)
    size = max(min(_LABELS // classes, _NUMBERS // numbers), 1)
    if size >= len(rows) or method.part_weights(first) is not None:
        return min(size, len(rows))
    needed = 4 * len(rows) * (numbers + _ARRAYS * classes)
    if needed > physical_memory():
        raise InputError(
            f"the loss of this method cannot be summed up over parts of the images, and all of "
            f"them need {data_size(needed)} of memory; use another --optimizer than lbfgs"
        )
    return len(rows)


@dataclass
class Sums:
    """Weighted means of figures and gradients over parts, in double precision.

    Args:
        parameters: those whose gradients are summed up.
    """

    parameters: list[nn.Parameter]
    figures: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    gradients: dict[int, Tensor] = field(default_factory=dict)

    def add(self, figures: dict[str, float], weights: dict[str, float]) -> None:
        """Add the figures of a part; a figure without a weight has that of the loss."""
        for name, value in figures.items():
            weight = weights.get(name, weights["loss"])
            self.figures[name] = self.figures.get(name, 0.0) + weight * value
            self.weights[name] = self.weights.get(name, 0.0) + weight

    def add_gradients(self, weight: float) -> None:
        """Add the gradients of a part, which are in the parameters."""
        for number, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                continue
            weighted = weight * widest(parameter.grad)
            before = self.gradients.get(number)
            self.gradients[number] = weighted if before is None else before + weighted

    def means(self) -> dict[str, float]:
        """The figures of all parts together."""
        return {
            name: value / self.weights[name] if self.weights[name] else 0.0
            for name, value in self.figures.items()
        }

    def set_gradients(self) -> None:
        """Write the gradients of all parts together into the parameters."""
        total = self.weights.get("loss", 0.0)
        for number, gradient in self.gradients.items():
            parameter = self.parameters[number]
            parameter.grad = (gradient / (total or math.inf)).to(parameter.dtype)
