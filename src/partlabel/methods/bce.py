"""The two baselines: known labels only, and unknown labels as absent."""

from torch import Tensor

from partlabel import losses
from partlabel.data import Batch
from partlabel.methods.base import Method
from partlabel.models import Classifier


class Bce(Method):
    """Binary cross-entropy on known labels; unknown ones do not count.

    The honest baseline where labels of both signs are known, and on full labels the upper bound.

    Args:
        normalize: ``classes`` (sum / B*C), ``batch`` (sum / known in the batch) or ``image``.
    """

    def __init__(self, normalize: losses.Normalize = "classes") -> None:
        super().__init__()
        self.normalize = normalize

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """See :func:`losses.bce`."""
        logits = model(batch.views["weak"])
        return {"loss": losses.bce(logits, batch.labels, self.normalize)}


class AssumeNegative(Method):
    """Binary cross-entropy in which unknown labels count as absent ("AN").

    What most people do without thinking; the baseline for single positive labels.
    """

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """See :func:`losses.assume_negative`."""
        return {"loss": losses.assume_negative(model(batch.views["weak"]), batch.labels)}
