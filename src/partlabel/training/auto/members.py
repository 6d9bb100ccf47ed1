"""The members of an ensemble, and the one model that they make together."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict
from torch import nn

from partlabel.models import Reduction
from partlabel.models.heads import HEADS, Branch, Ensemble, Linear, merge_linear
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
    return HEADS[settings.head or "linear"](
        settings.reduce or features, classes, **settings.head_options
    )


def ensemble_head(
    features: int, classes: Sequence[str], members: Sequence[MemberRecord]
) -> Ensemble:
    """A new head with the structure of an ensemble, whose weights are to be loaded."""
    heads = [make_member_head(m.settings, features, len(classes)) for m in members]
    reduced = next((m.settings for m in members if m.settings.reduce), None)
    reduction = None
    if reduced is not None and reduced.reduce is not None:
        reduction = Reduction(features, reduced.reduce, reduced.power)
    return combine(heads, members, reduction)


def combine(
    heads: Sequence[nn.Module],
    members: Sequence[MemberRecord],
    reduction: Reduction | None,
) -> Ensemble:
    """One head out of the heads of members; linear ones on the same features become one.

    Args:
        heads: one per member.
        members: their weights, and the reduction that each is behind.
        reduction: that of all members with one.
    """
    branches = []
    for reduce in dict.fromkeys(member.settings.reduce for member in members):
        inside = [n for n, member in enumerate(members) if member.settings.reduce == reduce]
        linear = {n: head for n in inside if isinstance(head := heads[n], Linear)}
        others = [n for n in inside if n not in linear]
        parts, factors = [heads[n] for n in others], [members[n].factor for n in others]
        for power in dict.fromkeys(layer.power for layer in linear.values()):
            same = [n for n, layer in linear.items() if layer.power == power]
            merged = merge_linear([linear[n] for n in same], [members[n].factor for n in same])
            parts.append(merged)
            factors.append(1.0)
        used = nn.Identity() if reduce is None or reduction is None else reduction
        branches.append(Branch(used, parts, factors))
    return Ensemble(branches)
