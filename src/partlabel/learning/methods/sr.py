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
from partlabel.learning.checks import changed_settings, refuse_idle, warn_of_positives_only
from partlabel.learning.extensions import Artifacts, HasArtifacts
from partlabel.learning.method import Figure, Predict, Task
from partlabel.learning.pseudo_labels.diary import Diary
from partlabel.models import Classifier
from partlabel.models.heads import Saliency, saliency_pool

Consistency = Literal["none", "pl", "plain", "saliency"]


class SaliencyRegularization(HasArtifacts):
    """Learns unknown labels of a strong view from confident predictions on a weak view (SR) [1].

    The logit of a class is the mean of its class map plus alpha times the mean of its k highest
    values. Needs labels that are known to be absent.

    The rows of the paper's ablation are: S-BCE ``saliency=false consistency=none
    normalize=classes``; BN-BCE ``saliency=false consistency=none``; with PL ``saliency=false
    consistency=pl``; with CR (w/o SR) ``saliency=false consistency=plain``; with SR
    ``consistency=none``; with SR and CR (w/o SR) ``consistency=plain``; with SR and CR (w/ SR) the
    defaults.

    Args:
        alpha: weight of the highest values. Paper: 0.5.
        k: number of highest values. Paper: 5.
        tau: threshold: an unknown label counts as present if its probability is at least tau, and
            as absent if it is at most 1 - tau. Paper: 0.6.
        saliency: false to use the mean of a class map only.
        consistency: how unknown labels are learned. ``saliency``: the weak view's predictions are
            the targets of the strong view; ``plain``: the same, on the means of the class maps
            only; ``pl``: they are the targets of the weak view itself; ``none``: not at all.
        normalize: what a sum over labels is divided by. ``batch``: their number in the batch;
            ``image``: their number in each image; ``classes``: images times classes.
        predict: the score of a class: ``p_hat`` with saliency, ``p`` without.
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
        changed = changed_settings(SaliencyRegularization, locals())
        refuse_idle("saliency=true", saliency, changed, "alpha")
        refuse_idle("saliency=true and an alpha", saliency and alpha > 0, changed, "k", "predict")
        refuse_idle("a consistency", consistency != "none", changed, "tau")
        super().__init__()
        self.alpha, self.k, self.tau = (alpha if saliency else 0.0), k, tau
        self.consistency, self.normalize, self.salient = consistency, normalize, predict == "p_hat"
        if consistency in ("plain", "saliency"):
            self.views = ("weak", "strong")
        self.diary = Diary()

    def head(self, features: int, classes: int) -> nn.Module:
        """The saliency head."""
        return Saliency(features, classes, self.alpha, self.k, salient_prediction=self.salient)

    def prepare(self, task: Task) -> None:
        """Warn if no training label is known to be absent."""
        warn_of_positives_only(task.labels, "sr")
        self.diary.prepare(task)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Start the diary's page of this epoch."""
        self.diary.begin_epoch(epoch)
        return {}

    def figures(self) -> dict[str, Figure]:
        """Two costs, and the share of unknown labels with a confident prediction."""
        costs = dict.fromkeys(("known", "unknown"), Figure.COST)
        return super().figures() | costs | {"sure": Figure.SHARE}

    def artifacts(self) -> Artifacts:
        """The unknown labels that counted as present."""
        return Artifacts(diary=self.diary)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy on known labels in all views, and on confident unknown labels."""
        assert isinstance(model.head, Saliency)
        inputs = torch.cat([batch.views[name] for name in self.views])
        maps = model.head.class_maps(model.backbone(inputs))
        logits = saliency_pool(maps, self.alpha, self.k)
        labels = batch.labels.repeat(len(self.views), 1)
        known = losses.bce(logits, labels, self.normalize)
        parts = {"positives": losses.known_positives(logits.detach(), labels)}
        if self.consistency == "none":
            return {"loss": known, **parts}
        scores = maps.mean(dim=(2, 3)) if self.consistency == "plain" else logits
        teacher, student = scores[: len(batch)], scores[-len(batch) :]
        estimates = losses.confident(teacher, batch.labels, self.tau)
        self.diary.add(batch.rows, estimates > 0)
        unknown = losses.bce(student, estimates, self.normalize)
        parts |= {"known": known.detach(), "unknown": unknown.detach()}
        parts["sure"] = (estimates != 0).sum() / (batch.labels == 0).sum().clamp(min=1)
        return {"loss": known + unknown, **parts}
