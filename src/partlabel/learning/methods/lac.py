"""Label-aware global consistency.

[1] Xie et al., Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels,
    NeurIPS 2022.
"""

from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.base.ranges import Count, Dropout, Epochs, Rate, Size, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.method import Method, OnLogits, Predict, Stage, Task, refuse_idle
from partlabel.learning.methods.assume_negative import AssumeNegative
from partlabel.learning.methods.em import Alpha, EntropyMaximization
from partlabel.learning.methods.em_apl import EmApl
from partlabel.learning.methods.role import count_positives
from partlabel.learning.pseudo_labels.diary import Diary
from partlabel.learning.pseudo_labels.state import refuse_patience
from partlabel.learning.queue import EmbeddingQueue
from partlabel.models import Classifier
from partlabel.models.heads import LabelDecoder

Base = Literal["an", "em", "em-apl"]
Threshold = Annotated[float, Field(ge=0.5, le=1)]

_PROJECTION = 128
_PATIENCE = 5
_SAY = (
    "expected=1.5 (your guess) or base=an; or label some images for all classes, in a split "
    "'holdout'"
)


class LabelAwareConsistency(Method):
    """Each class of each image has an embedding; those of present classes flock together (LAC) [1].

    In the first stage unknown labels cost what ``base`` says, and the weak view of a picture also
    teaches the strong one what it is sure of (PLC). In the second, embeddings of labels that are
    known or believed to be present are pulled to those of the same class, in the batch and in a
    queue of past ones, and away from others. The first stage has half of the epochs, rounded up,
    and ends after 5 (or --patience) without a better validation.

    The paper has ``base=an``. The rows of its ablation: AN ``lambda_plc=0 lambda_lac=0``, with PLC
    ``lambda_lac=0``, with LAC end to end ``stages=1 queue=0``, in two stages ``queue=0``, and as it
    is. The first of these trains any base with the same decoder. To train the whole network the
    paper has --lr 1e-4.

    Args:
        delta: how sure the weak view must be in the first stage. Paper: from 0.5 to 0.9, chosen on
            validation; the authors' code has 0.6.
        delta2: in the second stage. The authors' code: 0.9.
        lambda_plc: weight of what the weak view teaches. Paper: 1.
        lambda_lac: weight of the contrast between embeddings, 0 for none and one stage. Paper: 1.
        tau: temperature of the contrast. Paper: from 0.1 to 2, does not matter much.
        queue: how many past pairs of embeddings (of both views) take part. Paper: 512 to 8192.
        stages: 1 to begin with all losses at once, an ablation, with ``delta``.
        denominator: ``all`` compares an anchor with everything else, ``inter`` with other classes
            alone, as the paper prints it.
        base: what unknown labels cost otherwise: ``em``, ``em-apl`` or ``an``. The scores of the
            former two are no probabilities. With them, the likeliest unknown labels of a batch are
            believed to be present: a share 1 - delta of as many as there should be.
        expected: present labels per image, for ``em`` and ``em-apl``; None counts them on
            validation.
        alpha: of ``em`` and ``em-apl``, see there.
        beta, warmup: of ``em-apl``, see there.
        width: of the decoder; see the head ``decoder``.
        dropout: of the decoder.
    """

    owed: Tensor
    views: tuple[str, ...] = ("weak", "strong")
    defaults: ClassVar[dict[str, Any]] = {
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "schedule": "onecycle",
        "ema": 0.9997,
    }

    def __init__(
        self,
        delta: Threshold = 0.6,
        delta2: Threshold = 0.9,
        lambda_plc: Weight = 1.0,
        lambda_lac: Weight = 1.0,
        tau: Rate = 0.5,
        queue: Count = 512,
        stages: Literal[1, 2] = 2,
        denominator: losses.Denominator = "all",
        base: Base = "em",
        expected: Rate | None = None,
        alpha: Alpha = 0.1,
        beta: Weight = 0.02,
        warmup: Epochs = 5,
        width: Size = 256,
        dropout: Dropout = 0.1,
    ) -> None:
        super().__init__()
        refuse_idle(
            "lambda_lac",
            lambda_lac > 0,
            tau=tau != 0.5,
            queue=queue != 512,
            stages=stages != 2,
            denominator=denominator != "all",
        )
        refuse_idle(
            "lambda_plc, or lambda_lac and stages=1",
            lambda_plc > 0 or (lambda_lac > 0 and stages == 1),
            delta=delta != 0.6,
        )
        refuse_idle(
            "lambda_plc or lambda_lac", lambda_plc + lambda_lac > 0, expected=expected is not None
        )
        refuse_idle("a second stage", stages == 2 and lambda_lac > 0, delta2=delta2 != 0.9)
        refuse_idle(
            "base=em or em-apl", base != "an", alpha=alpha != 0.1, expected=expected is not None
        )
        refuse_idle("base=em-apl", base == "em-apl", beta=beta != 0.02, warmup=warmup != 5)
        self.deltas, self.lambda_plc, self.lambda_lac = (delta, delta2), lambda_plc, lambda_lac
        self.tau, self.denominator, self.number = tau, denominator, stages if lambda_lac else 1
        self.base: OnLogits = AssumeNegative()
        self.by_score = base == "an"
        if base == "em":
            self.base = EntropyMaximization(alpha)
        elif base == "em-apl":
            self.base = EmApl(alpha, beta, warmup=warmup)
            self.pseudo = self.base.pseudo  # where reports look for it
        self.expected, self.width, self.dropout = expected, width, dropout
        self.register_buffer("owed", torch.zeros(()))  # labels to be believed yet
        self.queue, self.diary = EmbeddingQueue(queue, _PROJECTION), Diary()
        self.stage = 0
        if not lambda_plc and not lambda_lac:
            self.views = ("weak",)

    def head(self, features: int, classes: int) -> nn.Module:
        """The decoder, with a projection if embeddings are compared."""
        projection = _PROJECTION if self.lambda_lac else 0
        return LabelDecoder(
            features, classes, self.width, dropout=self.dropout, projection=projection
        )

    def prepare(self, task: Task) -> None:
        """Let the base loss look at the labels."""
        self.base.prepare(task)
        self.diary.prepare(task)
        if not self.by_score and len(self.views) == 2:
            there = self.expected or count_positives(task.validation, _SAY)
            known = int(task.labels.counts().present.sum()) / len(task.labels)
            self.missing = max(there - known, 0.0)

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """The base loss and PLC, then all three."""
        if isinstance(self.base, EmApl):
            refuse_patience(patience)
        if self.number == 1:
            return [Stage(epochs, patience=patience)]
        if epochs < 2:
            raise InputError("two stages need two --epochs at least (or --set stages=1)")
        first = None if isinstance(self.base, EmApl) else patience or _PATIENCE
        return [Stage(-(-epochs // 2), patience=first), Stage(epochs // 2, patience=patience)]

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """The projection only moves where embeddings are compared."""
        self.stage = stage
        assert isinstance(model.head, LabelDecoder)
        if model.head.projection is not None:
            model.head.projection.requires_grad_(self._contrasts)

    @property
    def _contrasts(self) -> bool:
        return self.lambda_lac > 0 and self.stage == self.number - 1

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Let the base loss relabel, if it does."""
        self.diary.turn(epoch)
        return self.base.before_epoch(epoch, predict)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """The base loss on the weak view, PLC on the strong one, LAC between all embeddings."""
        head, delta = model.head, self.deltas[self.stage]
        assert isinstance(head, LabelDecoder)
        seen = torch.cat([batch.views[name] for name in self.views])
        embeddings = head.embed(model.backbone(seen))
        logits = head.classify(embeddings)
        weak, strong = logits[: len(batch)], logits[-len(batch) :]
        base = self.base.cost(weak, batch)
        positives = losses.known_positives(weak.detach(), batch.labels)
        if len(self.views) == 1:
            return {"loss": base, "positives": positives}
        believed = self._believe(weak, batch.labels, delta)
        self.diary.note(batch.rows, believed > 0)
        if self.by_score:
            plc = losses.plc(strong, batch.labels, delta, teacher=weak)
        else:
            plc = losses.bce(strong, believed)
        parts = {
            "loss": base + self.lambda_plc * plc,
            "positives": positives,
            "base": base.detach(),
            "plc": plc.detach(),
            "believed": (believed > 0).sum() / len(batch),
        }
        if self._contrasts:
            present = (batch.labels > 0) | (believed > 0)
            lac = self._contrast(head, embeddings, present)
            parts["loss"] = parts["loss"] + self.lambda_lac * lac
            parts["lac"] = lac.detach()
        return parts

    def _believe(self, logits: Tensor, labels: Tensor, delta: float) -> Tensor:
        """[B, C] in {-1, 0, 1} what to make of unknown labels."""
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
