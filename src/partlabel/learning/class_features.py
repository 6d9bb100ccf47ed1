"""Feature vectors of classes, from images in which the class is known to be present."""

import warnings

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from partlabel.base.randomness import key
from partlabel.labels import LabelTable
from partlabel.learning.method import Predict
from partlabel.models import Classifier
from partlabel.models.heads import Decoupled


class ClassFeatures(nn.Module):
    """Up to a number of feature vectors of each class, saved with the method.

    They are either the most recent ones (:meth:`push`) or centres of clusters (:meth:`cluster`).

    Args:
        classes: C.
        size: largest number of vectors per class.
        channels: d, width of the vectors.
    """

    vectors: Tensor
    pushed: Tensor

    def __init__(self, classes: int, size: int, channels: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("vectors", torch.zeros(classes, size, channels))
        self.register_buffer("pushed", torch.zeros(classes, dtype=torch.int64))

    @property
    def number(self) -> Tensor:
        """[C] how many vectors of each class are stored."""
        return self.pushed.clamp(max=self.size)

    def centres(self) -> Tensor:
        """[C, d] the means of the stored vectors, each scaled to length 1; 0 if there are none."""
        total = normalize(self.vectors, dim=2).sum(dim=1)  # unused ones are 0
        return total / self.number.clamp(min=1)[:, None]

    @torch.no_grad()
    def push(self, features: Tensor, present: Tensor) -> None:
        """Store the vectors of a batch; they replace the oldest ones.

        Args:
            features: [B, C, d]
            present: [B, C] which of them to store.
        """
        new = present.sum(dim=0)
        column, image = present.T.nonzero(as_tuple=True)  # class by class
        position = torch.arange(len(column), device=new.device) - (new.cumsum(0) - new)[column]
        fits = position >= new[column] - self.size
        image, column, position = image[fits], column[fits], position[fits]
        index = (self.pushed[column] + position) % self.size
        self.vectors[column, index] = features[image, column].to(self.vectors.dtype)
        self.pushed += new

    def cluster(self, features: list[NDArray[np.float32]]) -> None:
        """Store the centres of clusters of each class, or all its vectors if they are few.

        Args:
            features: [n, d] for each class.
        """
        self.vectors.zero_()
        for column, vectors in enumerate(features):
            centres = vectors
            if len(vectors) > self.size:
                centres = _k_means(vectors, self.size, key("clusters", column))
            self.vectors[column, : len(centres)] = torch.from_numpy(centres)
            self.pushed[column] = len(centres)


def _k_means(vectors: NDArray[np.float32], k: int, seed: int) -> NDArray[np.float32]:
    """The centres [k, d] of clusters of vectors [n, d]."""
    with warnings.catch_warnings():  # equal vectors leave clusters empty, which does no harm
        warnings.simplefilter("ignore")
        centres: NDArray[np.float32] = scipy.cluster.vq.kmeans2(vectors, k, minit="++", rng=seed)[0]
    return centres


def present_features(predict: Predict, labels: LabelTable) -> list[NDArray[np.float32]]:
    """For each class, the feature vectors [n, d] of images in which it is known to be present."""
    parts: list[list[NDArray[np.float32]]] = [[] for _ in labels.classes]
    width = 0
    for rows, features in predict(_decouple):
        arrays, present = features.cpu().numpy(), labels.dense(rows) > 0
        width = arrays.shape[2]
        for column in np.flatnonzero(present.any(axis=0)):
            parts[column].append(arrays[present[:, column], column])
    none = np.zeros((0, width), dtype=np.float32)
    return [np.concatenate(part) if part else none for part in parts]


def _decouple(model: Classifier, inputs: Tensor) -> Tensor:
    assert isinstance(model.head, Decoupled)
    return model.head.decouple(model.backbone(inputs))
