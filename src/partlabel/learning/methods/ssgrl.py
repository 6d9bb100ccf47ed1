"""One feature vector per class, and message passing between classes.

[1] Chen et al., Learning Semantic-Specific Graph Representation for Multi-Label Image Recognition,
    ICCV 2019.
[2] Wang et al., Saliency Regularization for Self-Training with Partial Annotations, ICCV 2023
    (Table 1).
"""

from typing import ClassVar

from torch import Tensor, nn

from partlabel.base.ranges import Size
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.class_knowledge import InformsHead
from partlabel.learning.method import OnLogits
from partlabel.models.heads import Decoupled


class SemanticGraph(InformsHead, OnLogits):
    """Ignores unknown labels; features of one class reach linked classes (SSGRL) [1].

    The vector of a class decides where the class looks in an image. The feature vectors of classes
    that occur together in known labels are then combined. The loss is cross-entropy on known
    labels, as in [2]. Needs labels that are known to be absent.

    Args:
        width, vectors: see ``wsabie``. Authors' code: 300, word vectors.
        channels: width of the feature vector of a class. Authors' code: 2048.
        joint: width of the attention. Authors' code: 1024.
        steps: steps of message passing. Authors' code of ``sst``: 3.
    """

    name: ClassVar[str] = "ssgrl"
    in_one_batch = False  # a step changes the running statistics of features

    def __init__(
        self,
        width: Size = 50,
        vectors: str = "cooccurrence",
        channels: Size = 128,
        joint: Size = 128,
        steps: Size = 3,
    ) -> None:
        super().__init__(width, vectors)
        self.channels, self.joint, self.steps = channels, joint, steps

    def head(self, features: int, classes: int) -> nn.Module:
        """One feature vector per class, and message passing."""
        return Decoupled(features, classes, self.width, self.channels, self.joint, self.steps)

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """None, as features are normalised over all images of a batch."""
        return None

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.bce`, divided by the number of known labels."""
        return losses.batch_bce(logits, batch.labels)
