"""A model as it was at some moment of the training."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from partlabel.models import Classifier


class Snapshot(nn.Module):
    """A copy of a model that stays as it is, and comes back after a stop."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[str, Tensor] = {}
        self.copies: list[Classifier] = []  # in a list: no part of what is trained or saved

    def take(self, model: Classifier) -> None:
        """Now; or, after a stop, as it was then."""
        self.weights = self.weights or model.trained_weights()
        frozen = copy.deepcopy(model).eval().requires_grad_(False)
        frozen.load_state_dict(self.weights, strict=False)
        self.copies = [frozen]

    @torch.no_grad()
    def look(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Feature maps and logits of the copy."""
        maps = self.copies[0].backbone(inputs)
        return maps, self.copies[0].head(maps)

    def get_extra_state(self) -> dict[str, Tensor]:
        """The weights of that moment."""
        return self.weights

    def set_extra_state(self, state: Any) -> None:
        """Remember the weights of that moment."""
        self.weights = state
