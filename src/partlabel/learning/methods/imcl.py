"""Interactive learning with similarities between images and between labels.

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
    """Labels and features of an image should be sums of those of a few similar images (IMCL) [1].

    After a warm-up on known labels alone, each step first finds for each image the few others of
    the batch that explain its labels (spread over a graph of labels that come together) and its
    features; then improves the weights of the graph; then trains the network on known labels and on
    what its neighbours say of unknown ones.

    Args:
        lambda_y, lambda_f: how much labels and features must be like those of similar images.
            Paper: 1 and 0.5; CUB 2 and 0.5, COCO 0.5 and 0.5. Much smaller ones are better here.
        k: how many similar images at most. Paper: 5, COCO 3.
        graph: ``cooccurrence`` counted on known labels, ``identity`` for none, or a CSV file with
            class,linked,weight on each line.
        k_a: how many labels a label is linked to by co-occurrence. Paper: 50.
        graph_lr: of the weights of the graph, as a share of the longest stable step; 0 keeps them
            as they are, an ablation.
        graph_steps: on these weights in each step of the training.
        features: of ``unit`` length, or ``raw`` as the paper has them: then they are longer than
            labels by far, and shrink as they are pulled together.
        images: ``learned`` finds similar images in each step; ``fixed`` by the model as it was
            after the warm-up, an ablation.
        gradient: ``neighbours``: an image's labels are what its neighbours' must explain; ``both``
            also pulls an image to what they say, as the paper's equations do.
        negative_scale: factor on absent labels in the search. Paper: 0.5.
        dictionary: so many images of past steps may be similar too. For small batches, and with
            gradient=both, since the past cannot be changed.
        a: magnitude of side information (--side), which only helps to find similar images. Paper: 1
            or 10.
        warmup: epochs on known labels alone; None for half of them. Fewer where features train:
            what similar images say keeps a network from learning few labels by heart.
        solve: take all images at once in the warm-up, by L-BFGS, which soon comes to the minimum;
            for frozen features, with a weight decay.
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
        self.linking, self.k_a, self.graph_lr, self.graph_steps = graph, k_a, graph_lr, graph_steps
        self.negative_scale, self.a, self.warmup, self.solve = negative_scale, a, warmup, solve
        if dictionary and images == "fixed":
            raise InputError("images=fixed looks in the batch alone; leave dictionary at 0")
        if dictionary and gradient == "neighbours":
            raise InputError("neighbours in a dictionary get no gradient: set gradient=both too")
        self.both, self.unit = gradient == "both", features == "unit"
        self.recent = Recent(dictionary)
        self.snapshot = Snapshot() if images == "fixed" else None
        self.stage, self.last = 0, 0 if warmup == 0 else 1

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """Known labels alone, then with similar images."""
        return warm_up_stages(self.warmup, epochs, patience, solve=self.solve)

    def prepare(self, task: Task) -> None:
        """Count which labels come together."""
        warn_of_positives_only(task.labels, "imcl")
        refuse_idle("--side", task.side is not None, self.changed, "a")
        self.graph = LearnedGraph(self.links(task))
        self.learns_graph = self.lambda_y * self.graph_lr > 0 and self.graph.linked.shape[1] > 1
        self.side = task.side

    def links(self, task: Task) -> LabelGraph:
        """The graph to begin with."""
        classes = task.labels.classes
        if self.linking == "identity":
            return identity_graph(len(classes))
        if self.linking == "cooccurrence":
            return cooccurrence_graph(task.labels, self.k_a)
        if not Path(self.linking).exists():
            raise InputError(
                f"graph={self.linking}: neither cooccurrence, nor identity, nor a file of links"
            )
        return given_graph(classes, read_links(self.linking, classes))

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Similar images count from the second stage on."""
        self.stage = stage
        if stage == self.last and self.snapshot is not None:
            self.snapshot.take(model)

    def figures(self) -> dict[str, Figure]:
        """Three costs, and the number of similar images per image."""
        costs = dict.fromkeys(("known", "labels", "features"), Figure.COST)
        return super().figures() | costs | {"similar": Figure.COUNT}

    def artifacts(self) -> Artifacts:
        """The label graph."""
        return Artifacts(label_graph=self.graph)

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy on known labels, and how far images are from similar ones (Eq. 1)."""
        seen = batch.views["weak"]
        maps = model.backbone(seen)
        logits = model.head(maps)
        known = losses.bce(logits, batch.labels, "batch")
        parts = {
            "loss": known,
            "positives": losses.known_positives(logits.detach(), batch.labels),
        }
        if self.stage < self.last or self.lambda_y + self.lambda_f == 0:
            return parts
        shown = self._describe(maps, logits, batch)
        pool = self.recent.before(**shown)
        if self.snapshot is None:
            found = self._search(shown, pool)
        else:
            then = self._describe(*self.snapshot.look(seen), batch)
            found = self._search(then, then)
        self.recent.push(**shown)
        combined = _combine(found.images, found.label_coef, pool["labels"])
        if self.learns_graph:
            self.graph.learn(shown["labels"], combined, self.graph_lr, self.graph_steps)
        labels = shown["labels"] if self.both else shown["labels"].detach()
        alike = losses.label_smoothness(labels, self.graph.spread(combined))
        explained = _combine(found.images, found.feature_coef, pool["features"])
        features = shown["features"] if self.both else shown["features"].detach()
        near = losses.feature_smoothness(features, explained)
        parts["loss"] = known + self.lambda_y * alike + self.lambda_f * near
        similar = (found.images >= 0).sum() / max(len(batch), 1)
        told = {"known": known, "labels": alike, "features": near, "similar": similar}
        return parts | {name: value.detach() for name, value in told.items()}

    def _describe(self, maps: Tensor, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Rows [B], completed labels [B, C] and features [B, D]."""
        labels = losses.completed_labels(logits, batch.labels, self.negative_scale)
        features = maps.mean(dim=(2, 3)).to(labels.dtype)
        features = normalize(features) if self.unit else features
        return {"rows": batch.rows, "labels": labels, "features": features}

    @torch.no_grad()
    def _search(self, shown: dict[str, Tensor], pool: dict[str, Tensor]) -> Neighbours:
        """Which images of the pool explain these."""
        labels, spread = shown["labels"], self.graph.spread(pool["labels"])
        return pursue(
            torch.cat([labels, self._side(shown["rows"]).to(labels)], dim=1),
            shown["features"],
            torch.cat([spread, self._side(pool["rows"]).to(labels)], dim=1),
            pool["features"],
            self.k,
            self.lambda_y,
            self.lambda_f,
            barred=shown["rows"][:, None] == pool["rows"],
        )

    def _side(self, rows: Tensor) -> Tensor:
        """Side information [B, S], nothing if there is none."""
        if self.side is None:
            return rows.new_zeros(len(rows), 0)
        return self.a * (torch.from_numpy(self.side.dense(rows.cpu().numpy())) > 0)


def _combine(index: Tensor, coefficients: Tensor, pool: Tensor) -> Tensor:
    """[B, k] numbers (-1 for none) and coefficients to sums [B, d] of rows of [M, d]."""
    return (coefficients[:, :, None] * pool[index.clamp(min=0)]).sum(dim=1)
