"""Labels are predicted one after another, each one given those before it.

[1] Wang et al., CNN-RNN: A Unified Framework for Multi-label Image Classification, CVPR 2016.
"""

import torch
from torch import Tensor, nn

from partlabel.base.numerics import at_least_single
from partlabel.base.ranges import Size
from partlabel.models.heads.head import Head


class RecurrentDecoder(Head):
    """An LSTM over the labels predicted so far [1].

    The logit of the next label is the product of the label's vector with a projection of the image
    features and the LSTM state. Labels are called words; one further word marks the beginning and
    the end of a sequence.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        width: width of label vectors. Paper: 64.
        hidden: width of the LSTM state. Paper: 512.
        steps: largest number of labels predicted per image in :meth:`forward`.
    """

    needs_maps = False

    def __init__(
        self, features: int, classes: int, width: Size = 64, hidden: Size = 512, steps: Size = 4
    ) -> None:
        super().__init__()
        self.classes, self.steps = classes, steps
        # the last word marks the beginning and the end
        self.words = nn.Embedding(classes + 1, width)
        self.cell = nn.LSTMCell(width, hidden)
        self.from_state, self.from_image = nn.Linear(hidden, width), nn.Linear(features, width)

    def next_word_logits(self, maps: Tensor, words: Tensor) -> Tensor:
        """Logits of the word that follows each word of a sequence [B, T, C + 1].

        Args:
            maps: [B, D, H, W]
            words: [B, T] labels of each image in their order, after the word for the beginning.
        """
        means, state, logits = maps.mean(dim=(2, 3)), None, []
        for word in words.unbind(dim=1):
            state = self.cell(self.words(word), state)
            logits.append(self._next(means, state[0]))
        return torch.stack(logits, dim=1)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C].

        In each step the most likely word is predicted, no word twice, until the word for the end.
        The logit of a class is that of its largest probability in any step.
        """
        means, state = maps.mean(dim=(2, 3)), None
        batch, device = maps.shape[0], maps.device
        word = torch.full((batch,), self.classes, device=device)
        ended = torch.zeros(batch, dtype=torch.bool, device=device)
        used = torch.zeros(batch, self.classes + 1, dtype=torch.bool, device=device)
        best = torch.full((batch, self.classes), -torch.inf, device=device)
        for _ in range(min(self.steps, self.classes)):
            state = self.cell(self.words(word), state)
            logits = self._next(means, state[0]).masked_fill(used, -torch.inf)
            log_odds = _log_odds(logits)[:, : self.classes]
            best = torch.where(ended[:, None], best, torch.maximum(best, log_odds))
            word = logits.argmax(dim=1)
            ended |= word == self.classes
            used = used.scatter(1, word[:, None], True)
        return best.clamp(-30, 30)

    def _next(self, means: Tensor, hidden: Tensor) -> Tensor:
        """Logits of the next word [B, C + 1] from pooled features [B, D] and states [B, hidden]."""
        joined = torch.relu(self.from_state(hidden) + self.from_image(means))
        return at_least_single(joined @ self.words.weight.T)


def _log_odds(logits: Tensor) -> Tensor:
    """log p - log(1 - p) [B, n] of the softmax p of logits [B, n].

    This is a logit minus the log of the sum of the exponentials of all others. That sum is computed
    as the sum over all minus one term. For the largest logit the subtraction would cancel, so its
    sum is computed separately.
    """
    total = logits.logsumexp(dim=1, keepdim=True)
    largest = logits.argmax(dim=1, keepdim=True)
    others_of_largest = logits.scatter(1, largest, -torch.inf).logsumexp(dim=1, keepdim=True)
    log_p = (logits - total).scatter(1, largest, -1.0)  # not used for the largest logit
    others = (total + torch.log1p(-torch.exp(log_p))).scatter(1, largest, others_of_largest)
    return logits - others
