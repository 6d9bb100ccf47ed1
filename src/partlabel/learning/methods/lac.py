"""Label-aware global consistency: contrastive learning on one embedding per class.

[1] Xie et al., Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels,
    NeurIPS 2022.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.base.ranges import Count, Dropout, Epochs, Rate, Size, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.checks import changed_settings, refuse_idle
from partlabel.learning.extensions import Artifacts, FollowsStages, HasArtifacts
from partlabel.learning.method import Figure, OnLogits, Predict, Stage, Task
from partlabel.learning.methods.assume_negative import AssumeNegative
from partlabel.learning.methods.em import Alpha, EntropyMaximization
from partlabel.learning.methods.em_apl import EmApl
from partlabel.learning.methods.role import count_positives
from partlabel.learning.pseudo_labels.diary import Diary
from partlabel.learning.queue import EmbeddingQueue
from partlabel.models import Classifier
from partlabel.models.heads import LabelDecoder

Base = Literal["an", "em", "em-apl"]
Threshold = Annotated[float, Field(ge=0.5, le=1)]

_PROJECTION = 128
_PATIENCE = 8
_ADVICE = (
    "expected=1.5 (your estimate) or base=an; or label some images for all classes, in a split "
    "'holdout'"
)


class LabelAwareConsistency(FollowsStages, HasArtifacts):
    """Counts likely unknown labels as present; pulls embeddings of a class together (LAC) [1].

    A decoder computes one embedding per class of each image. In the first stage, the loss is that
    of another method, ``base``, plus pseudo-label consistency (PLC): confident predictions on a
    weak view are the targets of a strong view. The second stage adds a contrastive loss (LAC).
    Embeddings of labels that are known or estimated to be present are pulled together within a
    class, and pushed away from other classes, in the batch and in a queue of earlier batches. Each
    stage has up to --epochs epochs, and ends after 8 epochs (or --patience) without a better
    validation.

    The rows of the paper's ablation have ``preset=paper`` and: AN ``lambda_plc=0 lambda_lac=0``;
    with PLC ``lambda_lac=0``; with LAC end to end ``stages=1 queue=0``; in two stages ``queue=0``;
    the whole method nothing else. The first row trains any base with the same decoder. To train the
    whole network the paper uses --lr 1e-4.

    Args:
        preset: ``paper`` for the paper's own form: base an; an unknown label is learned as present
            if its probability is at least delta, and as absent if it is at most 1 - delta; PLC is
            the mean over these labels. ``default``: base em; the most likely unknown labels are
            learned as present, none as absent; PLC is divided by images times classes, so that a
            pseudo-label costs as much as a known label.
        delta: confidence threshold of the weak view in the first stage. Paper: from 0.5 to 0.9,
            chosen on validation; the authors' code has 0.6.
        delta2: the same in the second stage. The authors' code: 0.9.
        lambda_plc: weight of PLC. Paper: 1.
        lambda_lac: weight of the contrastive loss; 0 for none, and one stage. Paper: 1.
        tau: temperature of the contrastive loss. Paper: from 0.1 to 2, with little effect.
        queue: number of earlier pairs of embeddings (one per view) to compare with. Paper: 512 to
            8192.
        stages: 1 to use all losses from the start, with ``delta``, an ablation.
        denominator: ``all`` compares an embedding with all others; ``inter`` with those of other
            classes only, as printed in the paper.
        base: method for unknown labels: ``em``, ``em-apl`` or ``an``; None for that of the preset.
            With ``an``, PLC is as in the paper. The scores of the first two
            are not probabilities. With them, the most likely unknown labels of a batch count as
            present: a share 1 - delta of the number that is expected to be missing.
        expected: present labels per image, for ``em`` and ``em-apl``; None to estimate it from the
            validation labels.
        alpha: see ``em``.
        beta, warmup: see ``em-apl``.
        width, layers, feedforward, positions, dropout: of the decoder, see the head ``decoder``.
            The authors' code: 2048, 2, 8192, true, 0.1.
    """

    owed: Tensor
    views: tuple[str, ...] = ("weak", "strong")
    defaults: ClassVar[dict[str, Any]] = {
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "schedule": "onecycle",
        "rise": 0.2,
        "ema": 0.9997,
    }

    def __init__(
        self,
        preset: Literal["default", "paper"] = "default",
        delta: Threshold = 0.6,
        delta2: Threshold = 0.9,
        lambda_plc: Weight = 1.0,
        lambda_lac: Weight = 1.0,
        tau: Rate = 0.5,
        queue: Count = 512,
        stages: Literal[1, 2] = 2,
        denominator: losses.Denominator = "all",
        base: Base | None = None,
        expected: Rate | None = None,
        alpha: Alpha = 0.1,
        beta: Weight = 0.02,
        warmup: Epochs = 5,
        width: Size = 256,
        layers: Size = 1,
        feedforward: Size | None = None,
        positions: bool = False,
        dropout: Dropout = 0.1,
    ) -> None:
        changed = changed_settings(LabelAwareConsistency, locals())
        if preset == "paper" and base not in (None, "an"):
            raise InputError(f"preset=paper has base=an; leave out the preset or base={base}")
        base = base or ("an" if preset == "paper" else "em")
        contrasts, uses_estimates = lambda_lac > 0, lambda_plc + lambda_lac > 0
        uses_delta = lambda_plc > 0 or (contrasts and stages == 1)
        refuse_idle("lambda_lac", contrasts, changed, "tau", "queue", "stages", "denominator")
        refuse_idle("lambda_plc, or lambda_lac and stages=1", uses_delta, changed, "delta")
        refuse_idle("lambda_plc or lambda_lac", uses_estimates, changed, "expected")
        refuse_idle("a second stage", stages == 2 and contrasts, changed, "delta2")
        refuse_idle("base=em or em-apl", base != "an", changed, "alpha", "expected")
        refuse_idle("base=em-apl", base == "em-apl", changed, "beta", "warmup")
        super().__init__()
        self.deltas, self.lambda_plc, self.lambda_lac = (delta, delta2), lambda_plc, lambda_lac
        self.tau, self.denominator = tau, denominator
        self.stage_count = stages if lambda_lac else 1
        self.base: OnLogits = AssumeNegative()
        self.by_score = base == "an"
        if base == "em":
            self.base = EntropyMaximization(alpha)
        elif base == "em-apl":
            self.base = EmApl(alpha, beta, warmup=warmup)
        self.expected = expected
        self.decoder: dict[str, Any] = {
            "width": width,
            "dropout": dropout,
            "layers": layers,
            "feedforward": feedforward,
            "positions": positions,
        }
        # the fraction of a label that is left for the next batch
        self.register_buffer("owed", torch.zeros(()))
        self.queue, self.diary = EmbeddingQueue(queue, _PROJECTION), Diary()
        self.stage = 0
        if not lambda_plc and not lambda_lac:
            self.views = ("weak",)

    def head(self, features: int, classes: int) -> nn.Module:
        """The decoder, with a projection if there is a contrastive loss."""
        projection = _PROJECTION if self.lambda_lac else 0
        return LabelDecoder(features, classes, **self.decoder, projection=projection)

    def prepare(self, task: Task) -> None:
        """Prepare the base method, and estimate how many present labels are missing."""
        self.base.prepare(replace(task, epochs=self.stage_count * task.epochs))
        self.diary.prepare(task)
        if not self.by_score and len(self.views) == 2:
            expected = self.expected or count_positives(task.validation, _ADVICE)
            known = int(task.labels.counts().present.sum()) / len(task.labels)
            self.missing = max(expected - known, 0.0)

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """The base loss and PLC, then these and LAC."""
        return [Stage(epochs, patience=patience or _PATIENCE)] * self.stage_count

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Train the projection only in the stage with a contrastive loss."""
        self.stage = stage
        assert isinstance(model.head, LabelDecoder)
        if model.head.projection is not None:
            model.head.projection.requires_grad_(self._contrasts)

    @property
    def _contrasts(self) -> bool:
        return self.lambda_lac > 0 and self.stage == self.stage_count - 1

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Let the base method give pseudo-labels, if it does."""
        self.diary.begin_epoch(epoch)
        return self.base.before_epoch(epoch, predict)

    def figures(self) -> dict[str, Figure]:
        """Three costs, and the number of unknown labels per image that counted as present."""
        costs = dict.fromkeys(("base", "plc", "lac"), Figure.COST)
        return self.base.figures() | costs | {"believed": Figure.COUNT}

    def artifacts(self) -> Artifacts:
        """Unknown labels that counted as present, and the pseudo-labels of the base, if any."""
        pseudo = self.base.pseudo if isinstance(self.base, EmApl) else None
        return Artifacts(pseudo, self.diary)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """The base loss on the weak view, PLC on the strong one, LAC on the embeddings of both."""
        head, delta = model.head, self.deltas[self.stage]
        assert isinstance(head, LabelDecoder)
        inputs = torch.cat([batch.views[name] for name in self.views])
        embeddings = head.embed(model.backbone(inputs))
        logits = head.classify(embeddings)
        weak, strong = logits[: len(batch)], logits[-len(batch) :]
        base = self.base.cost(weak, batch)
        positives = losses.known_positives(weak.detach(), batch.labels)
        if len(self.views) == 1:
            return {"loss": base, "positives": positives}
        estimates = self._estimate(weak, batch.labels, delta)
        self.diary.add(batch.rows, estimates > 0)
        if self.by_score:
            plc = losses.plc(strong, batch.labels, delta, teacher=weak)
        else:
            plc = losses.bce(strong, estimates)
        parts = {
            "loss": base + self.lambda_plc * plc,
            "positives": positives,
            "base": base.detach(),
            "plc": plc.detach(),
            "believed": (estimates > 0).sum() / len(batch),
        }
        if self._contrasts:
            present = (batch.labels > 0) | (estimates > 0)
            lac = self._contrast(head, embeddings, present)
            parts["loss"] = parts["loss"] + self.lambda_lac * lac
            parts["lac"] = lac.detach()
        return parts

    def _estimate(self, logits: Tensor, labels: Tensor, delta: float) -> Tensor:
        """[B, C] in {-1, 0, 1} estimates of unknown labels, 0 where there is none."""
        if self.by_score:
            return losses.confident(logits, labels, delta)
        self.owed += (1 - delta) * self.missing * len(labels)
        number = int(self.owed)
        self.owed -= number
        return losses.likeliest(logits, labels, number).to(labels.dtype)

    def _contrast(self, head: LabelDecoder, embeddings: Tensor, present: Tensor) -> Tensor:
        """LAC over the embeddings [2 B, C, width] of cells [B, C] that count as present."""
        image, column = present.nonzero(as_tuple=True)
        pairs = torch.stack([view[image, column] for view in embeddings.chunk(2)], dim=1)
        pairs = head.project(pairs)
        past, past_classes = self.queue.read()
        loss = losses.lac(
            pairs.flatten(0, 1),
            column.repeat_interleave(2),
            past,
            past_classes,
            self.tau,
            self.denominator,
            total=2 * present.numel(),
        )
        self.queue.push(pairs, column)
        return loss
