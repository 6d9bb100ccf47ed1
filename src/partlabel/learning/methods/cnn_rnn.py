"""Prediction of labels in sequence.

[1] Wang et al., CNN-RNN: A Unified Framework for Multi-label Image Classification, CVPR 2016.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from partlabel.base.ranges import Size
from partlabel.images.batches import Batch
from partlabel.learning.method import Method, Task
from partlabel.models import Classifier
from partlabel.models.heads import RecurrentDecoder


class CnnRnn(Method):
    """Counts unknown labels as absent; predicts one label after another (CNN-RNN) [1].

    In training, the labels of an image are ordered by frequency, the most common first.
    The score of a class is its largest probability in any step of the sequence.

    Args:
        width: width of label vectors. Paper: 64.
        hidden: width of the LSTM state. Paper: 512.
        steps: largest number of labels predicted per image.
    """

    def __init__(self, width: Size = 64, hidden: Size = 512, steps: Size = 4) -> None:
        super().__init__()
        self.width, self.hidden, self.steps = width, hidden, steps

    def head(self, features: int, classes: int) -> nn.Module:
        """The recurrent decoder."""
        return RecurrentDecoder(features, classes, self.width, self.hidden, self.steps)

    def prepare(self, task: Task) -> None:
        """Rank the classes by frequency."""
        order = np.argsort(-task.labels.counts().present, kind="stable")
        self.rank = torch.from_numpy(np.argsort(order))

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the next label, and of the end after the last."""
        assert isinstance(model.head, RecurrentDecoder)
        words, next_words = self.sentences(batch.labels)
        logits = model.head.next_word_logits(model.backbone(batch.views["weak"]), words)
        return {"loss": cross_entropy(logits.flatten(0, 1), next_words.flatten(), ignore_index=-1)}

    def sentences(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The present labels of each image as a sequence of words.

        The word C marks the beginning and the end of a sequence.

        Args:
            labels: [B, C]

        Returns:
            Words [B, T], and the word that follows each [B, T], -1 after the end. T is the length
            of the longest sequence.
        """
        lengths, boundary = (labels > 0).sum(dim=1), labels.shape[1]
        rank = torch.where(labels > 0, self.rank.to(labels.device), boundary)
        order = rank.argsort(dim=1, stable=True)
        longest = int(lengths.max()) if len(labels) else 0
        position = torch.arange(longest + 1, device=labels.device)
        boundaries = torch.full_like(order[:, :1], boundary)
        sequences = torch.cat([order, boundaries], dim=1)[:, : longest + 1]
        next_words = torch.where(position < lengths[:, None], sequences, boundary)
        words = torch.cat([boundaries, next_words[:, :-1]], dim=1)
        return words, torch.where(position <= lengths[:, None], next_words, -1)
