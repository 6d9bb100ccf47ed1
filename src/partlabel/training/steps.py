"""The optimiser steps of a stage: the loss of a batch, its gradients, the update of the weights."""

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from partlabel.base import processes
from partlabel.base.errors import InputError, JobError
from partlabel.base.randomness import key
from partlabel.images.batches import Batch
from partlabel.images.views import seed_generator
from partlabel.learning.extensions import HasOwnRates
from partlabel.learning.methods import Method, Stage
from partlabel.models import Classifier
from partlabel.models.heads import WithEvidence
from partlabel.training.optimizers import WholeBatch, make_optimizer, set_rate, unhooked_step
from partlabel.training.progress import Progress
from partlabel.training.schedule import factor
from partlabel.training.settings import Settings
from partlabel.training.sharing import Shares, average_gradients, average_statistics
from partlabel.training.whole_set import Sums, WholeSet

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_CHECK_EVERY = 16  # steps between checks that gradients are finite
_SEEDS = 64  # seeds of steps that are computed together
_CONVERGED = 1e-6  # relative decrease of the cost in an epoch on all images at once

_NO_CONTEXT = nullcontext()

Figures = dict[str, float]


class Objective(nn.Module):
    """A model and a method as one module: a batch in, its loss out."""

    def __init__(self, model: Classifier, method: Method) -> None:
        super().__init__()
        self.model, self.method = model, method

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The loss of a batch and its parts."""
        parts = self.method.loss(self.model, batch)
        head = self.model.head
        if isinstance(head, WithEvidence):
            parts = {**parts, "loss": parts["loss"] + head.penalty()}
        return parts


class DivergedError(JobError):
    """The loss or its gradient is not finite."""


class Steps:
    """Takes the optimiser steps of one stage.

    Args:
        objective: the model and the method.
        stage: may have its own optimiser, learning rate and schedule.
        settings: those of the training.
        fabric: the device and the precision.
        shares: of the current batch, if several processes train.

    Attributes:
        optimizer: a new optimiser of all parameters that have a gradient.
        schedule: the name of the learning rate schedule.
    """

    def __init__(
        self,
        objective: Objective,
        stage: Stage,
        settings: Settings,
        fabric: "Fabric",
        shares: Shares | None = None,
    ) -> None:
        self.objective, self.settings, self.fabric = objective, settings, fabric
        self.shares = Shares() if shares is None else shares
        self.schedule = stage.schedule or settings.schedule
        lr = settings.lr if stage.lr is None else stage.lr
        trained = [p for p in objective.model.parameters() if p.requires_grad]
        groups = _own_groups(objective.method, lr)
        self.optimizer = make_optimizer(trained, groups, lr, settings, stage.optimizer)
        self.trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        # a line search needs all digits of the cost
        whole = isinstance(self.optimizer, WholeBatch)
        self.is_mixed = settings.precision != "32" and not whole
        scaler = getattr(fabric.strategy.precision, "scaler", None)
        self.scaler: torch.amp.GradScaler | None = scaler if self.is_mixed else None
        # otherwise weights that are not finite are noticed by the next loss, before they are saved
        self._step = unhooked_step(self.optimizer)
        self._block, self._seeds = -1, list[int]()
        self.checks_every_step = whole or settings.clip is not None or self.scaler is not None

    def take(self, batch: Batch | WholeSet, position: float, progress: Progress) -> Figures:
        """Take one step; returns the loss and its parts.

        Args:
            batch: at least one image; all of them for the optimiser ``lbfgs``.
            position: share of the stage that is over, for the schedule.
            progress: with the optimiser ``lbfgs``, ``final_cost`` and ``converged`` are updated.
        """
        if isinstance(self.optimizer, WholeBatch):
            return self._solve(batch, self.optimizer, progress)
        assert isinstance(batch, Batch)
        share = factor(self.schedule, position, self.settings.lr_warmup, self.settings.rise)
        set_rate(self.optimizer, share * progress.rate)
        figures = self._gradients(batch, progress.total_steps)
        if self.scaler is None:
            self._step()
        else:
            self.scaler.step(self.optimizer)  # does nothing if a gradient is infinite
            self.scaler.update()
        return figures

    def _solve(self, batch: Batch | WholeSet, optimizer: WholeBatch, progress: Progress) -> Figures:
        """A step of L-BFGS on all images; the figures are those of the weights after it."""
        costs: list[float] = []

        def closure() -> float:
            cost = self._summed(batch, progress.total_steps)["loss"]
            costs.append(processes.from_first(cost))  # all must search the same line
            return costs[-1]

        penalty = optimizer.penalty()
        optimizer.step(closure)
        with torch.no_grad():
            figures = self._summed(batch, progress.total_steps)
        first, final = costs[0] + penalty, figures["loss"] + optimizer.penalty()
        is_settled = self.objective.method.is_settled(progress.epoch)
        progress.converged = is_settled and has_converged(progress.final_cost, first, final)
        progress.final_cost = final
        return figures

    def _summed(self, batch: Batch | WholeSet, step: int) -> Figures:
        """The loss of all images and its parts, and their gradients unless these are off."""
        compute = self._gradients if torch.is_grad_enabled() else self._figures
        if isinstance(batch, Batch):
            return compute(batch, step)
        sums = Sums([p for group in self.optimizer.param_groups for p in group["params"]])
        for number, part in enumerate(batch):
            if not len(part):
                continue
            # the gradients are asked for their cost only
            part.logged = not torch.is_grad_enabled()
            figures = compute(part, step, number)
            weights = self.objective.method.part_weights(part)
            assert weights is not None
            sums.add(figures, weights)
            if torch.is_grad_enabled():
                sums.add_gradients(weights["loss"])
        if torch.is_grad_enabled():
            sums.set_gradients()
        return sums.means()

    def _figures(self, batch: Batch, step: int, part: int = 0) -> Figures:
        figures = _numbers(self._loss(batch, step, part))
        self._average_statistics()
        return figures

    def _gradients(self, batch: Batch, step: int, part: int = 0) -> Figures:
        """The loss of a batch and its parts; leaves the gradients in the parameters."""
        parts = self._loss(batch, step, part)
        figures = _numbers(parts)
        if not math.isfinite(figures["loss"]):
            raise DivergedError(f"the loss became {figures['loss']}")
        for parameter in self.trained:
            parameter.grad = None
        if self.is_mixed:
            self.fabric.backward(parts["loss"])
        else:
            parts["loss"].backward()  # type: ignore[no-untyped-call]
        average_gradients(self.objective.model)
        self._average_statistics()
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.checks_every_step or step % _CHECK_EVERY == 0:
            self._check_gradients()
        return figures

    def _check_gradients(self) -> None:
        """Raise an error if gradients are not finite, and clip them if they are to be clipped."""
        gradients = [p.grad for p in self.trained if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if not math.isfinite(float(norm)):  # before it gets into the weights, and a checkpoint
            if self.scaler is not None and self.scaler.get_scale() >= 1:
                return  # the step is left out, and the next one has a smaller scale
            raise DivergedError("the gradient became infinite")
        if self.settings.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.trained, self.settings.clip, norm)

    def has_finite_weights(self) -> bool:
        """Whether all weights that are trained are finite."""
        return all(bool(parameter.isfinite().all()) for parameter in self.trained)

    def _loss(self, batch: Batch, step: int, part: int = 0) -> dict[str, Tensor]:
        """The loss of a batch; the same again if it is computed again in this step.

        Args:
            part: its number, if it is a part of all images.
        """
        seed_generator(key(self.settings.seed, "step", step, part) if part else self._seed(step))
        try:
            with self.fabric.autocast() if self.is_mixed else _NO_CONTEXT:
                parts = self._parts(batch)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise InputError(
                "a batch of one image has no batch statistics at this size; "
                "set a larger --size or --batch, or --frozen"
            ) from error
        return parts

    def _parts(self, batch: Batch) -> dict[str, Tensor]:
        """The loss and its parts."""
        backbone = self.objective.model.backbone
        is_empty = self.shares.sizes and not self.shares.own
        if not is_empty or not backbone.training:
            return cast("dict[str, Tensor]", self.objective(batch))
        backbone.eval()  # there are no statistics of an empty share
        try:
            return cast("dict[str, Tensor]", self.objective(batch))
        finally:
            backbone.train()

    def _average_statistics(self) -> None:
        """Make batch statistics those of all processes; not before gradients are computed."""
        if self.shares.sizes:
            average_statistics(self.objective.model.backbone, self.shares.sizes)

    def _seed(self, step: int) -> int:
        """The seed of a step; those of a block are computed together, which is faster."""
        block, place = divmod(step, _SEEDS)
        if block != self._block:
            first, seed = block * _SEEDS, self.settings.seed
            self._seeds = [key(seed, "step", first + number) for number in range(_SEEDS)]
            self._block = block
        return self._seeds[place]


def has_converged(before: float | None, first: float, final: float) -> bool:
    """Whether an epoch on all images at once has brought nothing more.

    Args:
        before: the cost at the end of the last epoch; None in the first one. It is another one than
            the first cost of this epoch if labels or views have changed.
        first, final: the cost at the beginning and at the end of this epoch.
    """
    tolerance = _CONVERGED * max(abs(final), 1e-6)
    return before is not None and abs(first - before) <= tolerance >= first - final


def _numbers(parts: dict[str, Tensor]) -> Figures:
    return {name: part.item() for name, part in parts.items()}


def _own_groups(method: Method, lr: float) -> list[dict[str, Any]]:
    """The method's own parameters as groups of the optimiser, without weight decay."""
    if isinstance(method, HasOwnRates):
        return method.parameter_groups(lr)
    own = list(method.parameters())
    return [{"params": own, "lr": lr, "weight_decay": 0.0}] if own else []
