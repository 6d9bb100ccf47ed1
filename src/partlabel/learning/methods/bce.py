"""Binary cross-entropy on known labels."""

from torch import Tensor

from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.checks import warn_of_positives_only
from partlabel.learning.method import OnLogits, Task, weights_by_images, weights_by_labels


class Bce(OnLogits):
    """Ignores unknown labels: binary cross-entropy on known labels only.

    The baseline if both present and absent labels are known. Trained on full labels, it is the
    usual upper bound in comparisons.

    Args:
        normalize: what the sum over known labels is divided by. ``classes``: images times classes;
            ``batch``: the number of known labels in the batch; ``image``: the number of known
            labels of each image, then the mean over images.
    """

    def __init__(self, normalize: losses.Normalize = "classes") -> None:
        super().__init__()
        self.normalize = normalize

    def prepare(self, task: Task) -> None:
        """Warn if no training label is known to be absent."""
        warn_of_positives_only(task.labels, "bce")

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """By known labels if the loss is divided by their number, otherwise by images."""
        return (weights_by_labels if self.normalize == "batch" else weights_by_images)(batch)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.bce`."""
        return losses.bce(logits, batch.labels, self.normalize)
