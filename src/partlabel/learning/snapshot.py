"""A frozen copy of a model during training."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from partlabel.models import Classifier


class Snapshot(nn.Module):
    """A frozen copy of a model. Its weights are saved with the method and restored on resume."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[str, Tensor] = {}
        self.copies: list[Classifier] = []  # in a list, so that it is no submodule

    def take(self, model: Classifier) -> None:
        """Copy the model. After a resume the copy gets the weights of the first call instead."""
        self.weights = self.weights or model.trained_weights()
        frozen = copy.deepcopy(model).eval().requires_grad_(False)
        frozen.load_state_dict(self.weights, strict=False)
        self.copies = [frozen]

    @torch.no_grad()
    def forward_copy(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Feature maps [B, D, H, W] and logits [B, C] of the copy.

        Args:
            inputs: images [B, 3, S, S] (uint8) or cached maps (float).
        """
        maps = self.copies[0].backbone(inputs)
        return maps, self.copies[0].head(maps)

    def get_extra_state(self) -> dict[str, Tensor]:
        """The weights of the copy, for a checkpoint."""
        return self.weights

    def set_extra_state(self, state: Any) -> None:
        """Restore the weights from a checkpoint."""
        self.weights = state
