"""The members of an ensemble, and the one model that they make together."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict
from torch import nn

from partlabel.models import Reduction
from partlabel.models.backbones import count_own_classes
from partlabel.models.heads import HEADS, Branch, Ensemble, Linear, merge_linear
from partlabel.models.own_classes import OwnClasses
from partlabel.training.settings import Settings

FEATURES_ONLY = "bce"  # the method that a model is built with to get at its features


class MemberRecord(BaseModel):
    """A member, as it is recorded in ``run.json``.

    Args:
        name: as in the leaderboard.
        settings: that train it alone.
        share: its weight in the ensemble, before the scale of its logits is taken into account.
        factor: what its logits are multiplied by.
    """

    model_config = ConfigDict(extra="forbid")
    name: str
    settings: Settings
    share: float
    factor: float


def make_member_head(settings: Settings, features: int, classes: int) -> nn.Module:
    """The new head of a member, on features that are reduced if its settings say so."""
    own = 0 if settings.own_classes is None else count_own_classes(settings.backbone)
    width = settings.reduce or features + own
    return HEADS[settings.head or "linear"](width, classes, **settings.head_options)


def new_own_classes(settings: Settings, features: int) -> OwnClasses | None:
    """What adds own classes to features [.., D], its classifier yet to be loaded; or None."""
    if settings.own_classes is None:
        return None
    number, at_positions = count_own_classes(settings.backbone), settings.reduce is not None
    return OwnClasses(
        features, number, settings.own_classes, settings.power, at_positions=at_positions
    )


def ensemble_head(
    features: int, classes: Sequence[str], members: Sequence[MemberRecord]
) -> Ensemble:
    """A new head with the structure of an ensemble, whose weights are to be loaded."""
    heads = [make_member_head(m.settings, features, len(classes)) for m in members]
    reduction, own = None, None
    for settings in (member.settings for member in members):
        added = new_own_classes(settings, features)
        if settings.reduce is not None:
            reduction = Reduction(features, settings.reduce, settings.power, added)
        elif added is not None:
            own = added
    return combine(heads, members, reduction, own)


def combine(
    heads: Sequence[nn.Module],
    members: Sequence[MemberRecord],
    reduction: Reduction | None,
    own: OwnClasses | None = None,
) -> Ensemble:
    """One head out of the heads of members; linear ones on the same features become one.

    Args:
        heads: one per member.
        members: their weights, and what of the features each uses.
        reduction: that of all members with components of feature maps.
        own: adds the network's own classes, for all members that use them.
    """
    branches = []
    stages = [_stage(member.settings, reduction, own) for member in members]
    for stage in dict.fromkeys(stages):
        inside = [n for n, other in enumerate(stages) if other is stage]
        linear = {n: head for n in inside if isinstance(head := heads[n], Linear)}
        others = [n for n in inside if n not in linear]
        parts, factors = [heads[n] for n in others], [members[n].factor for n in others]
        for power in dict.fromkeys(layer.power for layer in linear.values()):
            same = [n for n, layer in linear.items() if layer.power == power]
            merged = merge_linear([linear[n] for n in same], [members[n].factor for n in same])
            parts.append(merged)
            factors.append(1.0)
        branches.append(Branch(nn.Identity() if stage is None else stage, parts, factors))
    return Ensemble(branches)


def _stage(
    settings: Settings, reduction: Reduction | None, own: OwnClasses | None
) -> nn.Module | None:
    """What a member has between feature maps and its head; None for nothing."""
    if settings.reduce is not None:
        return reduction
    return None if settings.own_classes is None else own
