"""Partial-BCE, with a graph network over classes and curriculum labelling.

[1] Durand et al., Learning a Deep ConvNet for Multi-label Classification with Partial Labels,
    CVPR 2019.
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from partlabel.base.errors import InputError
from partlabel.base.ranges import Dropout, Finite, Rate, Weight
from partlabel.images.batches import Batch
from partlabel.learning import losses
from partlabel.learning.method import Method, OnLogits, Predict, Stage, Task, refuse_idle
from partlabel.learning.methods.bce import warn_of_positives_only
from partlabel.learning.pseudo_labels.curriculum import Borrowed, Curriculum, Strategy, Uncertainty
from partlabel.learning.pseudo_labels.state import refuse_patience
from partlabel.models.heads import GraphRefiner, Refined


class PartialBce(OnLogits):
    """Cross-entropy on known labels, weighted by how much of an image is known [1].

    Images of which little is known weigh more, so that a learning rate that suits full labels suits
    partial ones. A graph network may refine the scores, and a curriculum may label what is easy.
    The paper's head is ``--head weldon``.

    Args:
        alpha, beta, gamma: the weight of an image with a share q of its labels known is
            g(q) = alpha q^gamma + beta. Paper: -4.45, 5.45, 1, which make g(0.1) = 5 and g(1) = 1.
        g: g(0.1), from which alpha and beta follow with g(1) = 1; in place of them.
        gnn: a graph network over classes refines the scores.
        steps: of the graph network. Paper: 3.
        hidden: length of its states, None for the number of classes.
        curriculum: give labels to unknown cells that are easy: ``a`` by score, ``b`` a share of
            each batch, ``c`` present ones only, ``d`` by the mean score of an ensemble, ``e`` by
            uncertainty under dropout (the paper's choice), ``two-step`` all at once; or ``none``.
        theta: what is easy. Paper: a 2, b 0.8, c 5, d 2, e 0.3.
        relabel_at: epochs, from 1, before which labels are given; None for a half and three
            quarters of the way. Paper: 10 and 15 of 20.
        redecide: decide anew each time; else a label once given stays.
        members: of the ensemble, which gives labels; the first of them is the model that is kept.
        passes: under dropout, for ``e``.
        uncertainty: of ``e``: ``variance`` or ``deviation`` of the scores.
        dropout: before the classifier and in the graph network; None for 0.2 with ``e``, else 0.
    """

    def __init__(
        self,
        alpha: Finite = -4.45,
        beta: Finite = 5.45,
        gamma: Finite = 1.0,
        g: Rate | None = None,
        gnn: bool = False,
        steps: Annotated[int, Field(ge=0)] = 3,
        hidden: Annotated[int, Field(ge=1)] | None = None,
        curriculum: Strategy | Literal["none"] = "none",
        theta: Weight | None = None,
        relabel_at: list[int] | None = None,
        redecide: bool = False,
        members: Annotated[int, Field(ge=2)] = 3,
        passes: Annotated[int, Field(ge=2)] = 50,
        uncertainty: Uncertainty = "variance",
        dropout: Dropout | None = None,
    ) -> None:
        super().__init__()
        if g is not None:
            if (alpha, beta) != (-4.45, 5.45):
                raise InputError("g stands for alpha and beta; set it, or them")
            if gamma == 0:
                raise InputError("gamma = 0: with it g(0.1) is g(1), so g has no meaning")
            alpha, beta = losses.partial_weight(g, gamma=gamma)
        self.weight = alpha, beta, gamma
        refuse_idle("gnn=true", gnn, steps=steps != 3, hidden=hidden is not None)
        refuse_idle("curriculum=d", curriculum == "d", members=members != 3)
        varied = {"passes": passes != 50, "uncertainty": uncertainty != "variance"}
        refuse_idle("curriculum=e", curriculum == "e", **varied)
        self.gnn, self.steps, self.hidden = gnn, steps, hidden
        self.dropout = (0.2 if curriculum == "e" else 0.0) if dropout is None else dropout
        if curriculum == "e" and not self.dropout:
            raise InputError("dropout = 0: curriculum=e looks at how scores vary under dropout")
        self.pseudo: Curriculum | Borrowed | None = None
        if curriculum == "none":
            if theta is not None or relabel_at is not None or redecide:
                raise InputError("theta, relabel_at and redecide need a curriculum, such as a or e")
        else:
            self.pseudo = Curriculum(curriculum, theta, relabel_at, redecide, passes, uncertainty)
        if curriculum == "d":
            self.members = members

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """One; but a curriculum must come to its end."""
        if self.pseudo is not None:
            refuse_patience(patience)
        return super().stages(epochs, patience)

    def refine(self, head: nn.Module, classes: int) -> nn.Module:
        """The graph network, if there is one."""
        if not self.gnn:
            return head
        return Refined(head, GraphRefiner(classes, self.steps, self.hidden, self.dropout))

    def prepare(self, task: Task) -> None:
        """Warn where this must fail; set up the curriculum."""
        warn_of_positives_only(task.labels, "partial-bce")
        if self.pseudo is not None:
            self.pseudo.prepare(task)

    def follow(self, leader: Method) -> None:
        """Take the leader's labels."""
        assert isinstance(leader, PartialBce)
        assert isinstance(leader.pseudo, Curriculum)
        del self.pseudo
        self.pseudo = Borrowed(leader.pseudo)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Give labels, if there is a curriculum and it is time."""
        return {} if self.pseudo is None else self.pseudo.before_epoch(epoch, predict)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.partial_bce`; weak labels count as known ones."""
        labels = batch.labels if self.pseudo is None else self.pseudo.labels(batch)
        return losses.partial_bce(logits, labels, *self.weight)
