"""The baseline on known labels."""

import warnings

from torch import Tensor

from partlabel.base.errors import PartlabelWarning
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning import losses
from partlabel.learning.method import OnLogits, Task


class Bce(OnLogits):
    """Binary cross-entropy on known labels; unknown ones do not count.

    The honest baseline where labels of both signs are known, and on full labels the upper bound.

    Args:
        normalize: ``classes`` (sum / B*C), ``batch`` (sum / known in the batch) or ``image``.
    """

    def __init__(self, normalize: losses.Normalize = "classes") -> None:
        super().__init__()
        self.normalize = normalize

    def prepare(self, task: Task) -> None:
        """Warn where this must fail."""
        warn_of_positives_only(task.labels, "bce")

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.bce`."""
        return losses.bce(logits, batch.labels, self.normalize)


def warn_of_positives_only(
    labels: LabelTable, method: str, instead: str = "Take em-apl, or an"
) -> None:
    """Warn where a method that leaves unknown labels out has nothing to tell absence by."""
    if not labels.counts().absent.any():
        warnings.warn(
            f"no training label is known to be absent: {method} learns that everything is present. "
            f"{instead}",
            PartlabelWarning,
            stacklevel=3,
        )
