"""Saliency regularisation with consistency training.

[1] Wang et al., Saliency Regularization for Self-Training with Partial Annotations, ICCV 2023.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from partlabel.base.ranges import Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.method import Method, Predict, Task, refuse_idle
from partlabel.learning.methods.bce import warn_of_positives_only
from partlabel.learning.pseudo_labels.diary import Diary
from partlabel.models import Classifier
from partlabel.models.heads import Saliency, saliency_pool

Consistency = Literal["none", "pl", "plain", "saliency"]


class SaliencyRegularization(Method):
    """The highest places of class maps count twice; a weak view teaches a strong one (SR) [1].

    For known labels of both signs. Each row of the paper's ablation is a setting:
    S-BCE ``saliency=false consistency=none normalize=classes``, BN-BCE ``saliency=false
    consistency=none``, with PL ``saliency=false consistency=pl``, with CR (w/o SR)
    ``saliency=false consistency=plain``, with SR ``consistency=none``, with SR and CR (w/o SR)
    ``consistency=plain``, and as it is, with SR and CR (w/ SR).

    Args:
        alpha: weight of the highest places in a logit. Paper: 0.5.
        k: how many places. Paper: 5, of 14 x 14.
        tau: an unknown label counts as present, or absent, if that is at least so probable. Paper:
            0.6.
        saliency: false for the mean of a class map alone.
        consistency: how unknown labels are learned: ``saliency`` from the weak view to the strong
            one; ``plain`` likewise but on the mean of the class maps; ``pl`` from the weak view to
            itself; ``none``.
        normalize: what a sum over labels is divided by: ``batch`` for how many there are in the
            batch, ``image`` in each image, ``classes`` for images times classes.
        predict: ``p_hat``, with saliency, or ``p``, without.
    """

    def __init__(
        self,
        alpha: Weight = 0.5,
        k: Annotated[int, Field(ge=1)] = 5,
        tau: Annotated[float, Field(ge=0.5, le=1)] = 0.6,
        saliency: bool = True,
        consistency: Consistency = "saliency",
        normalize: losses.Normalize = "batch",
        predict: Literal["p_hat", "p"] = "p_hat",
    ) -> None:
        super().__init__()
        refuse_idle("saliency=true", saliency, alpha=alpha != 0.5)
        shown = predict != "p_hat"
        refuse_idle("saliency=true and an alpha", saliency and alpha > 0, k=k != 5, predict=shown)
        refuse_idle("a consistency", consistency != "none", tau=tau != 0.6)
        self.alpha, self.k, self.tau = (alpha if saliency else 0.0), k, tau
        self.consistency, self.normalize, self.salient = consistency, normalize, predict == "p_hat"
        if consistency in ("plain", "saliency"):
            self.views = ("weak", "strong")
        self.diary = Diary()

    def head(self, features: int, classes: int) -> nn.Module:
        """The saliency head."""
        return Saliency(features, classes, self.alpha, self.k, salient_prediction=self.salient)

    def prepare(self, task: Task) -> None:
        """Warn where this must fail."""
        warn_of_positives_only(task.labels, "sr")
        self.diary.prepare(task)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Begin a page of the diary."""
        self.diary.turn(epoch)
        return {}

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Known labels in all views, and what the weak view is sure of."""
        assert isinstance(model.head, Saliency)
        seen = torch.cat([batch.views[name] for name in self.views])
        maps = model.head.class_maps(model.backbone(seen))
        logits = saliency_pool(maps, self.alpha, self.k)
        labels = batch.labels.repeat(len(self.views), 1)
        known = losses.bce(logits, labels, self.normalize)
        parts = {"positives": losses.known_positives(logits.detach(), labels)}
        if self.consistency == "none":
            return {"loss": known, **parts}
        said = maps.mean(dim=(2, 3)) if self.consistency == "plain" else logits
        weak, learner = said[: len(batch)], said[-len(batch) :]
        believed = losses.confident(weak, batch.labels, self.tau)
        self.diary.note(batch.rows, believed > 0)
        unknown = losses.bce(learner, believed, self.normalize)
        parts |= {"known": known.detach(), "unknown": unknown.detach()}
        parts["sure"] = (believed != 0).sum() / (batch.labels == 0).sum().clamp(min=1)
        return {"loss": known + unknown, **parts}
