"""Heads map feature maps [B, D, H, W] to logits [B, C]; refiners map logits to logits."""

from torch import nn

from partlabel.models.heads.boosted import Boosted, boosted_pool
from partlabel.models.heads.class_maps import MapHead, class_maps_of
from partlabel.models.heads.convolved import GraphClassifier
from partlabel.models.heads.decoder import LabelDecoder
from partlabel.models.heads.decoupled import Decoupled
from partlabel.models.heads.ensemble import Branch, Ensemble, merge_linear
from partlabel.models.heads.evidence import WithEvidence
from partlabel.models.heads.graph import GraphRefiner, Refined
from partlabel.models.heads.head import HasClassMaps, HasClassRows, Head, needs_maps
from partlabel.models.heads.informed import Informed
from partlabel.models.heads.linear import Linear
from partlabel.models.heads.recurrent import RecurrentDecoder
from partlabel.models.heads.relevance import Relevance
from partlabel.models.heads.saliency import Saliency, heat_maps, saliency_pool
from partlabel.models.heads.semantic import LabelVectors
from partlabel.models.heads.weldon import Weldon, weldon_pool

__all__ = [
    "HEADS",
    "Boosted",
    "Branch",
    "Decoupled",
    "Ensemble",
    "GraphClassifier",
    "GraphRefiner",
    "HasClassMaps",
    "HasClassRows",
    "Head",
    "Informed",
    "LabelDecoder",
    "LabelVectors",
    "Linear",
    "MapHead",
    "RecurrentDecoder",
    "Refined",
    "Relevance",
    "Saliency",
    "Weldon",
    "WithEvidence",
    "boosted_pool",
    "class_maps_of",
    "heat_maps",
    "merge_linear",
    "needs_maps",
    "saliency_pool",
    "weldon_pool",
]

HEADS: dict[str, type[nn.Module]] = {
    "linear": Linear,
    "weldon": Weldon,
    "saliency": Saliency,
    "boosted": Boosted,
    "decoder": LabelDecoder,
}
"""The heads that can be chosen for a method that has no head of its own."""
