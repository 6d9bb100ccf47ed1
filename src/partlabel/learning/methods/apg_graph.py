"""Similar images should have similar labels: the Laplacian of a graph of images.

[1] Yang et al., Improving Multi-label Learning with Missing Labels by Structured Semantic
    Correlations, ECCV 2016.
[2] Durand et al., Learning a Deep ConvNet for Multi-label Classification with Partial Labels,
    CVPR 2019 (Fig. 16: APG-Graph).
"""

from torch import Tensor

from partlabel.base.ranges import Size, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.checks import warn_of_positives_only
from partlabel.learning.image_graph import ImageGraph
from partlabel.learning.method import OnLogits, Predict, Task


class ImageLaplacian(OnLogits):
    """Ignores unknown labels; similar images must have similar scores (APG-Graph) [1].

    Before the first epoch, each training image is linked to the images with the most similar
    features. The loss is the squared difference of scores and known labels, 1 or -1, plus the
    squared differences between linked images, which pass known labels on. With ``--optimizer
    lbfgs`` the graph of all images is used at once, as in the paper. In batches only the links
    within a batch are, with a larger weight. Needs labels that are known to be absent.

    Args:
        smoothness: weight of the squared differences between linked images.
        k: number of links of an image.
    """

    def __init__(self, smoothness: Weight = 1.0, k: Size = 10) -> None:
        super().__init__()
        self.smoothness, self.k = smoothness, k

    def prepare(self, task: Task) -> None:
        """Warn if no training label is known to be absent."""
        warn_of_positives_only(task.labels, "apg-graph")
        self.images = len(task.labels)
        self.graph = ImageGraph(self.images, self.k)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Link the images, before the first epoch."""
        self.graph.build(predict)
        return {}

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """None, as linked images may be in different parts."""
        return None

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.squared` and :func:`losses.graph_smoothness`.

        A batch of B of N images has each link with probability (B - 1) / (N - 1); the inverse makes
        its smoothness an unbiased estimate.
        """
        scale = (self.images - 1) / max(len(batch) - 1, 1)
        smoothness = losses.graph_smoothness(logits, *self.graph.within(batch.rows))
        return losses.squared(logits, batch.labels) + self.smoothness * scale * smoothness
