"""What all candidates are trained and compared on: features in memory, and labels."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from partlabel.base.errors import JobError
from partlabel.images.batches import Rows, in_batches
from partlabel.labels import LabelTable
from partlabel.labels.groups import Groups
from partlabel.labels.simulate import HOLDOUT
from partlabel.models import Reduction
from partlabel.models.own_classes import OwnClasses
from partlabel.models.prediction import InputSource
from partlabel.training.auto.criterion import fairly_known
from partlabel.training.auto.held_features import (
    FeatureKind,
    HeldFeatures,
    centred,
    hold,
    with_own_classes,
    with_variance,
)
from partlabel.training.auto.portfolio import COMPONENTS, POWERS, ROOT
from partlabel.training.inputs import fits
from partlabel.training.run_split import Selection, by_humans, has_both_kinds
from partlabel.training.settings import Settings

_FITTED = 1000  # images that the reduction of features is fitted on
_BALANCED = 256  # images of these that the weight of own classes is found on
_AT_A_TIME = 4096  # images whose mean features are transformed together
_OWN_SIZE = 0.5  # of the network's own classes, relative to the features
_FULLY = 0.9  # share of known labels from which on a holdout counts as fully labelled


@dataclass(frozen=True)
class Material:
    """Readable images: those of the training first, then those of the validation.

    Args:
        rows: [n] the training images, as rows of the labels of the run.
        training: their labels.
        val: the labels of the validation images that humans gave.
        features: of all images, by kind.
        reduction: to the components of feature maps; None if maps are not used.
        own_classes: what adds the network's own classes; None if it has none.
        on_holdout: whether candidates are compared on the validation images.
        groups: training images that belong together.
    """

    rows: Rows
    training: LabelTable
    val: LabelTable
    features: dict[FeatureKind, HeldFeatures]
    reduction: Reduction | None
    own_classes: OwnClasses | None
    on_holdout: bool
    groups: Groups

    @property
    def components(self) -> int | None:
        """The number of components of feature maps; None if maps are not used."""
        return None if self.reduction is None else len(self.reduction.basis)

    @cached_property
    def evidence(self) -> LabelTable:
        """Labels that show how many are present: of both kinds, if there are such labels."""
        known = fairly_known(by_humans(self.training))
        return self.val if self.on_holdout or not has_both_kinds(known) else known

    @property
    def units(self) -> dict[FeatureKind, float]:
        """For each kind of features, a weight decay of the order of the cost of all labels."""
        labels = math.prod(self.training.shape)
        return {kind: held.variance / labels for kind, held in self.features.items()}

    @property
    def own_weights(self) -> dict[FeatureKind, float]:
        """For each kind of features with the network's own classes, the weight of these."""
        modules: dict[int | None, OwnClasses | None] = {None: self.own_classes}
        if self.reduction is not None:
            modules[self.components] = self.reduction.own
        return {
            FeatureKind(components, own.power, own_classes=True): own.weight
            for components, own in modules.items()
            if own is not None
        }

    @property
    def size(self) -> int:
        """Bytes of all features."""
        return sum(held.features.nbytes for held in self.features.values())


def gather(
    inputs: InputSource,
    selection: Selection,
    settings: Settings,
    classifier: nn.Linear | None = None,
) -> Material:
    """Read all features into memory, without unreadable images.

    Args:
        inputs: whole feature maps of training images, then of validation images.
        classifier: of the classes that the network was pretrained on; None if it has none.
    """
    rows, number = np.concatenate([selection.train, selection.val]), len(selection.train)
    pooled = hold(inputs, len(rows), lambda maps: maps.mean(dim=(2, 3), keepdim=True))
    readable = np.flatnonzero(pooled.readable)
    train = int((readable < number).sum())
    if not train:
        raise JobError("no training image could be read")
    pooled = pooled.part(readable)
    features = {FeatureKind(None, power): centred(pooled, power, train) for power in POWERS}
    own = None
    if classifier is not None:
        own = _new_own_classes(classifier, at_positions=False)
        own.balance(_pooled_maps(pooled, train), _OWN_SIZE)
        features[FeatureKind(None, ROOT, own_classes=True)] = with_own_classes(pooled, own, train)
    reduction = fit_reduction(inputs, readable, train, classifier)
    if reduction is not None:
        maps = hold(inputs, len(rows), partial(_reduced, reduction)).part(readable)
        kind = FeatureKind(len(reduction.basis), reduction.power, classifier is not None)
        features[kind] = with_variance(maps, train)
    training = selection.training.subset(readable[:train])
    val = selection.validation.subset(readable[train:] - number)
    on_holdout = chooses_on_holdout(settings, selection, by_humans(training), val)
    groups = selection.groups.part(rows[readable[:train]])
    return Material(
        rows[readable[:train]], training, val, features, reduction, own, on_holdout, groups
    )


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


def fit_reduction(
    inputs: InputSource, readable: Rows, train: int, classifier: nn.Linear | None
) -> Reduction | None:
    """Principal components of the maps of training images; None if maps cannot be used."""
    first = next(iter(inputs.batches([readable[:1]], ("clean",)))).views["clean"]
    components, positions = min(COMPONENTS, first.shape[1]), math.prod(first.shape[2:])
    if positions == 1 or not fits(len(readable) * components * positions * 2):
        return None
    sample = readable[np.unique(np.linspace(0, train - 1, min(train, _FITTED)).astype(np.int64))]
    own = None
    if classifier is not None:
        own = _new_own_classes(classifier, at_positions=True)
        spread_out = sample[:: math.ceil(len(sample) / _BALANCED)]
        own.balance(_clean_maps(inputs, spread_out), _OWN_SIZE)
    reduction = Reduction(first.shape[1], components, ROOT, own)
    reduction.fit(_clean_maps(inputs, sample))
    return reduction.eval()


def _clean_maps(inputs: InputSource, rows: Rows) -> Iterator[Tensor]:
    """The maps of images, a batch at a time: all of them could be more than the memory holds."""
    for part in inputs.batches(in_batches(rows, 64), ("clean",)):
        yield part.views["clean"]


def _new_own_classes(classifier: nn.Linear, *, at_positions: bool) -> OwnClasses:
    """What adds own classes, with a weight that is yet to be found."""
    features, classes = classifier.in_features, classifier.out_features
    return OwnClasses(features, classes, 1.0, ROOT, at_positions=at_positions).use(classifier)


def _pooled_maps(pooled: HeldFeatures, train: int) -> Iterator[Tensor]:
    """Mean features [b, D, 1, 1] of the first ``train`` images, in parts."""
    places = torch.from_numpy(pooled.place[pooled.rows[:train]])
    for first in range(0, train, _AT_A_TIME):
        yield pooled.features[places[first : first + _AT_A_TIME]]


def _reduced(reduction: Reduction, maps: Tensor) -> Tensor:
    reduced: Tensor = reduction(maps)
    return reduced.half()
