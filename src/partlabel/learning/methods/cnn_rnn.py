"""Labels one after another.

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
    """Tells the labels of a picture one after another, the commonest first (CNN-RNN) [1].

    Unknown labels count as absent. A class scores the largest chance that it has of being told.

    Args:
        width: of the vectors of labels. Paper: 64.
        hidden: of the state. Paper: 512.
        steps: how many labels are told at most when it is asked for scores.
    """

    def __init__(self, width: Size = 64, hidden: Size = 512, steps: Size = 4) -> None:
        super().__init__()
        self.width, self.hidden, self.steps = width, hidden, steps

    def head(self, features: int, classes: int) -> nn.Module:
        """The recurrent decoder."""
        return RecurrentDecoder(features, classes, self.width, self.hidden, self.steps)

    def prepare(self, task: Task) -> None:
        """Which labels are common."""
        order = np.argsort(-task.labels.counts().present, kind="stable")
        self.rank = torch.from_numpy(np.argsort(order))

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the next label, and of the end after the last."""
        assert isinstance(model.head, RecurrentDecoder)
        words, following = self.sentences(batch.labels)
        said = model.head.tell(model.backbone(batch.views["weak"]), words)
        return {"loss": cross_entropy(said.flatten(0, 1), following.flatten(), ignore_index=-1)}

    def sentences(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Words [B, T] and the word that follows each, -1 after the end; T is the longest."""
        count, size = (labels > 0).sum(dim=1), labels.shape[1]
        rank = torch.where(labels > 0, self.rank.to(labels.device), size)
        order = rank.argsort(dim=1, stable=True)
        length = int(count.max()) if len(labels) else 0
        place = torch.arange(length + 1, device=labels.device)
        told = torch.cat([order, torch.full_like(order[:, :1], size)], dim=1)[:, : length + 1]
        following = torch.where(place < count[:, None], told, size)
        begun = torch.cat([torch.full_like(order[:, :1], size), following[:, :-1]], dim=1)
        return begun, torch.where(place <= count[:, None], following, -1)
