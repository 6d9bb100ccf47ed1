"""A label graph whose links are fixed and whose weights are learned."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from partlabel.base.errors import InputError
from partlabel.learning.cooccurrence import LabelGraph


class LearnedGraph(nn.Module):
    """k + 1 weights for each of C classes: never a matrix of C x C.

    Args:
        graph: which classes are linked, and the weights to begin with.
    """

    linked: Tensor
    first: Tensor
    weights: Tensor

    def __init__(self, graph: LabelGraph) -> None:
        super().__init__()
        self.register_buffer("linked", torch.from_numpy(graph.linked))
        self.register_buffer(
            "first", torch.from_numpy(graph.weights)
        )  # for reports, and to know it again
        self.register_buffer("weights", torch.from_numpy(graph.weights).clone())

    def spread(self, labels: Tensor) -> Tensor:
        """[B, C] to [B, C]: A y of each image, the weighted sum over linked classes."""
        weights = self.weights.to(labels.dtype)
        flat = labels.T.contiguous()
        return embedding_bag(self.linked, flat, per_sample_weights=weights, mode="sum").T

    @torch.no_grad()
    def learn(self, labels: Tensor, combined: Tensor, rate: float, steps: int) -> None:
        """Gradient steps on the mean over images of |labels - A combined|^2.

        The step of a class is a share of what its squared labels allow, but of one label in full
        at least: a batch that says next to nothing of a class must not move it far.

        Args:
            labels: [B, C] to be explained.
            combined: [B, C] the sum of similar images' labels, before it is spread.
            rate: the share.
            steps: how many.
        """
        labels, combined = labels.detach(), combined.detach()
        own = self.linked == torch.arange(len(self.linked), device=labels.device)[:, None]
        own[:, 0] = False  # other places that name the class itself are no links, and stay at 0
        around = torch.where(own, 0, combined[:, self.linked])  # [B, C, k + 1]
        length = around.square().sum(dim=(0, 2)).clamp(min=1)
        for _ in range(steps):
            wrong = self.spread(combined) - labels
            slope = (wrong[:, :, None] * around).sum(dim=0)
            self.weights -= (rate * slope / length[:, None]).to(self.weights.dtype)

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Only what was learned on the same links: a file of them may have changed."""
        for name in ("linked", "first"):
            saved, own = state[prefix + name], getattr(self, name)
            if saved.shape != own.shape or not torch.equal(saved.cpu(), own.cpu()):
                raise InputError(
                    "the links between labels are not those that the run was started with: has "
                    "their file changed?"
                )
        super()._load_from_state_dict(state, prefix, *rest)
