"""The model of a run, for heat maps and for pictures from elsewhere. Needs torch."""

import io
import threading

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from partlabel.base.errors import InputError
from partlabel.images.pictures import read_picture
from partlabel.images.stored import ImageFile
from partlabel.models.heads import class_maps_of, heat_maps
from partlabel.output.report.thumbnails import overlay
from partlabel.output.review.learner import Features, Head
from partlabel.training.devices import find_device
from partlabel.training.run import Run

_SIZE = 320


class RunModel:
    """The model of a run; one thread at a time uses it."""

    def __init__(self, run: Run) -> None:
        if run.record.features is not None:
            raise InputError("this run was trained on features: it has no network for heat maps")
        self._lock = threading.Lock()
        self.model = run.classifier().to(find_device(run.execution.device))
        self.classes = list(run.record.classes)

    def heat_map(
        self, path: ImageFile, name: str, head: Head | None, features: Features | None
    ) -> bytes:
        """A JPEG of an image under the heat map of a class.

        Args:
            path: where the image is stored.
            name: the class.
            head, features: what was learned of the class on the page; needed if the run does not
                know it.
        """
        with self._lock:
            heat = self._heat(path, name, head, features)
            pixels = overlay(read_picture(path, _SIZE), heat)
        stream = io.BytesIO()
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(stream, format="JPEG", quality=88)
        return stream.getvalue()

    def embed(self, path: ImageFile) -> NDArray[np.float32]:
        """[D] the features of an image file."""
        with self._lock:
            return np.asarray(self._maps(path).mean(dim=(2, 3))[0].numpy(), dtype=np.float32)

    def _heat(
        self, path: ImageFile, name: str, head: Head | None, features: Features | None
    ) -> Tensor:
        """[H, W] from 0 to 1."""
        function, maps = class_maps_of(self.model.head), self._maps(path)
        if name in self.classes and function is not None:
            with torch.no_grad():
                of_all = function(maps.to(self.model.device)).float().cpu()
            return heat_maps(of_all)[0][self.classes.index(name)]
        if head is None or features is None:
            raise InputError(f"there is no heat map of '{name}': nothing was learned of it yet")
        mean, deviation, weights = (
            torch.from_numpy(part).float()[:, None, None]
            for part in (features.mean, features.deviation, head.weights)
        )
        scores = ((maps[0] - mean) / deviation * weights).sum(dim=0) + head.bias
        return heat_maps(scores[None])[0]

    def _maps(self, path: ImageFile) -> Tensor:
        """[1, D, H, W] the feature maps of an image."""
        backbone = self.model.backbone
        picture = read_picture(path, backbone.size, backbone.interpolation)[None]
        with torch.no_grad(), backbone.autocast():
            maps: Tensor = self.model.backbone.eval()(picture.to(self.model.device))
        return maps.float().cpu()
