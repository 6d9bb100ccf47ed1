"""Losses on logits and partial labels, as functions.

Most take ``logits`` [B, C] and ``labels`` [B, C] in {-1, 0, 1} (absent, unknown, present), and
return a scalar. A cell is one entry of [B, C], and p is the sigmoid of its logit. Losses are means
over all B * C cells unless their docstring says otherwise. They are computed from logits rather
than from probabilities, so they are accurate and finite for any logit, also in half precision.
"""

from partlabel.learning.losses.blending import (
    Blended,
    blend_images,
    blend_with,
    choose_unknown,
    soft_bce,
)
from partlabel.learning.losses.cellwise import likeliest
from partlabel.learning.losses.consistency import confident, plc
from partlabel.learning.losses.contrastive import Denominator, lac
from partlabel.learning.losses.entropy import (
    entropy_maximization,
    entropy_minimization,
    soft_negative,
)
from partlabel.learning.losses.expected import expected_positive, role
from partlabel.learning.losses.known import (
    Normalize,
    batch_bce,
    bce,
    known_positives,
    partial_bce,
    partial_weight,
    squared,
)
from partlabel.learning.losses.pairwise import lsep, ranknet, warp
from partlabel.learning.losses.robust import generalized_robust, large_loss, tempered
from partlabel.learning.losses.selective import selective, splc
from partlabel.learning.losses.smoothness import (
    completed_labels,
    feature_smoothness,
    graph_smoothness,
    label_smoothness,
)
from partlabel.learning.losses.spatial import (
    expected_negative,
    prediction_consistency,
    spatial_consistency,
)
from partlabel.learning.losses.transfer import (
    label_contrast,
    other_present,
    pair_cooccurrence,
    prototype_contrast,
    scores_across_images,
    scores_within_images,
    transferred,
)
from partlabel.learning.losses.unknown_as_absent import (
    assume_negative,
    asymmetric,
    down_weighted,
    focal,
    label_smoothing,
    negative_label_smoothing,
)

__all__ = [
    "Blended",
    "Denominator",
    "Normalize",
    "assume_negative",
    "asymmetric",
    "batch_bce",
    "bce",
    "blend_images",
    "blend_with",
    "choose_unknown",
    "completed_labels",
    "confident",
    "down_weighted",
    "entropy_maximization",
    "entropy_minimization",
    "expected_negative",
    "expected_positive",
    "feature_smoothness",
    "focal",
    "generalized_robust",
    "graph_smoothness",
    "known_positives",
    "label_contrast",
    "label_smoothing",
    "label_smoothness",
    "lac",
    "large_loss",
    "likeliest",
    "lsep",
    "negative_label_smoothing",
    "other_present",
    "pair_cooccurrence",
    "partial_bce",
    "partial_weight",
    "plc",
    "prediction_consistency",
    "prototype_contrast",
    "ranknet",
    "role",
    "scores_across_images",
    "scores_within_images",
    "selective",
    "soft_bce",
    "soft_negative",
    "spatial_consistency",
    "splc",
    "squared",
    "tempered",
    "transferred",
    "warp",
]
