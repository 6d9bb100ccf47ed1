"""The loss around trained weights.

[1] Li et al., Visualizing the Loss Landscape of Neural Nets, NeurIPS 2018.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from partlabel.base.randomness import key
from partlabel.base.terminal import progress
from partlabel.images.batches import Batch, in_batches
from partlabel.images.views import seed_generator
from partlabel.learning.extensions import FollowsStages
from partlabel.learning.methods import Method
from partlabel.models import Classifier
from partlabel.output.report.analysis import Numbers
from partlabel.output.report.sample import draw
from partlabel.training.embedded import inputs_of
from partlabel.training.run import Run

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
        """The loss at the weights themselves."""
        return float(self.line[len(self.line) // 2])


def steps(number: int) -> Numbers:
    """[number] steps from -1 to 1; the middle one is 0."""
    return np.linspace(-1.0, 1.0, number)


def random_direction(model: nn.Module, seed: int) -> Direction:
    """A random direction for all weights that train, with the norm of each of their filters [1].

    Args:
        model: the norms of its weights decide how far the direction goes.
        seed: decides the direction, together with the names of the weights.

    Returns:
        A Gaussian per parameter, each of its filters (rows) scaled to the norm of the same filter
        of the parameter; zero for parameters of one dimension, such as biases and norms.
    """
    direction = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            generator = torch.Generator().manual_seed(key("landscape", seed, name))
            gaussian = torch.randn(weight.shape, generator=generator).to(weight)
            direction[name] = _with_norms_of(gaussian, weight.detach())
    return direction


def _with_norms_of(gaussian: Tensor, weight: Tensor) -> Tensor:
    if weight.ndim < 2:
        return torch.zeros_like(weight)
    dims = tuple(range(1, weight.ndim))
    wanted = torch.linalg.vector_norm(weight, dim=dims, keepdim=True)
    actual = torch.linalg.vector_norm(gaussian, dim=dims, keepdim=True)
    scaled: Tensor = gaussian * (wanted / actual.clamp_min(1e-12))
    return scaled


def costs_at(
    model: nn.Module,
    cost: Callable[[], float],
    directions: Sequence[Direction],
    points: Numbers,
    on_point: Callable[[], object] = lambda: None,
) -> Numbers:
    """Costs with the weights moved to these points. Afterwards the weights are as before.

    Args:
        cost: computes the cost of the model.
        directions: k directions.
        points: [n, k] how far to go along each direction.
        on_point: called after each point.

    Returns:
        [n] costs; NaN where a cost is not finite.
    """
    weights = {n: w for n, w in model.named_parameters() if any(n in d for d in directions)}
    originals = {name: weight.detach().clone() for name, weight in weights.items()}
    costs = np.empty(len(points))
    with torch.no_grad():
        try:
            for number, point in enumerate(points):
                for name, weight in weights.items():
                    moves = [float(x) * d[name] for x, d in zip(point, directions, strict=True)]
                    weight.copy_(originals[name] + torch.stack(moves).sum(dim=0))
                costs[number] = cost()
                on_point()
        finally:
            for name, weight in weights.items():
                weight.copy_(originals[name])
    return np.where(np.isfinite(costs), costs, np.nan)


def training_cost(model: Classifier, method: Method, batches: Sequence[Batch]) -> float:
    """The mean of the method's own loss over batches. Repeated calls give the same result."""
    buffers = {name: value.clone() for name, value in method.named_buffers()}
    total, images = 0.0, 0
    with torch.no_grad(), torch.random.fork_rng():
        for number, batch in enumerate(batches):
            seed_generator(key("landscape", number))
            total += float(method.loss(model, batch)["loss"]) * len(batch)
            images += len(batch)
        for name, value in method.named_buffers():  # the loss may have changed them
            value.copy_(buffers[name])
    return total / max(images, 1)


def survey(run: Run, name: str) -> Landscape:
    """The loss around the weights at the end of a training, with the method in its final state.

    Args:
        run: a finished run.
        name: its name, for the progress bar.
    """
    model, method = run.classifier(), run.method()
    # not the weights of the epoch that was kept: the method's state belongs to the last step, and
    # only the end of a training is near a minimum
    run.load_end(model)
    stages = method.stages(run.settings.epochs, run.settings.patience)
    if isinstance(method, FollowsStages):
        method.begin_stage(len(stages) - 1, model)
    model.eval()
    batches = _batches(run, model, method)
    directions = [random_direction(model, seed) for seed in (0, 1)]
    line = steps(_LINE)[:, None]
    square = np.stack(np.meshgrid(steps(_SIDE), steps(_SIDE), indexing="ij"), axis=-1)
    done, total = 0, len(line) + _SIDE**2
    with progress(f"loss around {name}") as bar:

        def advance() -> None:
            nonlocal done
            done += 1
            bar(done, total)

        def cost() -> float:
            return training_cost(model, method, batches)

        on_line = costs_at(model, cost, directions[:1], line, advance)
        on_square = costs_at(model, cost, directions, square.reshape(-1, 2), advance)
    return Landscape(on_line, on_square.reshape(_SIDE, _SIDE))


def _batches(run: Run, model: Classifier, method: Method) -> list[Batch]:
    """Clean training images in place of all views, with the model as its own teacher."""
    training = run.selection.training
    rows = draw(training, _IMAGES)
    table = training.subset(rows)
    inputs = inputs_of(run, model, table)
    parts = in_batches(np.arange(len(table)), run.settings.batch)
    return [
        Batch(
            torch.from_numpy(rows[part.rows]),
            torch.from_numpy(table.dense(part.rows)).float(),
            dict.fromkeys(method.views, part.views["clean"]),
            model,
        )
        for part in inputs.batches(parts, ("clean",), 0, run.execution.workers)
        if len(part.rows)
    ]
