"""What is to be seen, and whether anyone would mention it.

[1] Misra et al., Seeing through the Human Reporting Bias: Visual Classifiers from Noisy
    Human-Centric Labels, CVPR 2016.
"""

from typing import Literal

from torch import Tensor, logaddexp, nn
from torch.nn.functional import logsigmoid

Shown = Literal["visual", "relevance"]


class Relevance(nn.Module):
    """Two linear layers on the mean of the map: presence v, and relevance r given presence [1].

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        scores: what the logits are of: ``visual`` v, or ``relevance`` v r, of being mentioned.
    """

    needs_maps = False

    def __init__(self, features: int, classes: int, scores: Shown = "visual") -> None:
        super().__init__()
        self.scores = scores
        self.visual = nn.Linear(features, classes)
        self.relevance = nn.Linear(features, classes)

    def both(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """[B, D, H, W] to the logits of v, and of v r, [B, C]."""
        means = maps.mean(dim=(2, 3))
        visual, relevance = self.visual(means).float(), self.relevance(means).float()
        log_yes = logsigmoid(visual) + logsigmoid(relevance)
        # not there, or there and not worth a word
        log_no = logaddexp(logsigmoid(-visual), logsigmoid(visual) + logsigmoid(-relevance))
        return visual, log_yes - log_no

    def forward(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C]."""
        visual, mentioned = self.both(maps)
        return visual if self.scores == "visual" else mentioned
