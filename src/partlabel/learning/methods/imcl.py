"""Interactive learning: similar images, and a graph of related labels.

[1] Huynh and Elhamifar, Interactive Multi-Label CNN Learning with Partial Labels, CVPR 2020.
"""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from partlabel.base.errors import InputError
from partlabel.base.ranges import Count, Epochs, Rate, Share, Size, Weight
from partlabel.images.batches import Batch
from partlabel.labels.formats.links import read_links
from partlabel.learning import losses
from partlabel.learning.checks import changed_settings, refuse_idle, warn_of_positives_only
from partlabel.learning.cooccurrence import (
    LabelGraph,
    cooccurrence_graph,
    given_graph,
    identity_graph,
)
from partlabel.learning.extensions import Artifacts, FollowsStages, HasArtifacts, UsesSide
from partlabel.learning.label_graph import LearnedGraph
from partlabel.learning.method import Figure, Stage, Task, warm_up_stages
from partlabel.learning.recent import Recent
from partlabel.learning.similarity import Neighbours, pursue
from partlabel.learning.snapshot import Snapshot
from partlabel.models import Classifier


class InteractiveLearning(FollowsStages, UsesSide, HasArtifacts):
    """Predicts unknown labels and makes them agree with those of similar images (IMCL) [1].

    Unknown labels are replaced by predictions. The labels and features of an image should be
    weighted sums of those of a few similar images. The sum of labels is spread over a graph of
    classes that occur together.

    The training starts with a warm-up on known labels only. After it, each step has three parts.
    First, for each image, up to k similar images of the batch are found, from which its labels and
    features can best be computed. Second, the weights of the graph are updated. Third, the network
    is trained on known labels and on the differences to the weighted sums.

    Args:
        lambda_y, lambda_f: weights of the differences of labels and of features. Paper: 1 and 0.5;
            CUB 2 and 0.5, COCO 0.5 and 0.5. The much smaller defaults gave better results here.
        k: largest number of similar images per image. Paper: 5, COCO 3.
        graph: ``cooccurrence`` counted on known labels, ``identity`` for no links, or a CSV file
            with the columns class,linked,weight.
        k_a: number of classes that each class is linked to by co-occurrence. Paper: 50.
        graph_lr: learning rate of the weights of the graph, as a share of the longest stable step;
            0 keeps the initial weights, an ablation.
        graph_steps: gradient steps on these weights per training step.
        features: ``unit`` scales feature vectors to length 1; ``raw`` leaves them as they are, as
            in the paper. Raw features are much longer than label vectors, and shrink during the
            training.
        images: ``learned`` finds similar images with the current model; ``fixed`` with the model
            after the warm-up, an ablation.
        gradient: which labels and features the differences change. ``neighbours``: those of the
            similar images; ``both``: also those of the image itself, as in the paper.
        negative_scale: factor on negative label values in the search and in the differences. Paper:
            0.5.
        dictionary: number of images of earlier steps that are searched too. For small batches;
            needs gradient=both, since images of earlier steps get no gradient.
        a: scale of side information (--side), which is only used to find similar images. Paper: 1
            or 10.
        warmup: epochs on known labels only; None for half of all epochs. Use fewer if the backbone
            is trained: the later stage reduces overfitting on few labels.
        solve: in the warm-up, use L-BFGS on all images at once, which converges in a few epochs.
            Needs --frozen, and should have a --weight-decay.
    """

    files = ("graph",)

    def __init__(
        self,
        lambda_y: Weight = 0.1,
        lambda_f: Weight = 0.01,
        k: Size = 5,
        graph: str = "cooccurrence",
        k_a: Count = 50,
        graph_lr: Share = 0.01,
        graph_steps: Size = 1,
        features: Literal["unit", "raw"] = "unit",
        images: Literal["learned", "fixed"] = "learned",
        gradient: Literal["neighbours", "both"] = "neighbours",
        negative_scale: Share = 0.5,
        dictionary: Count = 0,
        a: Rate = 10.0,
        warmup: Epochs | None = None,
        solve: bool = False,
    ) -> None:
        changed = changed_settings(InteractiveLearning, locals())
        any_lambda = lambda_y + lambda_f > 0
        searched = ("k", "images", "gradient", "dictionary")
        refuse_idle(
            "lambda_y", lambda_y > 0, changed, "graph", "k_a", "graph_lr", "negative_scale", "a"
        )
        refuse_idle("lambda_y or lambda_f", any_lambda, changed, *searched)
        refuse_idle("lambda_f", lambda_f > 0, changed, "features")
        refuse_idle("graph=cooccurrence", graph == "cooccurrence", changed, "k_a")
        refuse_idle("a graph_lr", graph_lr > 0, changed, "graph_steps")
        refuse_idle("a warmup", warmup != 0, changed, "solve")
        super().__init__()
        self.changed = changed
        self.lambda_y, self.lambda_f, self.k = lambda_y, lambda_f, k
        self.graph_source, self.k_a, self.graph_lr, self.graph_steps = (
            graph,
            k_a,
            graph_lr,
            graph_steps,
        )
        self.negative_scale, self.a, self.warmup, self.solve = negative_scale, a, warmup, solve
        if dictionary and images == "fixed":
            raise InputError("images=fixed searches the batch only; leave dictionary at 0")
        if dictionary and gradient == "neighbours":
            raise InputError("images of a dictionary get no gradient; set gradient=both too")
        self.both, self.unit = gradient == "both", features == "unit"
        self.recent = Recent(dictionary)
        self.snapshot = Snapshot() if images == "fixed" else None
        self.stage, self.interactive_stage = 0, 0 if warmup == 0 else 1

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """The warm-up on known labels, then the stage with similar images."""
        return warm_up_stages(self.warmup, epochs, patience, solve=self.solve)

    def prepare(self, task: Task) -> None:
        """Build the label graph."""
        warn_of_positives_only(task.labels, "imcl")
        refuse_idle("--side", task.side is not None, self.changed, "a")
        self.graph = LearnedGraph(self.links(task))
        self.learns_graph = self.lambda_y * self.graph_lr > 0 and self.graph.linked.shape[1] > 1
        self.side = task.side

    def links(self, task: Task) -> LabelGraph:
        """The initial label graph."""
        classes = task.labels.classes
        if self.graph_source == "identity":
            return identity_graph(len(classes))
        if self.graph_source == "cooccurrence":
            return cooccurrence_graph(task.labels, self.k_a)
        if not Path(self.graph_source).exists():
            raise InputError(
                f"graph={self.graph_source}: there is no such file; set cooccurrence, identity, or "
                "a CSV file of links"
            )
        return given_graph(classes, read_links(self.graph_source, classes))

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Similar images are used after the warm-up."""
        self.stage = stage
        if stage == self.interactive_stage and self.snapshot is not None:
            self.snapshot.take(model)

    def figures(self) -> dict[str, Figure]:
        """Three costs, and the number of similar images per image."""
        costs = dict.fromkeys(("known", "labels", "features"), Figure.COST)
        return super().figures() | costs | {"similar": Figure.COUNT}

    def artifacts(self) -> Artifacts:
        """The label graph."""
        return Artifacts(label_graph=self.graph)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy on known labels, and distances to similar images (Eq. 1)."""
        inputs = batch.views["weak"]
        maps = model.backbone(inputs)
        logits = model.head(maps)
        known = losses.bce(logits, batch.labels, "batch")
        parts = {
            "loss": known,
            "positives": losses.known_positives(logits.detach(), batch.labels),
        }
        if self.stage < self.interactive_stage or self.lambda_y + self.lambda_f == 0:
            return parts
        current = self._describe(maps, logits, batch)
        pool = self.recent.before(**current)
        if self.snapshot is None:
            neighbours = self._search(current, pool)
        else:
            earlier = self._describe(*self.snapshot.forward_copy(inputs), batch)
            neighbours = self._search(earlier, earlier)
        self.recent.push(**current)
        combined_labels = _combine(neighbours.images, neighbours.label_coef, pool["labels"])
        if self.learns_graph:
            self.graph.learn(current["labels"], combined_labels, self.graph_lr, self.graph_steps)
        labels = current["labels"] if self.both else current["labels"].detach()
        label_cost = losses.label_smoothness(labels, self.graph.spread(combined_labels))
        combined_features = _combine(neighbours.images, neighbours.feature_coef, pool["features"])
        features = current["features"] if self.both else current["features"].detach()
        feature_cost = losses.feature_smoothness(features, combined_features)
        parts["loss"] = known + self.lambda_y * label_cost + self.lambda_f * feature_cost
        similar = (neighbours.images >= 0).sum() / max(len(batch), 1)
        logged = {"known": known, "labels": label_cost, "features": feature_cost}
        logged["similar"] = similar
        return parts | {name: value.detach() for name, value in logged.items()}

    def _describe(self, maps: Tensor, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Rows [B], completed labels [B, C] and features [B, D]."""
        labels = losses.completed_labels(logits, batch.labels, self.negative_scale)
        features = maps.mean(dim=(2, 3)).to(labels.dtype)
        features = normalize(features) if self.unit else features
        return {"rows": batch.rows, "labels": labels, "features": features}

    @torch.no_grad()
    def _search(self, current: dict[str, Tensor], pool: dict[str, Tensor]) -> Neighbours:
        """The similar images of each image, from those of the pool but itself."""
        labels, spread = current["labels"], self.graph.spread(pool["labels"])
        return pursue(
            torch.cat([labels, self._side(current["rows"]).to(labels)], dim=1),
            current["features"],
            torch.cat([spread, self._side(pool["rows"]).to(labels)], dim=1),
            pool["features"],
            self.k,
            self.lambda_y,
            self.lambda_f,
            barred=current["rows"][:, None] == pool["rows"],
        )

    def _side(self, rows: Tensor) -> Tensor:
        """Side information [B, S]; S is 0 if there is none."""
        if self.side is None:
            return rows.new_zeros(len(rows), 0)
        return self.a * (torch.from_numpy(self.side.dense(rows.cpu().numpy())) > 0)


def _combine(index: Tensor, coefficients: Tensor, pool: Tensor) -> Tensor:
    """Weighted sums [B, d] of rows of a pool.

    Args:
        index: [B, k] rows of the pool, -1 for none.
        coefficients: [B, k] their weights, 0 for none.
        pool: [M, d]
    """
    return (coefficients[:, :, None] * pool[index.clamp(min=0)]).sum(dim=1)
