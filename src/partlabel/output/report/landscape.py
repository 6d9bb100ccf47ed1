"""The loss around trained weights.

[1] Li et al., Visualizing the Loss Landscape of Neural Nets, NeurIPS 2018.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from partlabel.base.randomness import key
from partlabel.base.terminal import progress
from partlabel.images.batches import Batch, in_batches
from partlabel.images.views import seed_generator
from partlabel.learning.methods import Method, Task
from partlabel.models import Classifier
from partlabel.output.report.analysis import Numbers
from partlabel.output.report.sample import draw
from partlabel.training.inputs import make_inputs
from partlabel.training.run import Run
from partlabel.training.selection import locate_all
from partlabel.training.train import task_of

Direction = dict[str, Tensor]

_IMAGES = 256
_LINE, _SIDE = 21, 11  # points along a line, and along each side of a square


@dataclass(frozen=True)
class Landscape:
    """Losses at steps from -1 to 1: along a direction [21], and in a plane of two [11, 11]."""

    line: Numbers
    surface: Numbers

    @property
    def at_weights(self) -> float:
        """The loss where the weights are."""
        return float(self.line[len(self.line) // 2])


def steps(number: int) -> Numbers:
    """[number] steps from -1 to 1; the middle one is 0."""
    return np.linspace(-1.0, 1.0, number)


def directions(model: nn.Module, seed: int) -> Direction:
    """A random direction for all weights that train, filter by filter as long as they are [1].

    Args:
        model: its weights decide how long the direction is; its names, and the seed, where to.

    Returns:
        A Gaussian for each parameter, each of its filters (rows) scaled to the norm of the
        parameter's own; zero for parameters of one dimension, such as biases and norms.
    """
    found = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            generator = torch.Generator().manual_seed(key("landscape", seed, name))
            drawn = torch.randn(weight.shape, generator=generator).to(weight)
            found[name] = _as_long_as(drawn, weight.detach())
    return found


def _as_long_as(drawn: Tensor, weight: Tensor) -> Tensor:
    if weight.ndim < 2:
        return torch.zeros_like(weight)
    across = tuple(range(1, weight.ndim))
    wanted = torch.linalg.vector_norm(weight, dim=across, keepdim=True)
    found = torch.linalg.vector_norm(drawn, dim=across, keepdim=True)
    scaled: Tensor = drawn * (wanted / found.clamp_min(1e-12))
    return scaled


def along(
    model: nn.Module,
    cost: Callable[[], float],
    ways: Sequence[Direction],
    points: Numbers,
    tell: Callable[[], object] = lambda: None,
) -> Numbers:
    """What ``cost`` says when the weights are moved; afterwards they are what they were.

    Args:
        cost: looks at the model.
        ways: k directions.
        points: [n, k] how far to go along each.
        tell: is called after each point.

    Returns:
        [n] the costs, NaN where one is no number.
    """
    weights = {n: w for n, w in model.named_parameters() if any(n in way for way in ways)}
    kept = {name: weight.detach().clone() for name, weight in weights.items()}
    found = np.empty(len(points))
    with torch.no_grad():
        try:
            for place, point in enumerate(points):
                for name, weight in weights.items():
                    moves = [float(x) * w[name] for x, w in zip(point, ways, strict=True)]
                    weight.copy_(kept[name] + torch.stack(moves).sum(dim=0))
                found[place] = cost()
                tell()
        finally:
            for name, weight in weights.items():
                weight.copy_(kept[name])
    return np.where(np.isfinite(found), found, np.nan)


def training_cost(model: Classifier, method: Method, batches: Sequence[Batch]) -> float:
    """The mean of the method's own loss over batches; asked again, it says the same."""
    buffers = {name: value.clone() for name, value in method.named_buffers()}
    total, images = 0.0, 0
    with torch.no_grad(), torch.random.fork_rng():
        for number, batch in enumerate(batches):
            seed_generator(key("landscape", number))
            total += float(method.loss(model, batch)["loss"]) * len(batch)
            images += len(batch)
        for name, value in method.named_buffers():  # a queue may have moved on
            value.copy_(buffers[name])
    return total / max(images, 1)


def survey(run: Run, name: str, cache: str | os.PathLike[str] | None) -> Landscape:
    """Look around the weights with which a run ended, with its method as it was then."""
    task = task_of(run)
    model, method = run.classifier(), run.method(task)
    # not the kept weights: these two belong together, and a training ends in a minimum or nowhere
    model.load_state_dict(run.last_state()["model"], strict=False)
    method.begin_stage(len(method.stages(run.settings.epochs, run.settings.patience)) - 1, model)
    model.eval()
    batches = _batches(run, task, model, method, cache)
    ways = [directions(model, seed) for seed in (0, 1)]
    line = steps(_LINE)[:, None]
    square = np.stack(np.meshgrid(steps(_SIDE), steps(_SIDE), indexing="ij"), axis=-1)
    done, total = 0, len(line) + _SIDE**2
    with progress(f"loss around {name}") as bar:

        def tell() -> None:
            nonlocal done
            done += 1
            bar(done, total)

        def cost() -> float:
            return training_cost(model, method, batches)

        on_line = along(model, cost, ways[:1], line, tell)
        on_square = along(model, cost, ways, square.reshape(-1, 2), tell)
    return Landscape(on_line, on_square.reshape(_SIDE, _SIDE))


def _batches(
    run: Run, task: Task, model: Classifier, method: Method, cache: str | os.PathLike[str] | None
) -> list[Batch]:
    """Clean training pictures under the names of all views, the model as its own teacher."""
    rows = draw(task.labels, _IMAGES)
    part = task.labels.subset(rows)
    paths = locate_all(part, run.record.images)
    inputs = make_inputs(model, part, paths, run.settings, cache, lambda message: None)
    parts = in_batches(np.arange(len(part)), run.settings.batch)
    return [
        Batch(
            torch.from_numpy(rows[found.rows]),
            torch.from_numpy(part.dense(found.rows)).float(),
            dict.fromkeys(method.views, found.views["clean"]),
            model,
        )
        for found in inputs.batches(parts, ("clean",), 0, run.settings.workers)
        if len(found.rows)
    ]
