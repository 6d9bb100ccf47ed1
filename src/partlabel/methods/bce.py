"""The baseline on known labels."""

from torch import Tensor

from partlabel import losses
from partlabel.data import Batch
from partlabel.methods.base import OnLogits


class Bce(OnLogits):
    """Binary cross-entropy on known labels; unknown ones do not count.

    The honest baseline where labels of both signs are known, and on full labels the upper bound.

    Args:
        normalize: ``classes`` (sum / B*C), ``batch`` (sum / known in the batch) or ``image``.
    """

    def __init__(self, normalize: losses.Normalize = "classes") -> None:
        super().__init__()
        self.normalize = normalize

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.bce`."""
        return losses.bce(logits, batch.labels, self.normalize)
