"""What all candidates are trained and compared on: features in memory, and labels."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from partlabel.base.errors import JobError
from partlabel.images.batches import Rows, in_batches
from partlabel.labels import LabelTable
from partlabel.labels.simulate import HOLDOUT
from partlabel.models import Reduction
from partlabel.models.prediction import InputSource
from partlabel.training.auto.held_features import HeldFeatures, hold
from partlabel.training.auto.portfolio import COMPONENTS
from partlabel.training.inputs import fits
from partlabel.training.selection import Selection, by_humans, has_both_kinds
from partlabel.training.settings import Settings

_FITTED = 2000  # images that the reduction of features is fitted on
_FULLY = 0.9  # share of known labels from which on a holdout counts as fully labelled


@dataclass(frozen=True)
class Material:
    """Readable images: those of the training first, then those of the validation.

    Args:
        rows: [n] the training images, as rows of the labels of the run.
        training: their labels.
        val: the labels of the validation images that humans gave.
        features: of all images, by number of components; None for the mean of whole features.
        reduction: to the components of feature maps; None if maps are not used.
        on_holdout: whether candidates are compared on the validation images.
    """

    rows: Rows
    training: LabelTable
    val: LabelTable
    features: dict[int | None, HeldFeatures]
    reduction: Reduction | None
    on_holdout: bool

    @property
    def components(self) -> int | None:
        """The number of components of feature maps; None if maps are not used."""
        return None if self.reduction is None else len(self.reduction.basis)

    @property
    def evidence(self) -> LabelTable:
        """Labels that show how many are present: of both kinds, if there are such labels."""
        known = by_humans(self.training)
        return self.val if self.on_holdout or not has_both_kinds(known) else known

    @property
    def size(self) -> int:
        """Bytes of all features."""
        return sum(held.features.nbytes for held in self.features.values())


def gather(inputs: InputSource, selection: Selection, settings: Settings) -> Material:
    """Read all features into memory, without unreadable images.

    Args:
        inputs: whole feature maps of training images, then of validation images.
    """
    rows, number = np.concatenate([selection.train, selection.val]), len(selection.train)
    pooled = hold(inputs, len(rows), lambda maps: maps.mean(dim=(2, 3), keepdim=True))
    readable = np.flatnonzero(pooled.readable)
    train = int((readable < number).sum())
    if not train:
        raise JobError("no training image could be read")
    features: dict[int | None, HeldFeatures] = {None: pooled.part(readable)}
    reduction = _fit_reduction(inputs, readable, train)
    if reduction is not None:
        maps = hold(inputs, len(rows), partial(_reduced, reduction))
        features[len(reduction.basis)] = maps.part(readable)
    training = selection.table.subset(rows[readable[:train]])
    val = by_humans(selection.table.subset(rows[readable[train:]]))
    on_holdout = chooses_on_holdout(settings, selection, by_humans(training), val)
    return Material(rows[readable[:train]], training, val, features, reduction, on_holdout)


def chooses_on_holdout(
    settings: Settings, selection: Selection, training: LabelTable, val: LabelTable
) -> bool:
    """Whether validation images are a split of their own, with labels that can choose.

    Nearly all of their labels must be known. Fewer are enough if the training images have labels of
    one kind only, since these cannot choose as well.
    """
    splits = selection.labels.splits
    names = set() if splits is None or not len(selection.val) else set(splits.take(selection.val))
    if names != {settings.val_split or HOLDOUT} or not has_both_kinds(val):
        return False
    return val.known >= _FULLY or not has_both_kinds(training)


def _fit_reduction(inputs: InputSource, readable: Rows, train: int) -> Reduction | None:
    """Principal components of the maps of training images; None if maps cannot be used."""
    first = next(iter(inputs.batches([readable[:1]], ("clean",)))).views["clean"]
    components, positions = min(COMPONENTS, first.shape[1]), math.prod(first.shape[2:])
    if positions == 1 or not fits(len(readable) * components * positions * 2):
        return None
    sample = readable[np.unique(np.linspace(0, train - 1, min(train, _FITTED)).astype(np.int64))]
    reduction = Reduction(first.shape[1], components)
    parts = inputs.batches(in_batches(sample, 64), ("clean",))
    reduction.fit(part.views["clean"] for part in parts)
    return reduction.eval()


def _reduced(reduction: Reduction, maps: Tensor) -> Tensor:
    reduced: Tensor = reduction(maps)
    return reduced.half()
