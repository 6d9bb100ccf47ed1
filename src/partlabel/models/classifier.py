"""A backbone with a head on it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.images.batches import in_batches
from partlabel.images.pictures import Pictures
from partlabel.models.backbone import Backbone


class Classifier(nn.Module):
    """Pictures to a logit per class.

    Args:
        backbone: pictures, or cached maps, to features.
        head: features to logits.
        classes: a name per logit.
    """

    def __init__(self, backbone: Backbone, head: nn.Module, classes: Sequence[str]) -> None:
        super().__init__()
        self.backbone, self.head, self.classes = backbone, head, list(classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Pictures in uint8, or cached maps in float, to logits [B, C]."""
        logits: Tensor = self.head(self.backbone(inputs))
        return logits

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.parameters()).device

    def trained_weights(self) -> dict[str, Tensor]:
        """A copy of the weights, without those of the frozen part of the backbone."""
        parts = {"backbone.upper.": self.backbone.upper, "head.": self.head}
        return {
            prefix + name: value.detach().clone()
            for prefix, part in parts.items()
            for name, value in part.state_dict().items()
        }

    def predict(
        self, images: Iterable[str | Path], batch: int = 32, workers: int = 0
    ) -> NDArray[np.float32]:
        """Scores [n, C] from 0 to 1 of image files; an unreadable file is an error."""
        paths = [Path(image) for image in images]
        pictures = Pictures([str(path) for path in paths], paths, self.backbone.size, seed=0)
        scores = np.empty((len(paths), len(self.classes)), dtype=np.float32)
        self.eval()
        with torch.inference_mode():
            rows = in_batches(np.arange(len(paths)), batch)
            for found in pictures.batches(rows, ("clean",), workers=workers):
                if found.broken:
                    raise InputError(next(iter(found.broken.values())))
                logits = self(found.views["clean"].to(self.device))
                scores[found.rows] = torch.sigmoid(logits.float()).cpu().numpy()
        return scores
