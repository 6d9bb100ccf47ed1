"""Classifiers computed by graph convolutions over classes.

[1] Chen et al., Multi-Label Image Recognition with Graph Convolutional Networks, CVPR 2019.
[2] Wang et al., Saliency Regularization for Self-Training with Partial Annotations, ICCV 2023
    (Table 1: GCN-ML).
"""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from partlabel.base.ranges import Share, Size
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.class_knowledge import InformsHead
from partlabel.learning.method import OnLogits, weights_by_labels
from partlabel.models.heads import GraphClassifier
from partlabel.models.heads.convolved import Pool


class GraphConvolution(InformsHead, OnLogits):
    """Ignores unknown labels; a graph network computes the classifiers (ML-GCN) [1].

    The network has the vectors of the classes as its input, and links classes that occur together
    in known labels. The loss is cross-entropy on known labels, as in [2]. Needs labels that are
    known to be absent.

    Args:
        width, vectors: see ``wsabie``. Authors' code: 300, word vectors.
        hidden: width between the two graph convolutions. Authors' code: 1024.
        threshold: a class is linked to another if at least this share of its images has the other.
            Unknown labels count as absent here, so few known labels leave few links. Authors' code:
            0.4.
        linked: weight of all linked classes together, 1 - linked of the class itself. Authors'
            code: 0.2.
        pool: how features are pooled, ``max`` or ``mean``. With ``mean`` it also trains on features
            that are given as one vector per image. Authors' code: max.
    """

    name: ClassVar[str] = "ml-gcn"

    def __init__(
        self,
        width: Size = 50,
        vectors: str = "cooccurrence",
        hidden: Size = 1024,
        threshold: Share = 0.4,
        linked: Annotated[float, Field(ge=0, lt=1)] = 0.2,
        pool: Pool = "max",
    ) -> None:
        super().__init__(width, vectors)
        self.hidden, self.threshold, self.linked, self.pool = hidden, threshold, linked, pool

    def head(self, features: int, classes: int) -> nn.Module:
        """Classifiers from graph convolutions."""
        return GraphClassifier(features, classes, self.width, self.hidden, self.pool)

    def make_graph(self, shares: Tensor) -> Tensor:
        """See :func:`reweighted_graph`."""
        return reweighted_graph(shares, self.threshold, self.linked)

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """By known labels, as the loss is divided by their number."""
        return weights_by_labels(batch)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.bce`, divided by the number of known labels."""
        return losses.batch_bce(logits, batch.labels)


def reweighted_graph(shares: Tensor, threshold: float = 0.4, linked: float = 0.2) -> Tensor:
    """The graph of [1]: binary links, re-weighted and normalised.

    The normalised graph is D^(-1/2) A D^(-1/2), where D has the sums of the rows of A.

    Args:
        shares: [C, C] of the images of class i, the share that also has j.
        threshold: i is linked to j if the share is at least this.
        linked: weight of all linked classes together, 1 - linked of the class itself.

    >>> reweighted_graph(torch.tensor([[1.0, 0.5], [0.1, 1.0]]), linked=0.25)
    tensor([[0.7500, 0.2887],
            [0.0000, 1.0000]])
    """
    itself = torch.eye(len(shares))
    links = (shares >= threshold).float() * (1 - itself)
    weights = linked * links / links.sum(dim=1, keepdim=True).clamp(min=1) + (1 - linked) * itself
    scale = weights.sum(dim=1).rsqrt()
    return scale[:, None] * weights * scale
