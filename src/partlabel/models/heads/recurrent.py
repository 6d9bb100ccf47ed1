"""Labels are told one after another, each with those before it in mind.

[1] Wang et al., CNN-RNN: A Unified Framework for Multi-label Image Classification, CVPR 2016.
"""

import torch
from torch import Tensor, nn

from partlabel.base.ranges import Size


class RecurrentDecoder(nn.Module):
    """An LSTM over the labels told so far; image and state are compared with labels' vectors [1].

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        width: of the vectors of labels. Paper: 64.
        hidden: of the state. Paper: 512.
        steps: how many labels are told at most when it is asked for scores.
    """

    needs_maps = False

    def __init__(
        self, features: int, classes: int, width: Size = 64, hidden: Size = 512, steps: Size = 4
    ) -> None:
        super().__init__()
        self.classes, self.steps = classes, steps
        self.words = nn.Embedding(classes + 1, width)  # the last one begins and ends
        self.cell = nn.LSTMCell(width, hidden)
        self.from_state, self.from_image = nn.Linear(hidden, width), nn.Linear(features, width)

    def tell(self, maps: Tensor, words: Tensor) -> Tensor:
        """Logits of the next word after each of words [B, T]: [B, T, C + 1]."""
        means, state, said = maps.mean(dim=(2, 3)), None, []
        for word in words.unbind(dim=1):
            state = self.cell(self.words(word), state)
            said.append(self._next(means, state[0]))
        return torch.stack(said, dim=1)

    def forward(self, maps: Tensor) -> Tensor:
        """[B, D, H, W] to [B, C]: of the largest chance that a class has in any step.

        In each step the likeliest word is told, and none twice; after the end nothing is.
        """
        means, state = maps.mean(dim=(2, 3)), None
        word = torch.full((len(maps),), self.classes, device=maps.device)
        over = torch.zeros(len(maps), dtype=torch.bool, device=maps.device)
        told = torch.zeros(len(maps), self.classes + 1, dtype=torch.bool, device=maps.device)
        best = torch.full((len(maps), self.classes), -torch.inf, device=maps.device)
        for _ in range(min(self.steps, self.classes)):
            state = self.cell(self.words(word), state)
            logits = self._next(means, state[0]).masked_fill(told, -torch.inf)
            odds = _log_odds(logits)[:, : self.classes]
            best = torch.where(over[:, None], best, torch.maximum(best, odds))
            word = logits.argmax(dim=1)
            over |= word == self.classes
            told = told.scatter(1, word[:, None], True)
        return best.clamp(-30, 30)

    def _next(self, means: Tensor, hidden: Tensor) -> Tensor:
        joined = torch.relu(self.from_state(hidden) + self.from_image(means))
        return (joined @ self.words.weight.T).float()


def _log_odds(logits: Tensor) -> Tensor:
    """[B, n] to log p - log(1 - p) of a softmax: a logit, less the log of all others' sum.

    Taken from the sum of all, that is exact but for the largest, which has a sum of its own.
    """
    every = logits.logsumexp(dim=1, keepdim=True)
    largest = logits.argmax(dim=1, keepdim=True)
    others = logits.scatter(1, largest, -torch.inf).logsumexp(dim=1, keepdim=True)
    chance = (logits - every).scatter(1, largest, -1.0)  # of the largest it is not needed
    rest = (every + torch.log1p(-torch.exp(chance))).scatter(1, largest, others)
    return logits - rest
