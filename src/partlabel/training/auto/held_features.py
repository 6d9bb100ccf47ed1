"""Features of all images in memory, shared by all trainings of ``auto``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.images.batches import Inputs, Rows, in_batches
from partlabel.models.own_classes import OwnClasses
from partlabel.models.powers import signed_power
from partlabel.models.prediction import InputSource
from partlabel.training.settings import Settings

_READ = 256  # images that are read at a time
_TRANSFORMED = 4096  # images that are transformed at a time


@dataclass(frozen=True)
class FeatureKind:
    """What a head sees of an image.

    Args:
        components: principal components at each position; None for the mean over positions.
        power: of the features, before components are found.
        own_classes: whether the probabilities of the network's own classes are added.
    """

    components: int | None = None
    power: float = 1.0
    own_classes: bool = False


def kind_of(settings: Settings) -> FeatureKind:
    """The features that a training with these settings uses."""
    own = settings.own_classes is not None
    if own or settings.reduce is not None:
        return FeatureKind(settings.reduce, settings.power, own)
    return FeatureKind(None, float(settings.head_options.get("power", 1.0)))


@dataclass(frozen=True)
class HeldFeatures:
    """Features of n images; row i of a batch is image ``rows[i]``.

    Args:
        features: [m, ...] of the readable images.
        place: [n] the position of each image in ``features``, -1 for an unreadable one.
        rows: the images, so that a part of them has its own numbers from 0.
        shift: [D] what was subtracted from features, so that their mean is 0; None for nothing.
        variance: the sum of the variances of all features, which sets the scale of a weight decay.
    """

    features: Tensor
    place: NDArray[np.int64]
    rows: Rows
    shift: Tensor | None = None
    variance: float = 1.0

    def part(self, rows: Rows) -> "HeldFeatures":
        """Some of the images, numbered from 0; the features are shared."""
        return replace(self, rows=self.rows[rows])

    @property
    def readable(self) -> NDArray[np.bool_]:
        """Whether each image could be decoded."""
        return np.asarray(self.place[self.rows] >= 0)

    def batches(
        self, rows: list[Rows], views: tuple[str, ...], epoch: int = 0, workers: int | None = None
    ) -> Iterator[Inputs]:
        """The inputs of batches of rows; all views are the clean one."""
        for part in rows:
            places = self.place[self.rows[part]]
            clean = self.features[torch.from_numpy(places[places >= 0])].float()
            yield Inputs(part[places >= 0], dict.fromkeys(views, clean))


def hold(source: InputSource, number: int, transform: Callable[[Tensor], Tensor]) -> HeldFeatures:
    """Read the clean views of images 0 to ``number`` - 1 into memory.

    Args:
        source: gives the maps of each image.
        transform: maps [b, ...] to what is kept of them.
    """
    parts, position, filled = [], np.full(number, -1, dtype=np.int64), 0
    for inputs in source.batches(in_batches(np.arange(number), _READ), ("clean",)):
        position[inputs.rows] = filled + np.arange(len(inputs.rows))
        filled += len(inputs.rows)
        with torch.no_grad():
            parts.append(transform(inputs.views["clean"]).cpu())
    return HeldFeatures(torch.cat(parts), position, np.arange(number))


def centred(pooled: HeldFeatures, power: float, train: int) -> HeldFeatures:
    """A power of pooled features, less its mean over the first ``train`` images.

    A linear head can do without this, since its bias makes up for the mean. But L-BFGS converges
    several times faster on it.

    Args:
        pooled: [m, D, 1, 1] of readable images only.
        power: of the features.
        train: number of training images, which are the first ones.
    """
    return _centred(pooled, _transformed(pooled.features, lambda f: signed_power(f, power)), train)


def with_own_classes(pooled: HeldFeatures, own: OwnClasses, train: int) -> HeldFeatures:
    """Pooled features and the probabilities of the network's own classes, centred.

    Args:
        pooled, train: as for :func:`centred`.
        own: adds the probabilities.
    """
    return _centred(pooled, _transformed(pooled.features, own), train)


def _transformed(features: Tensor, transform: Callable[[Tensor], Tensor]) -> Tensor:
    """The result of a function of features [m, ...], computed for some images at a time."""
    parts = range(0, len(features), _TRANSFORMED)
    with torch.no_grad():
        return torch.cat([transform(features[n : n + _TRANSFORMED]) for n in parts])


def _centred(pooled: HeldFeatures, features: Tensor, train: int) -> HeldFeatures:
    """Features [m, D, 1, 1], less their mean over the first ``train`` images; they are changed."""
    used = features[torch.from_numpy(pooled.place[pooled.rows[:train]])].flatten(1)
    shift = used.mean(dim=0, dtype=torch.float64)
    variance = float(used.var(dim=0, correction=0).sum())
    features -= shift.float()[:, None, None]
    return replace(pooled, features=features, shift=shift, variance=variance or 1.0)


def with_variance(maps: HeldFeatures, train: int) -> HeldFeatures:
    """Feature maps with the variance of their means over positions."""
    used = maps.place[maps.rows[:train]]
    means = torch.cat(
        [
            maps.features[torch.from_numpy(used[part : part + _READ])].float().mean(dim=(2, 3))
            for part in range(0, len(used), _READ)
        ]
    )
    return replace(maps, variance=float(means.var(dim=0, correction=0).sum()) or 1.0)
