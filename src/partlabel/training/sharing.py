"""Share out the batches of a training to several processes.

Each process passes its share of a batch through the model. What comes out, feature maps or logits,
is gathered: from there on each process has the whole batch, and computes the same loss. Methods
need not know about it. A gradient goes back to the share that each process computed, and the
gradients of the weights are averaged. The result is that of one process, except for what looks at
a share only: batch statistics, and random layers of the backbone.
"""

import itertools
import zlib
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from partlabel.base import processes
from partlabel.base.errors import JobError
from partlabel.base.randomness import key
from partlabel.images.batches import Inputs, Rows
from partlabel.images.views import seed_generator
from partlabel.models import Classifier
from partlabel.models.prediction import Forward, InputSource


class Shares:
    """The shares of the current batch, while there is one.

    Attributes:
        sizes: the number of images in the share of each process; empty between batches, and if
            there is one process.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._signal = 0

    def load(
        self,
        source: InputSource,
        batches: list[Rows],
        views: tuple[str, ...],
        epoch: int,
        workers: int | None,
        signal: Callable[[], int],
    ) -> Generator[Inputs]:
        """The inputs of this process's share of each batch, with the rows of the whole batch.

        Args:
            signal: gives the number of a signal that asks this process to stop, 0 for none.
        """
        if processes.size() == 1:
            yield from source.batches(batches, views, epoch, workers)
            return
        shares = [rows[processes.share(rows)] for rows in batches]
        try:
            for inputs in source.batches(shares, views, epoch, workers):
                own = inputs.rows, inputs.broken, signal()
                rows, broken, signals = zip(*processes.exchange(own), strict=True)
                self._signal, self.sizes = max(signals), [len(part) for part in rows]
                messages = {row: text for part in broken for row, text in part.items()}
                views_of_share = inputs.views if self.own else _placeholders(inputs.views)
                yield Inputs(np.concatenate(rows), views_of_share, messages)
        finally:
            self.sizes = []

    def stopping(self, signal: Callable[[], int]) -> int:
        """The signal that asks to stop; all processes stop after the same step."""
        return signal() if processes.size() == 1 else self._signal

    @property
    def own(self) -> int:
        """The number of images in the share of this process."""
        return self.sizes[processes.rank()]


def gather_outputs(model: Classifier, shares: Shares) -> None:
    """Let a model, and copies of it, gather what it computes of shares.

    If the head treats each image alone, each process runs it on its share and logits are gathered.
    A head with dropout needs the whole batch to draw as one process draws, so feature maps are
    gathered before it.
    """
    if processes.size() == 1:
        return
    in_model = [False]  # closures, which copies of the model share

    def before_model(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(module, Classifier)
        in_model[0] = bool(shares.sizes) and treats_images_alone(module.head)

    def after_model(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        if not in_model[0]:
            return output
        in_model[0] = False
        return gather(output, shares.sizes)

    def after_backbone(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return gather(output, shares.sizes) if shares.sizes and not in_model[0] else output

    model.register_forward_pre_hook(before_model)
    model.register_forward_hook(after_model)
    model.backbone.register_forward_hook(after_backbone)


def treats_images_alone(head: nn.Module) -> bool:
    """Whether the output of a head for an image depends on nothing but its feature map."""
    return not any(module.training and _mixes(module) for module in head.modules())


def _mixes(module: nn.Module) -> bool:
    if isinstance(module, nn.MultiheadAttention):
        return bool(module.dropout > 0)
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return bool(module.p > 0)
    return isinstance(module, _BatchNorm)


def gather(local: Tensor, sizes: list[int]) -> Tensor:
    """The rows of all processes, in their order.

    Args:
        local: [k * n, ...] the rows of this process, of k views one after another; [k, ...] if its
            n is 0, as networks need at least one.
        sizes: n of each process.

    Returns:
        [k * sum(n), ...] all views, one after another. The gradient goes to the local rows, times
        the number of processes, as gradients of weights are averaged.
    """
    gathered: Tensor = _Gather.apply(local, sizes)  # type: ignore[no-untyped-call]
    return gathered


def _placeholders(views: dict[str, Tensor]) -> dict[str, Tensor]:
    """One row for each view, in place of none."""
    return {name: view.new_zeros((1, *view.shape[1:])) for name, view in views.items()}


class _Gather(torch.autograd.Function):
    """See :func:`gather`."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, sizes: list[int]) -> Tensor:
        rest, own = local.shape[1:], sizes[processes.rank()]
        by_view = local.reshape(-1, max(own, 1), *rest)
        ctx.sizes, ctx.shape = sizes, by_view.shape
        padded = local.new_zeros((len(by_view), max(sizes), *rest))
        padded[:, :own] = by_view[:, :own]
        parts = [torch.empty_like(padded) for _ in sizes]
        with processes.collective():
            dist.all_gather([_as_bytes(part) for part in parts], _as_bytes(padded))
        whole = [part[:, :number] for part, number in zip(parts, sizes, strict=True)]
        return torch.cat(whole, dim=1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,), rank = gradients, processes.rank()
        start, own = sum(ctx.sizes[:rank]), ctx.sizes[rank]
        by_view = gradient.reshape(len(gradient) // sum(ctx.sizes), -1, *gradient.shape[1:])
        result = gradient.new_zeros(ctx.shape)
        result[:, :own] = by_view[:, start : start + own] * len(ctx.sizes)
        return result.flatten(0, 1), None


def _as_bytes(tensor: Tensor) -> Tensor:
    """The memory of a tensor; any data type can then be sent."""
    return tensor.view(-1).view(torch.uint8)


def average_gradients(model: nn.Module) -> None:
    """Average the gradients of a model over all processes.

    Gradients of the method's own parameters are the same in all, as its loss is.
    """
    processes.average(
        parameter.grad for parameter in model.parameters() if parameter.grad is not None
    )


@torch.no_grad()
def average_statistics(model: nn.Module, shares: list[int]) -> None:
    """Average the running batch statistics over all processes, by the sizes of their shares."""
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if processes.size() == 1 or not any(layer.training for layer in layers):
        return
    own = len(shares) * shares[processes.rank()] / max(sum(shares), 1)
    statistics = [s for m in layers for s in (m.running_mean, m.running_var) if s is not None]
    for statistic in statistics:
        statistic *= own
    processes.average(statistics)
    if not all(shares):  # a process without images has counted no batch
        counts = [m.num_batches_tracked for m in layers if m.num_batches_tracked is not None]
        everywhere = processes.exchange([int(count) for count in counts])
        for count, numbers in zip(counts, zip(*everywhere, strict=True), strict=True):
            count.fill_(max(numbers))


def drawing_apart(forward: Forward, seed: int, epoch: int) -> Forward:
    """A function of model and inputs whose random numbers depend on the number of the batch only.

    It is called for the batches of this process in turn.
    """
    numbers = itertools.count(processes.rank(), processes.size())

    def apart(model: Classifier, inputs: Tensor) -> Tensor:
        devices = [inputs.device] if inputs.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            seed_generator(key(seed, "before epoch", epoch, next(numbers)))
            return forward(model, inputs)

    return apart


def check_equal(model: Classifier, epoch: int) -> None:
    """Raise an error unless all processes have the same weights, bit for bit."""
    if processes.size() == 1:
        return
    digest = 0
    for _, weight in sorted(model.trained_weights().items()):
        digest = zlib.crc32(_as_bytes(weight.cpu().contiguous()).numpy().data, digest)
    digests = processes.exchange(digest)
    differing = [who for who, other in enumerate(digests) if other != digests[0]]
    if differing:
        raise JobError(
            f"after epoch {epoch}, process {differing[0]} has other weights than process 0, as its "
            "computer rounds in another way; use computers with the same kind of processor"
        )
