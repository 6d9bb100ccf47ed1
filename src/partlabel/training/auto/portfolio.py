"""What ``auto`` tries: methods with heads, in the order of what they are expected to gain per time.

Nothing here is fitted to a data set: weight decays are searched, and the methods are those whose
loss can be minimised exactly on frozen features, or that have a head of their own kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from partlabel.labels import LabelTable
from partlabel.training.auto.held_features import FeatureKind
from partlabel.training.settings import Settings

DECAYS = [float(f"{digit}e{power}") for power in range(-9, 3) for digit in (1, 3)]
COMPONENTS = 384  # principal components of feature maps, for heads that look at positions
ROOT = 0.5  # the power of features that makes large ones weigh less
POWERS = (ROOT, 1.0)  # of pooled features

_LINEAR: dict[str, Any] = {"optimizer": "lbfgs", "lr": 1.0, "epochs": 12}
_ROOTS: dict[str, Any] = _LINEAR | {"head": "linear", "head_options": {"power": ROOT}}
_SALIENCY: dict[str, Any] = {"head": "saliency", "lr": 1e-2, "schedule": "cosine", "epochs": 8}
_NONE: Mapping[str, Any] = {}
_NO_OWN_CLASSES: Mapping[FeatureKind, float] = {}
_MORE = 10  # times as much weight decay for heads that look at positions


@dataclass(frozen=True)
class Recipe:
    """A method and a head, whose weight decay is searched.

    Args:
        method: its name.
        options: its settings.
        training: the head, the optimiser and what belongs to these.
        decay: the weight decay to try first.
        cost: the time of a training, relative to a linear head.
        on_maps: the same method with a head that looks at positions, which takes longer; it is
            tried if the method is among the best.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    training: Mapping[str, Any] = field(default_factory=lambda: _LINEAR, hash=False)
    decay: float = 1e-3
    cost: float = 1.0
    on_maps: "Recipe | None" = field(default=None, hash=False)

    @property
    def head(self) -> str:
        """The name of the head."""
        return str(self.training.get("head", "linear"))

    @property
    def power(self) -> float:
        """The power of the features."""
        options = self.training.get("head_options", {})
        return float(self.training.get("power", options.get("power", 1.0)))

    @property
    def features(self) -> FeatureKind:
        """What of the features the head uses."""
        own = self.training.get("own_classes") is not None
        return FeatureKind(self.training.get("reduce"), self.power, own)

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
        teachers: candidates whose most likely unknown labels count as present, by the mean of their
            logits.
        share: of the present labels that are expected among the unknown ones, how many count.
    """

    recipe: Recipe
    decay: float
    teachers: "tuple[Candidate, ...]" = ()
    share: float = 0.0

    @property
    def name(self) -> str:
        """Unique, with the names of its teachers and of their teachers."""
        if not self.teachers:
            return self._alone
        teachers = ", ".join(f"({teacher.name})" for teacher in self.teachers)
        return f"{self._alone} taught {self.share:g} by {teachers}"

    @property
    def label(self) -> str:
        """Short, for tables."""
        if not self.teachers:
            return self._alone
        teachers = " and ".join(f"{t.recipe.method} {t.recipe.head}" for t in self.teachers)
        return f"{self._alone}, taught {self.share:g} by {teachers}, round {self.rounds}"

    @property
    def rounds(self) -> int:
        """The number of teachers behind one another."""
        return 1 + max((teacher.rounds for teacher in self.teachers), default=-1)

    @property
    def _alone(self) -> str:
        recipe = self.recipe
        options = {**recipe.options, "power": recipe.power} if recipe.power != 1 else recipe.options
        words = [f"{key}={value}" for key, value in options.items()]
        words += ["with own classes"] if recipe.features.own_classes else []
        return " ".join([recipe.method, recipe.head, *words, f"decay={self.decay:g}"])

    def settings(self, base: Settings) -> Settings:
        """The settings that train it alone, with images and backbone as in ``base``."""
        own = {"method": self.recipe.method, "options": dict(self.recipe.options)}
        plain = {name: Settings.model_fields[name].default for name in ("budget", "folds")}
        values = {**self.recipe.training, "weight_decay": self.decay, "keep": "last"}
        return base.model_copy(update={**plain, "single": False, **own, **values})


def make_portfolio(
    labels: LabelTable,
    *,
    has_absent: bool,
    components: int | None,
    units: Mapping[FeatureKind, float],
    own_weights: Mapping[FeatureKind, float] = _NO_OWN_CLASSES,
) -> list[Recipe]:
    """The recipes for some labels, those first that are expected to gain most per time.

    Args:
        labels: of the training images.
        has_absent: whether labels that are known to be absent show how many are present.
        components: to keep of feature maps; None if there are no maps, or too little memory.
        units: the weight decay that is of the order of the cost of all labels, for each kind of
            features: the sum of their variances, divided by the number of labels.
        own_weights: the weight of the classes that the network was pretrained on, for each kind of
            features that has them.
    """
    known_share = max(labels.known, 1e-6)
    absent = bool((labels.cells.values < 0).any())
    alphas: list[Any] = ["auto"] if has_absent else [0.1, 0.02]
    # where only known labels have a cost, the cost shrinks with their share
    starts = {"bce": known_share, "partial-bce": known_share, "em": 2 * known_share}

    # where few labels are known, those that count as absent are often wrong
    assumed = 3.0 if absent and known_share < 0.5 else 1.0

    def strength(method: str) -> float:
        return min(starts[method], 1.0) if method in starts else assumed

    def linear(
        method: str, options: Mapping[str, Any] = _NONE, training: Mapping[str, Any] | None = None
    ) -> Recipe:
        recipe = Recipe(method, options, best if training is None else training)
        decay = strength(method) * units[recipe.features]
        return replace(recipe, decay=decay, on_maps=salient(method, options))

    def salient(method: str, options: Mapping[str, Any]) -> Recipe | None:
        if components is None:
            return None
        own = own_weights.get(FeatureKind(components, ROOT, own_classes=True))
        training = _SALIENCY | {"reduce": components, "power": ROOT, "own_classes": own}
        recipe = Recipe(method, options, training, cost=6.0)
        return replace(recipe, decay=_MORE * strength(method) * units[recipe.features])

    # on other features, one method is enough to see whether they are better
    best, *others = _ROOTS, _LINEAR
    if own_weights:
        weight = own_weights[FeatureKind(None, ROOT, own_classes=True)]
        best, *others = _LINEAR | {"own_classes": weight, "power": ROOT}, _ROOTS, _LINEAR
    first, options = ("bce", _NONE) if absent else ("em", {"alpha": alphas[0]})
    plain = [linear(first, options, training) for training in others]
    entropy = [linear("em", {"alpha": alpha}) for alpha in alphas]
    smooth = replace(linear("n-ls", {"epsilon": 0.1}), on_maps=None)  # much like "ls"
    if not absent:
        return [*entropy, linear("an"), linear("ls"), *plain, linear("asl"), smooth]
    known = [linear("bce"), *entropy, linear("ls"), linear("an"), *plain]
    return [*known, linear("partial-bce"), linear("asl"), smooth]


def nearest_decay(value: float) -> float:
    """The weight decay of the grid that is nearest on a logarithmic scale.

    >>> nearest_decay(9e-4), nearest_decay(2e-12)
    (0.001, 1e-09)
    """
    distances = np.abs(np.log(DECAYS) - np.log(value))
    return DECAYS[int(np.argmin(distances))]
