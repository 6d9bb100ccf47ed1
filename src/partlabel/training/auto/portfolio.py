"""What ``auto`` tries: methods with heads, in the order of what they are expected to gain per time.

Nothing here is fitted to a data set: weight decays are searched, and the methods are those whose
loss can be minimised exactly on frozen features, or that have a head of their own kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partlabel.labels import LabelTable
from partlabel.training.settings import Settings

DECAYS = [float(f"{digit}e{power}") for power in range(-6, 0) for digit in (1, 3)]
COMPONENTS = 384  # principal components of feature maps, for heads that look at positions

_LINEAR: dict[str, Any] = {"optimizer": "lbfgs", "lr": 1.0, "epochs": 12}
_SALIENCY: dict[str, Any] = {"head": "saliency", "lr": 3e-3, "schedule": "cosine", "epochs": 12}


@dataclass(frozen=True)
class Recipe:
    """A method and a head, whose weight decay is searched.

    Args:
        method: its name.
        options: its settings.
        training: the head, the optimiser and what belongs to these.
        decay: the weight decay to try first.
        cost: the time of a training, relative to a linear head.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    training: Mapping[str, Any] = field(default_factory=lambda: _LINEAR, hash=False)
    decay: float = 1e-3
    cost: float = 1.0

    @property
    def head(self) -> str:
        """The name of the head."""
        return str(self.training.get("head", "linear"))

    @property
    def needs_maps(self) -> bool:
        """Whether the head looks at positions of the feature map."""
        return self.head != "linear"


@dataclass(frozen=True)
class Candidate:
    """A recipe with a weight decay: everything that a training needs.

    Args:
        recipe: the method and the head.
        decay: the weight decay.
        teacher: a candidate whose most likely unknown labels count as present.
        share: of the present labels that are expected among the unknown ones, how many count.
    """

    recipe: Recipe
    decay: float
    teacher: "Candidate | None" = None
    share: float = 0.0

    @property
    def name(self) -> str:
        """Unique, with the names of its teacher and of the teacher's teachers."""
        if self.teacher is None:
            return self._alone
        return f"{self._alone} taught {self.share:g} by ({self.teacher.name})"

    @property
    def label(self) -> str:
        """Short, for tables."""
        if self.teacher is None:
            return self._alone
        return f"{self._alone}, taught by {self.teacher._alone}, round {self.rounds}"

    @property
    def rounds(self) -> int:
        """The number of teachers behind one another."""
        return 0 if self.teacher is None else 1 + self.teacher.rounds

    @property
    def _alone(self) -> str:
        options = [f"{key}={value}" for key, value in self.recipe.options.items()]
        return " ".join([self.recipe.method, *options, self.recipe.head, f"decay={self.decay:g}"])

    def settings(self, base: Settings) -> Settings:
        """The settings that train it alone, with images and backbone as in ``base``."""
        own = {"method": self.recipe.method, "options": dict(self.recipe.options)}
        plain = {name: Settings.model_fields[name].default for name in ("budget", "folds")}
        values = {**self.recipe.training, "weight_decay": self.decay, "keep": "last"}
        return base.model_copy(update={**plain, "single": False, **own, **values})


def make_portfolio(labels: LabelTable, *, has_absent: bool, components: int | None) -> list[Recipe]:
    """The recipes for some labels, those first that are expected to gain most per time.

    Args:
        labels: of the training images.
        has_absent: whether labels that are known to be absent show how many are present.
        components: to keep of feature maps; None if there are no maps, or too little memory.
    """
    known_share = max(labels.known, 1e-6)
    absent = bool((labels.cells.values < 0).any())
    # the cost of known labels alone is a mean over all cells, so it shrinks with their share
    small = nearest_decay(1e-3 * known_share)
    alphas: list[Any] = ["auto"] if has_absent else [0.1, 0.02]
    em = [Recipe("em", {"alpha": alpha}, decay=_em_decay(small, absent)) for alpha in alphas]
    saliency = _SALIENCY | {"reduce": components}
    maps = [Recipe("em", one.options, saliency, 3 * one.decay, cost=3.0) for one in em[:1]]
    linear = [*em, Recipe("an"), Recipe("ls")]
    if absent:
        linear = [Recipe("bce", decay=small), *em, Recipe("ls")]
        maps = [Recipe("bce", {}, saliency, 10 * small, cost=3.0), *maps]
    else:
        maps = [*maps, Recipe("an", {}, saliency, 1e-2, cost=3.0)]
    further = [Recipe("asl"), Recipe("n-ls", {"epsilon": 0.1})]
    if absent:
        further = [Recipe("an"), Recipe("partial-bce", decay=small), *further]
    recipes = [*linear[:2], *maps[:1], *linear[2:], *maps[1:], *further]
    return [one for one in recipes if components or not one.needs_maps]


def _em_decay(small: float, absent: bool) -> float:
    return small if absent else nearest_decay(3e-4)


def nearest_decay(value: float) -> float:
    """The weight decay of the grid that is nearest on a logarithmic scale.

    >>> nearest_decay(9e-4), nearest_decay(2e-9)
    (0.001, 1e-06)
    """
    distances = np.abs(np.log(DECAYS) - np.log(value))
    return DECAYS[int(np.argmin(distances))]
