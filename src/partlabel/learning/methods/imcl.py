"""Interactive learning: similar images, and a graph of related labels.

[1] Huynh and Elhamifar, Interactive Multi-Label CNN Learning with Partial Labels, CVPR 2020.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from partlabel.base.errors import InputError
from partlabel.base.ranges import Count, Epochs, Rate, Share, Size, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.checks import changed_settings, refuse_idle, warn_of_positives_only
from partlabel.learning.cooccurrence import (
    LabelGraph,
    cooccurrence_graph,
    identity_graph,
)
from partlabel.learning.extensions import (
    Artifacts,
    FollowsStages,
    HasArtifacts,
    LooksAhead,
    UsesSide,
)
from partlabel.learning.given_graphs import kind_of_graph, read_graph
from partlabel.learning.label_graph import LearnedGraph
from partlabel.learning.method import (
    Figure,
    Predict,
    Stage,
    Task,
    warm_up_stages,
    weights_by_labels,
)
from partlabel.learning.recent import Recent
from partlabel.learning.relative_weights import gradient_norms, size_ratios
from partlabel.learning.similarity import Neighbours, pursue
from partlabel.learning.snapshot import Snapshot
from partlabel.models import Classifier

_MEASURED = 10  # batches on which the costs are compared, as in the authors' code for COCO
_MEASURING = 1.0, 1e-5  # weights of labels and features in the search meanwhile, as in their code


class Costs(NamedTuple):
    """The costs of a batch, and the number of similar images per image."""

    known: Tensor
    labels: Tensor
    features: Tensor
    similar: Tensor


class InteractiveLearning(FollowsStages, LooksAhead, UsesSide, HasArtifacts):
    """Predicts unknown labels and makes them agree with those of similar images (IMCL) [1].

    Unknown labels are replaced by predictions. The labels and features of an image should be
    weighted sums of those of a few similar images. The sum of labels is spread over a graph of
    classes that occur together.

    The training starts with a warm-up on known labels only. After it, each step has three parts.
    First, for each image, up to k similar images of the batch are found, from which its labels and
    features can best be computed. Second, the weights of the graph are updated. Third, the network
    is trained on known labels and on the differences to the weighted sums.

    Args:
        lambda_y, lambda_f: weights of the differences of labels and of features, relative to the
            cost of known labels (see ``scale``). Paper: 1 and 0.5; CUB 2 and 0.5, COCO 0.5 and 0.5.
        scale: what a lambda of 1 means. ``loss``: the difference weighs as much as the cost of
            known labels, measured on 10 batches after the warm-up and then fixed, as the authors do
            on Open Images and COCO; ``gradient``: its gradient has the same norm, as on CUB;
            ``none``: the lambdas are used as they are.
        k: largest number of similar images per image. Paper: 5, COCO 3.
        graph: ``cooccurrence`` counted on known labels, ``identity`` for no links, or a file: a CSV
            with the columns class,linked,weight; a CSV of a vector per class (class,x,y,...), which
            links similar ones; or texts, one per line, which link the classes that they mention
            together.
        k_a: number of classes that each class is linked to, unless a file has the links. Paper: 50.
        graph_lr: learning rate of the weights of the graph, as a share of the longest stable step;
            0 keeps the initial weights, an ablation.
        graph_steps: gradient steps on these weights per training step.
        clip_graph: keep learned weights of the graph between 0 and 1, as in the authors' code.
        features: ``raw`` leaves feature vectors as they are, as in the paper; ``unit`` scales them
            to length 1.
        images: ``learned`` finds similar images with the current model; ``fixed`` with the model
            after the warm-up, an ablation.
        gradient: which labels and features the differences change. ``neighbours``: those of the
            similar images; ``both``: also those of the image itself, as in the paper, which was
            worse on frozen features.
        negative_scale: factor on negative label values in the search and in the differences. Paper:
            the range from -0.5 to 1; the authors' code gets it from an asymmetric sigmoid.
        dictionary: number of images of earlier steps that are searched too. For small batches;
            needs gradient=both, since images of earlier steps get no gradient.
        a: scale of side information (--side), which is only used to find similar images. Paper: 1
            or 10.
        warmup: epochs on known labels only; None for half of all epochs. Use fewer if the backbone
            is trained: the later stage reduces overfitting on few labels.
        solve: in the warm-up, use L-BFGS on all images at once, which converges in a few epochs.
            Needs --frozen, and should have a --weight-decay.
    """

    factors: Tensor
    files = ("graph",)

    def __init__(
        self,
        lambda_y: Weight = 1.0,
        lambda_f: Weight = 0.5,
        scale: Literal["loss", "gradient", "none"] = "loss",
        k: Size = 5,
        graph: str = "cooccurrence",
        k_a: Count = 50,
        graph_lr: Share = 0.01,
        graph_steps: Size = 1,
        clip_graph: bool = True,
        features: Literal["unit", "raw"] = "raw",
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
        searched = ("scale", "k", "images", "gradient", "dictionary")
        refuse_idle(
            "lambda_y", lambda_y > 0, changed, "graph", "k_a", "graph_lr", "negative_scale", "a"
        )
        refuse_idle("lambda_y or lambda_f", any_lambda, changed, *searched)
        refuse_idle("lambda_f", lambda_f > 0, changed, "features")
        refuse_idle("a graph", graph != "identity", changed, "k_a")
        refuse_idle("a graph_lr", graph_lr > 0, changed, "graph_steps", "clip_graph")
        refuse_idle("a warmup", warmup != 0, changed, "solve")
        super().__init__()
        self.changed = changed
        self.lambdas, self.scale, self.k = (lambda_y, lambda_f), scale, k
        self.register_buffer("factors", torch.ones(2))  # on the lambdas
        self.graph_source, self.k_a, self.graph_lr, self.graph_steps = (
            graph,
            k_a,
            graph_lr,
            graph_steps,
        )
        self.clip_graph = clip_graph
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
        self.graph = LearnedGraph(self.links(task), clip=self.clip_graph)
        self.learns_graph = self.lambdas[0] * self.graph_lr > 0 and self.graph.linked.shape[1] > 1
        self.side = task.side

    def links(self, task: Task) -> LabelGraph:
        """The initial label graph."""
        classes = task.labels.classes
        if self.graph_source == "identity":
            return identity_graph(len(classes))
        if self.graph_source == "cooccurrence":
            return cooccurrence_graph(task.labels, self.k_a)
        path = Path(self.graph_source)
        if not path.is_file():
            raise InputError(
                f"graph={self.graph_source}: there is no such file; set cooccurrence, identity, or "
                "a file of links, vectors or texts"
            )
        has_links = kind_of_graph(path) == "links"
        refuse_idle("a graph without given links", not has_links, self.changed, "k_a")
        return read_graph(path, list(classes), self.k_a)

    def begin_stage(self, stage: int, model: Classifier) -> None:
        """Similar images are used after the warm-up."""
        self.stage = stage
        if stage == self.interactive_stage and self.snapshot is not None:
            self.snapshot.take(model)

    def look_ahead(self, stage: int, model: Classifier, batches: Iterator[Batch]) -> None:
        """After the warm-up, measure what a lambda of 1 means."""
        if self.scale == "none" or not self._compares(stage):
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        labels, features = (
            one if used else 0.0 for one, used in zip(_MEASURING, self.lambdas, strict=True)
        )
        sizes, norms = [], []
        for batch in islice(batches, _MEASURED):
            costs = self._costs(model, batch, (labels, features), learn=False)[1][:3]
            sizes.append(torch.stack([cost.detach() for cost in costs]))
            if self.scale == "gradient":
                norms.append(gradient_norms(costs, parameters))
        factors = size_ratios(torch.stack(sizes))
        # the features of a frozen backbone have no gradient, but a weight in the search
        self.factors.copy_(size_ratios(torch.stack(norms), factors) if norms else factors)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Log the weights of the differences."""
        if not self._compares(self.stage):
            return {}
        weights = self._weights()
        return {"label_weight": weights[0], "feature_weight": weights[1]}

    def figures(self) -> dict[str, Figure]:
        """Three costs, the weights of two of them, and the number of similar images per image."""
        costs = dict.fromkeys(("known", "labels", "features"), Figure.COST)
        weights = dict.fromkeys(("label_weight", "feature_weight"), Figure.SETTING)
        return super().figures() | costs | weights | {"similar": Figure.COUNT}

    def artifacts(self) -> Artifacts:
        """The label graph, and the search for similar images."""
        find = self.find_similar if self._compares(self.interactive_stage) else None
        return Artifacts(label_graph=self.graph, find_similar=find)

    @torch.no_grad()
    def find_similar(self, features: Tensor, logits: Tensor, batch: Batch) -> Neighbours:
        """The similar images of each image of a batch, from mean features [B, D] and logits."""
        current = self._describe(features[:, :, None, None], logits, batch)
        return self._search(current, current, self._weights())

    def loss(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy on known labels, and distances to similar images (Eq. 1)."""
        if not self._compares(self.stage):
            logits = model(batch.views["weak"])
            loss = losses.bce(logits, batch.labels, "batch")
            return {
                "loss": loss,
                "positives": losses.known_positives(logits, batch.labels).detach(),
            }
        weights = self._weights()
        logits, costs = self._costs(model, batch, weights)
        loss = costs.known + weights[0] * costs.labels + weights[1] * costs.features
        positives = losses.known_positives(logits.detach(), batch.labels)
        logged = {name: value.detach() for name, value in costs._asdict().items()}
        return {"loss": loss, "positives": positives, **logged}

    def part_weights(self, batch: Batch) -> dict[str, float] | None:
        """By known labels in the warm-up; None if images are compared."""
        return None if self._compares(self.stage) else weights_by_labels(batch)

    def _compares(self, stage: int) -> bool:
        """Whether a stage compares images."""
        return stage >= self.interactive_stage and sum(self.lambdas) > 0

    def _weights(self) -> tuple[float, float]:
        """The weights of the differences of labels and of features."""
        labels, features = (
            weight * factor
            for weight, factor in zip(self.lambdas, self.factors.tolist(), strict=True)
        )
        return labels, features

    def _costs(
        self, model: Classifier, batch: Batch, weights: tuple[float, float], *, learn: bool = True
    ) -> tuple[Tensor, Costs]:
        """Logits [B, C] and costs of a batch.

        Args:
            model: the model.
            batch: the batch.
            weights: of labels and of features in the search.
            learn: whether the graph is updated, and the images are stored for later steps.
        """
        inputs = batch.views["weak"]
        maps = model.backbone(inputs)
        logits = model.head(maps)
        current = self._describe(maps, logits, batch)
        pool = self.recent.before(**current)
        if self.snapshot is None:
            neighbours = self._search(current, pool, weights)
        else:
            earlier = self._describe(*self.snapshot.forward_copy(inputs), batch)
            neighbours = self._search(earlier, earlier, weights)
        combined_labels = _combine(neighbours.images, neighbours.label_coef, pool["labels"])
        if learn:
            self.recent.push(**current)
            self._learn_graph(current["labels"], combined_labels)
        combined_features = _combine(neighbours.images, neighbours.feature_coef, pool["features"])
        own = {name: part if self.both else part.detach() for name, part in current.items()}
        spread = self.graph.spread(combined_labels)
        return logits, Costs(
            losses.bce(logits, batch.labels, "batch"),
            losses.label_smoothness(own["labels"], spread),
            losses.feature_smoothness(own["features"], combined_features),
            (neighbours.images >= 0).sum() / max(len(batch), 1),
        )

    def _learn_graph(self, labels: Tensor, combined: Tensor) -> None:
        if self.learns_graph:
            self.graph.learn(labels, combined, self.graph_lr, self.graph_steps)

    def _describe(self, maps: Tensor, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Rows [B], completed labels [B, C] and features [B, D]."""
        labels = losses.completed_labels(logits, batch.labels, self.negative_scale)
        features = maps.mean(dim=(2, 3)).to(labels.dtype)
        features = normalize(features) if self.unit else features
        return {"rows": batch.rows, "labels": labels, "features": features}

    @torch.no_grad()
    def _search(
        self, current: dict[str, Tensor], pool: dict[str, Tensor], weights: tuple[float, float]
    ) -> Neighbours:
        """The similar images of each image, from those of the pool but itself."""
        labels, spread = current["labels"], self.graph.spread(pool["labels"])
        return pursue(
            torch.cat([labels, self._side(current["rows"]).to(labels)], dim=1),
            current["features"],
            torch.cat([spread, self._side(pool["rows"]).to(labels)], dim=1),
            pool["features"],
            self.k,
            *weights,
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
