"""A backbone with a head."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.images.batches import Inputs
from partlabel.images.decoding import Picture
from partlabel.images.pictures import GivenPictures
from partlabel.metrics.calibration import Calibration
from partlabel.models.backbones import Backbone
from partlabel.models.prediction import collect_scores, iterate_logits


class Classifier(nn.Module):
    """A network that computes one logit per class of images.

    Args:
        backbone: images or cached maps to feature maps [B, D, H, W].
        head: feature maps [B, D, H, W] to logits [B, C].
        classes: [C] names.

    Attributes:
        thresholds: [C] a class is predicted from this score of the network on, chosen on validation
            labels; NaN for a class without such labels.
        calibration: the line per class that turns logits into probabilities, fitted on validation
            labels; None without such labels.
    """

    def __init__(self, backbone: Backbone, head: nn.Module, classes: Sequence[str]) -> None:
        super().__init__()
        self.backbone, self.head, self.classes = backbone, head, list(classes)
        self.thresholds: NDArray[np.float64] = np.full(len(self.classes), np.nan)
        self.calibration: Calibration | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Images [B, 3, S, S] (uint8, 0 to 255), or cached maps (float), to logits [B, C]."""
        self._check_images(inputs)
        logits: Tensor = self.head(self.backbone(inputs))
        return logits

    def _check_images(self, inputs: Tensor) -> None:
        """Raise an error for images of another type, whose range nobody can know, or shape."""
        backbone, shape = self.backbone, tuple(inputs.shape)
        if not isinstance(backbone, Backbone) or not backbone.size:
            return
        if inputs.dtype == torch.uint8:
            if len(shape) != 4 or shape[1] != 3:
                raise InputError(
                    f"images must have the shape [B, 3, height, width], not {list(shape)}; for "
                    "images [B, height, width, 3] use images.permute(0, 3, 1, 2)"
                )
        elif not (inputs.is_floating_point() and len(shape) == 4 and self._may_be_maps(shape)):
            raise InputError(
                "images must be whole numbers from 0 to 255 (torch.uint8), as the model normalises "
                "them itself; for images from 0 to 1 use (images * 255).round().to(torch.uint8)"
            )

    def _may_be_maps(self, shape: tuple[int, ...]) -> bool:
        """Whether floats of this shape may be maps of the frozen part, and are no images."""
        is_small = 4 * max(shape[2:]) <= self.backbone.size  # as few principal components are
        return self.backbone.frozen != "nothing" and (shape[1] > 3 or is_small)

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        return next(self.parameters()).device

    def load_trained(self, weights: dict[str, Tensor]) -> None:
        """Load what :meth:`trained_weights` returned; any other weights are a RuntimeError."""
        missing, unexpected = self.load_state_dict(weights, strict=False)
        missing = [name for name in missing if name.startswith(("backbone.upper.", "head."))]
        if missing or unexpected:
            raise RuntimeError(f"missing: {missing}, unexpected: {unexpected}")

    def trained_weights(self) -> dict[str, Tensor]:
        """A copy of all weights but those of the frozen part of the backbone."""
        parts = {"backbone": self.backbone.trained_state(), "head": self.head.state_dict()}
        return {
            f"{part}.{name}": value.detach().clone()
            for part, state in parts.items()
            for name, value in state.items()
        }

    def predict(
        self, images: Iterable[str | Picture], batch: int = 32, workers: int | None = None
    ) -> NDArray[np.float64]:
        """Scores [n, C] from 0 to 1 of images; an unreadable image is an error.

        They are calibrated probabilities if the model has a calibration.

        Args:
            images: paths of files, contents of files (bytes), or pixels: arrays [H, W, 3] of uint8,
                in RGB.
            batch: images at a time.
            workers: processes that decode images; None for a number that suits this computer.
        """
        if isinstance(images, str | bytes | Path | np.ndarray):
            raise InputError("images must be a list of images; for one image use [image]")
        given: list[Picture] = [Path(one) if isinstance(one, str) else one for one in images]
        pictures = GivenPictures(given, self.backbone.size, self.backbone.interpolation)

        def refuse_broken(inputs: Inputs) -> None:
            for message in inputs.broken.values():
                raise InputError(message)

        scores, _ = collect_scores(
            iterate_logits(
                self, pictures, np.arange(len(given)), batch, workers, on_inputs=refuse_broken
            )
        )
        if not given:
            return np.empty((0, len(self.classes)))
        return scores if self.calibration is None else self.calibration.probabilities(scores)
