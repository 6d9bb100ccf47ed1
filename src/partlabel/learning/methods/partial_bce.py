"""Partial-BCE, with an optional graph network over classes and curriculum labelling.

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
from partlabel.learning.checks import (
    changed_settings,
    refuse_idle,
    refuse_patience,
    warn_of_positives_only,
)
from partlabel.learning.extensions import Artifacts, ChangesHead, HasArtifacts, HasMembers
from partlabel.learning.method import PSEUDO_LABELS, Figure, Method, OnLogits, Predict, Stage, Task
from partlabel.learning.pseudo_labels.curriculum import (
    Curriculum,
    SharedCurriculum,
    Strategy,
    Uncertainty,
)
from partlabel.models.heads import GraphRefiner, Refined


class PartialBce(OnLogits, ChangesHead, HasMembers, HasArtifacts):
    """Ignores unknown labels, or guesses easy ones; images with few known labels weigh more [1].

    The weight of an image depends on the share of its labels that is known, so that a learning rate
    for full labels also suits partial labels. A graph network can refine the scores. A curriculum
    can give pseudo-labels to unknown cells that the model finds easy. The paper's head is
    ``--head weldon``.

    Args:
        alpha, beta, gamma: an image with a share q of its labels known has the weight
            g(q) = alpha q^gamma + beta. Paper: -4.45, 5.45, 1, so that g(0.1) = 5 and g(1) = 1.
        g: the value of g(0.1), instead of alpha and beta; they are computed so that g(1) = 1.
        gnn: refine the scores by a graph network over classes.
        steps: steps of the graph network. Paper: 3.
        hidden: width of its states; None for the number of classes.
        curriculum: which unknown cells get a pseudo-label. ``a``: those with a large score of
            either sign; ``b``: a share of each batch; ``c``: as ``a``, positive scores only; ``d``:
            as ``a``, by the mean score of an ensemble; ``e``: those with a low uncertainty under
            dropout (the paper's choice); ``two-step``: all, once; ``none``: none.
        theta: threshold of the curriculum; for ``b`` the share. Paper: a 2, b 0.8, c 5, d 2, e 0.3.
        relabel_at: epochs, counted from 1, before which pseudo-labels are given; None for one half
            and three quarters of all epochs. Paper: 10 and 15 of 20.
        redecide: decide all pseudo-labels again each time; by default they do not change.
        members: number of models in the ensemble of ``d``; the first one is kept.
        passes: forward passes under dropout, for ``e``.
        uncertainty: for ``e``: ``variance`` or ``deviation`` of the scores.
        dropout: dropout before the classifier and in the graph network; None for 0.2 with ``e``,
            else 0.
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
        changed = changed_settings(PartialBce, locals())
        super().__init__()
        if g is not None:
            if changed & {"alpha", "beta"}:
                raise InputError("g replaces alpha and beta; set either g, or alpha and beta")
            if gamma == 0:
                raise InputError("gamma = 0: then g(0.1) equals g(1), so g cannot be set")
            alpha, beta = losses.partial_weight(g, gamma=gamma)
        self.weight = alpha, beta, gamma
        refuse_idle("gnn=true", gnn, changed, "steps", "hidden")
        refuse_idle("curriculum=d", curriculum == "d", changed, "members")
        refuse_idle("curriculum=e", curriculum == "e", changed, "passes", "uncertainty")
        has_curriculum = curriculum != "none"
        refuse_idle("a curriculum", has_curriculum, changed, "theta", "relabel_at", "redecide")
        self.gnn, self.steps, self.hidden = gnn, steps, hidden
        self.dropout = (0.2 if curriculum == "e" else 0.0) if dropout is None else dropout
        if curriculum == "e" and not self.dropout:
            raise InputError("dropout = 0: curriculum=e measures how scores vary under dropout")
        self.head_options = {"dropout": self.dropout} if self.dropout else {}
        self.pseudo: Curriculum | SharedCurriculum | None = None
        if curriculum != "none":
            self.pseudo = Curriculum(curriculum, theta, relabel_at, redecide, passes, uncertainty)
        if curriculum == "d":
            self.members = members

    def stages(self, epochs: int, patience: int | None) -> list[Stage]:
        """One stage; with a curriculum, without early stopping."""
        if self.pseudo is not None:
            refuse_patience(patience)
        return super().stages(epochs, patience)

    def refine(self, head: nn.Module, classes: int) -> nn.Module:
        """The head with the graph network, if there is one."""
        if not self.gnn:
            return head
        return Refined(head, GraphRefiner(classes, self.steps, self.hidden, self.dropout))

    def prepare(self, task: Task) -> None:
        """Warn if no training label is known to be absent; set up the curriculum."""
        warn_of_positives_only(task.labels, "partial-bce")
        if self.pseudo is not None:
            self.pseudo.prepare(task)

    def follow(self, leader: Method) -> None:
        """Train on the leader's pseudo-labels."""
        assert isinstance(leader, PartialBce)
        assert isinstance(leader.pseudo, Curriculum)
        del self.pseudo
        self.pseudo = SharedCurriculum(leader.pseudo)

    def before_epoch(self, epoch: int, predict: Predict) -> dict[str, float]:
        """Give pseudo-labels, if the curriculum has a round before this epoch."""
        return {} if self.pseudo is None else self.pseudo.before_epoch(epoch, predict)

    def figures(self) -> dict[str, Figure]:
        """With a curriculum, the new pseudo-labels, and the share of cells with a label."""
        return super().figures() | {PSEUDO_LABELS: Figure.COUNT, "label_share": Figure.SHARE}

    def is_settled(self, epoch: int) -> bool:
        """From the last round of the curriculum on."""
        return not isinstance(self.pseudo, Curriculum) or epoch + 1 >= self.pseudo.epochs[-1]

    def artifacts(self) -> Artifacts:
        """The pseudo-labels of the curriculum."""
        return Artifacts(self.pseudo if isinstance(self.pseudo, Curriculum) else None)

    def cost(self, logits: Tensor, batch: Batch) -> Tensor:
        """See :func:`losses.partial_bce`; pseudo-labels count as known labels."""
        labels = batch.labels if self.pseudo is None else self.pseudo.labels(batch)
        return losses.partial_bce(logits, labels, *self.weight)
