"""A label graph with fixed links and learned weights."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from partlabel.base.errors import InputError
from partlabel.learning.cooccurrence import LabelGraph


class LearnedGraph(nn.Module):
    """A label graph A with k + 1 weights per class. The matrix [C, C] is never formed.

    Args:
        graph: the links and the initial weights.
        clip: whether learned weights stay between 0 and 1.
    """

    linked: Tensor
    first: Tensor
    weights: Tensor

    def __init__(self, graph: LabelGraph, *, clip: bool = True) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("linked", torch.from_numpy(graph.linked))
        # the initial weights, for reports and to check that a checkpoint has the same links
        self.register_buffer("first", torch.from_numpy(graph.weights))
        self.register_buffer("weights", torch.from_numpy(graph.weights).clone())

    def spread(self, labels: Tensor) -> Tensor:
        """The product A y of each image [B, C]: weighted sums over linked classes.

        Args:
            labels: [B, C]
        """
        weights = self.weights.to(labels.dtype)
        flat = labels.T.contiguous()
        return embedding_bag(self.linked, flat, per_sample_weights=weights, mode="sum").T

    @torch.no_grad()
    def learn(self, labels: Tensor, combined: Tensor, rate: float, steps: int) -> None:
        """Take gradient steps on the squared distance of ``labels`` to A ``combined``.

        The step of a class is ``rate`` times the gradient, divided by the sum of the squared labels
        of its linked classes, but at least by 1. The lower limit keeps the step small if a batch
        has little information about a class.

        Args:
            labels: [B, C] labels to be explained.
            combined: [B, C] weighted sum of the labels of similar images, before it is spread.
            rate: step size relative to the longest stable step.
            steps: number of steps.
        """
        labels, combined = labels.detach(), combined.detach()
        own = self.linked == torch.arange(len(self.linked), device=labels.device)[:, None]
        own[:, 0] = False  # later entries that repeat the class itself are unused and stay at 0
        neighbours = torch.where(own, 0, combined[:, self.linked])  # [B, C, k + 1]
        scale = neighbours.square().sum(dim=(0, 2)).clamp(min=1)
        for _ in range(steps):
            error = self.spread(combined) - labels
            gradient = (error[:, :, None] * neighbours).sum(dim=0)
            self.weights -= (rate * gradient / scale[:, None]).to(self.weights.dtype)
            if self.clip:
                self.weights.clamp_(0, 1)

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Check that the saved graph has the same links: the file of links may have changed."""
        for name in ("linked", "first"):
            saved, own = state[prefix + name], getattr(self, name)
            if saved.shape != own.shape or not torch.equal(saved.cpu(), own.cpu()):
                raise InputError(
                    "the links between labels differ from those that the run was started with: has "
                    "their file changed?"
                )
        super()._load_from_state_dict(state, prefix, *rest)
