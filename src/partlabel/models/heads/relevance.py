"""Separate predictions of whether a class is visible and whether an annotator would mention it.

[1] Misra et al., Seeing through the Human Reporting Bias: Visual Classifiers from Noisy
    Human-Centric Labels, CVPR 2016.
"""

from typing import Literal

from torch import Tensor, logaddexp, nn
from torch.nn.functional import logsigmoid

from partlabel.base.numerics import at_least_single
from partlabel.models.heads.head import Head

Meaning = Literal["visual", "relevance"]


class Relevance(Head):
    """Two linear layers on pooled features: presence v, and relevance r given presence [1].

    The probability that an annotator mentions a class is v r.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        scores: the probability that the logits stand for: ``visual`` for v, ``relevance`` for v r.
    """

    needs_maps = False

    def __init__(self, features: int, classes: int, scores: Meaning = "visual") -> None:
        super().__init__()
        self.scores = scores
        self.visual = nn.Linear(features, classes)
        self.relevance = nn.Linear(features, classes)

    @property
    def classifier(self) -> nn.Linear:
        """The layer whose logits say what is visible, as those of other heads do."""
        return self.visual

    def both(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Feature maps [B, D, H, W] to the logits of v [B, C] and of v r [B, C]."""
        means = maps.mean(dim=(2, 3))
        visual, relevance = (
            at_least_single(self.visual(means)),
            at_least_single(self.relevance(means)),
        )
        log_mentioned = logsigmoid(visual) + logsigmoid(relevance)
        # absent, or present but not mentioned
        log_not = logaddexp(logsigmoid(-visual), logsigmoid(visual) + logsigmoid(-relevance))
        return visual, log_mentioned - log_not

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        visual, mentioned = self.both(maps)
        return visual if self.scores == "visual" else mentioned
