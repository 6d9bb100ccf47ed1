"""Semantic transfer: what the other labels of an image, and other images, say about a label.

[1] Chen et al., Structured Semantic Transfer for Multi-Label Recognition with Partial Labels,
    AAAI 2022.
[2] Chen et al., Heterogeneous Semantic Transfer for Multi-label Recognition with Partial Labels,
    IJCV 2024.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from partlabel.learning.losses.cellwise import precise
from partlabel.learning.losses.unknown_as_absent import asymmetric


def pair_cooccurrence(logits: Tensor, pairs: Tensor, labels: Tensor) -> Tensor:
    """Asymmetric loss of pairs of classes: a pair is present if both labels are known to be [1].

    The focusing parameters are 1 and 2 and the margin is 0.05, as in the authors' code.

    Args:
        logits: [B, n] one for each pair.
        pairs: [2, n] the two classes of each pair.
        labels: [B, C]
    """
    present = labels > 0
    both = present[:, pairs[0]] & present[:, pairs[1]]
    return asymmetric(logits, both, gamma_positive=1.0, gamma_negative=2.0, margin=0.05)


def scores_within_images(logits: Tensor, pairs: Tensor, labels: Tensor) -> Tensor:
    """How well each class fits the classes that are known to be present in the image [1].

    The mean probability of the pairs with all other present classes; 0 if there are none.

    Args:
        logits: [B, n] one for each pair.
        pairs: [2, n] the two classes of each pair.
        labels: [B, C]

    Returns:
        [B, C] from 0 to 1

    >>> pairs = torch.tensor([[0, 0, 1], [1, 2, 2]])
    >>> labels = torch.tensor([[1, -1, 0]])
    >>> scores_within_images(torch.tensor([[0.0, 9.0, -9.0]]), pairs, labels)
    tensor([[0.0000, 0.5000, 0.9999]])
    """
    probabilities = torch.sigmoid(precise(logits))
    present = (labels > 0).to(probabilities.dtype)
    first, second = pairs
    total = torch.zeros_like(present)
    total = total.index_add(1, first, probabilities * present[:, second])
    total = total.index_add(1, second, probabilities * present[:, first])
    return total / other_present(labels).clamp(min=1)


def other_present(labels: Tensor) -> Tensor:
    """[B, C] the number of other classes that are known to be present in the image."""
    present = (labels > 0).to(labels.dtype)
    return present.sum(dim=1, keepdim=True) - present


def scores_across_images(features: Tensor, centres: Tensor) -> Tensor:
    """The mean cosine of each feature vector with those of a class that are stored [1].

    Args:
        features: [B, C, d] one feature vector per class.
        centres: [C, d] means of the stored vectors, each scaled to length 1; 0 if there are none.

    Returns:
        [B, C] from -1 to 1
    """
    features = precise(features)
    return (normalize(features, dim=2) * centres.to(features.dtype)).sum(dim=2)


def transferred(scores: Tensor, labels: Tensor, threshold: float) -> Tensor:
    """Known labels, and present where an unknown label has a score from the threshold on.

    Args:
        scores: [B, C]; they get no gradient.
        labels: [B, C]
        threshold: smallest score of an unknown label that counts as present.
    """
    is_likely = (scores.detach() >= threshold) & (labels == 0)
    return torch.where(is_likely, 1, labels).to(labels.dtype)


def label_contrast(features: Tensor, labels: Tensor) -> Tensor:
    """Pull feature vectors of a class together if both images have it, and apart otherwise [1].

    Over pairs of images and classes whose labels are known in both: the mean of 1 - cosine where
    the class is present in both, plus the mean of 1 + cosine of all other pairs.

    Args:
        features: [B, C, d] one feature vector per class.
        labels: [B, C]

    >>> features = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])
    >>> label_contrast(features, torch.tensor([[1], [1], [-1]]))  # 1, and the mean of 2 and 1
    tensor(2.5000)
    """
    unit = normalize(precise(features), dim=2).transpose(0, 1)  # [C, B, d]
    cosines = unit @ unit.transpose(1, 2)
    is_known, is_present = (labels != 0).T, (labels > 0).T
    different = torch.ones_like(cosines, dtype=torch.bool).triu(1)
    known = is_known[:, :, None] & is_known[:, None] & different
    same = is_present[:, :, None] & is_present[:, None] & different
    return _mean_of(1 - cosines, same) + _mean_of(1 + cosines, known & ~same)


def prototype_contrast(scores: Tensor, labels: Tensor) -> Tensor:
    """Pull feature vectors to the prototypes of their class if it is present, else away [2].

    The mean of 1 - score over labels known to be present, plus the mean of 1 + score over those
    known to be absent.

    Args:
        scores: [B, C] mean cosines with the prototypes; see :func:`scores_across_images`.
        labels: [B, C]
    """
    return _mean_of(1 - scores, labels > 0) + _mean_of(1 + scores, labels < 0)


def _mean_of(cost: Tensor, chosen: Tensor) -> Tensor:
    """The mean over chosen entries, 0 if there are none."""
    return torch.where(chosen, cost, 0).sum() / chosen.sum().clamp(min=1)
