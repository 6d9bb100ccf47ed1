"""The spec of a benchmark: a YAML file that says what to compare."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from partlabel.base.errors import FileError, one_of
from partlabel.base.validation import first_problem
from partlabel.judging.suggestion.choosing import STRATEGIES
from partlabel.labels import simulate
from partlabel.labels.formats import ReadOptions
from partlabel.learning.methods import METHODS
from partlabel.output.bench.tables import FIGURES
from partlabel.training.arguments import make_settings
from partlabel.training.embedded import PathLike, for_features
from partlabel.training.settings import AUTO

FULL = "full"  # the strategy that hides no label
_NO_START = "none"  # an entry's start, where the spec has one

Grid = dict[str, list[Any]]  # the values to try for each setting
Grids = Annotated[
    list[Grid],
    BeforeValidator(lambda grids: [grids] if isinstance(grids, dict) else grids),
    Field(min_length=1),
]


class Strategy(BaseModel):
    """A way to hide labels, at one or several proportions."""

    model_config = ConfigDict(extra="forbid")
    strategy: str
    proportions: list[float | None] = [None]
    per_image: bool = Field(
        default=False, description="Keep the same number of labels in each image."
    )
    parts: int | None = Field(default=None, description="For merged: number of parts.")
    full: float | None = Field(
        default=None, description="For mixed: share of images with all labels."
    )
    tags: float | None = Field(default=None, description="For mixed: images with one tag.")

    @property
    def options(self) -> dict[str, Any]:
        """The options of the strategy that are given."""
        options = {name: getattr(self, name) for name in simulate.OPTIONS}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def title(self) -> str:
        """The strategy and its options, as shown in tables and used in names of folders."""
        options = [f"{name}{value:g}" for name, value in self.options.items()]
        return "-".join([self.strategy, *options])


class Entry(BaseModel):
    """A row of the table: a method, its settings, and the labels that it is trained on."""

    model_config = ConfigDict(extra="forbid")
    name: str
    method: str
    settings: dict[str, Any] = {}
    options: dict[str, Any] = Field(default={}, description="The method's own settings.")
    labels: str | None = Field(None, description="A strategy instead of the spec's, such as full.")
    only: list[str] | None = Field(None, description="Strategies of the spec to use.")
    choose: Grids | None = Field(None, description="Grids instead of the spec's.")
    start: str | None = Field(None, description="A method instead of the spec's start, or none.")


class Way(BaseModel):
    """A way to ask for labels, see ``partlabel suggest``."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    name: str
    strategy: str = "information"
    goal: Literal["map", "promises"] = Field("map", alias="for")
    answers: list[int] | None = Field(None, description="Questions per round, instead of all.")


class Rounds(BaseModel):
    """Labelling in rounds: train, ask, answer from the true labels, and train again."""

    model_config = ConfigDict(extra="forbid")
    answers: list[Annotated[int, Field(gt=0)]] = Field(min_length=1)
    ways: list[Way] = Field(min_length=1)
    cost: float = Field(2.0, gt=0, description="Seconds of work per answer.")


class Spec(BaseModel):
    """What to compare; paths are relative to the file of the spec."""

    model_config = ConfigDict(extra="forbid")
    labels: str = ""
    reading: ReadOptions = Field(
        ReadOptions(), description="How to read the labels, such as unlisted: absent."
    )
    images: str = ""
    features: str = Field("", description="A file of features, instead of images.")
    feature_ids: str = Field(
        "", description="A file of their ids, if they are not in the same file."
    )
    split: str = "train"
    test_split: str = "test"
    folds: int | None = Field(
        None,
        ge=2,
        le=20,
        description="For labels without splits: parts of the images; each seed tests on another.",
    )
    holdout: float = Field(0.2, gt=0, lt=1)
    strategies: list[Strategy]
    seeds: list[int] = [0]
    settings: dict[str, Any] = {}
    choose: Grids = [{}]
    methods: list[Entry]
    start: str | None = Field(None, description="A method whose model all trainings start from.")
    figures: list[str] | None = Field(None, min_length=1, description="Figures to show in tables.")
    baseline: str | None = Field(None, description="The entry that others are compared with.")
    ceiling: str | None = Field(None, description="An entry trained on all labels.")
    rounds: Rounds | None = Field(None, description="Ask for labels, instead of comparing methods.")


def read_spec(
    path: Path,
    labels: PathLike | None = None,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    reading: ReadOptions | None = None,
) -> Spec:
    """Read and check a spec; ``labels`` and the others replace those that it names.

    Of ``reading``, the options that are given replace those of the spec. If other labels are given,
    the spec's own do not apply to them.
    """
    try:
        spec = Spec(**yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror})") from error
    except ValidationError as error:
        location, _, message = first_problem(error)
        raise FileError(path, message, ".".join(map(str, location))) from None
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise FileError(path, f"not a spec: {error}") from error
    _check_entries(path, spec if features is None else spec.model_copy(update={"features": "-"}))
    _check_figures(path, spec)
    _check_rounds(path, spec)
    overrides = {
        "labels": labels,
        "images": images,
        "features": features,
        "feature_ids": feature_ids,
    }
    files = {
        name: str(path.parent / getattr(spec, name) if value is None else value)
        for name, value in overrides.items()
        if value is not None or getattr(spec, name)
    }
    if features is not None and feature_ids is None:
        files["feature_ids"] = ""  # those of the spec belong to other features
    options = ReadOptions() if labels is not None else spec.reading
    spec = spec.model_copy(update={"reading": options.updated(reading or ReadOptions())})
    for name in ("labels", "images"):
        if name not in files and not (name == "images" and "features" in files):
            raise FileError(path, f"has no {name}; add them to the spec, or use --{name}")
    return spec.model_copy(update=files)


def _check_entries(path: Path, spec: Spec) -> None:
    """Raise an error for strategies, methods, settings or seeds that cannot be used."""
    for strategy in spec.strategies:
        if strategy.strategy != FULL:
            for proportion in strategy.proportions:
                simulate.check(
                    strategy.strategy, proportion, per_image=strategy.per_image, **strategy.options
                )
    drawn = [(one.title, share) for one in spec.strategies for share in one.proportions]
    if len(set(drawn)) < len(drawn):
        raise FileError(path, "strategies: the same strategy and proportion are there twice")
    for entry in spec.methods:
        one_of("method", entry.method, [AUTO, *METHODS])
        for choice in choices(spec, entry):
            settings = settings_of(spec, entry, choice)
            make_settings(**for_features(settings, has_features=bool(spec.features)))
        for name in entry.only or []:
            one_of("strategy", name, [strategy.strategy for strategy in spec.strategies])
        if start_of(spec, entry) is not None:
            one_of("start", start_of(spec, entry) or "", METHODS)
        if entry.labels is not None:
            one_of("strategy", entry.labels, (FULL, *simulate.WITHOUT_PROPORTION))
    names = [entry.name for entry in spec.methods]
    if len(set(names)) < len(names):
        raise FileError(path, "two methods have the same name; give each a different name")
    if not spec.seeds or len(set(spec.seeds)) < len(spec.seeds):
        raise FileError(path, "seeds must have at least one number, and each number only once")
    grids = [grid for entry in spec.methods for grid in grids_of(spec, entry)]
    if any(not values for grid in grids for values in grid.values()):
        raise FileError(path, "choose: a setting has no values to choose from")


def _check_figures(path: Path, spec: Spec) -> None:
    """Raise an error for figures, a baseline or a ceiling that do not exist."""
    for figure in spec.figures or []:
        one_of("figure", figure, FIGURES)
    for name in (spec.baseline, spec.ceiling):
        if name is not None:
            one_of("entry", name, [entry.name for entry in spec.methods])
    if spec.ceiling is not None and spec.baseline in (None, spec.ceiling):
        raise FileError(path, "a ceiling needs a baseline, which must be another entry")


def _check_rounds(path: Path, spec: Spec) -> None:
    """Raise an error for rounds that cannot be run."""
    if spec.rounds is None:
        return
    for way in spec.rounds.ways:
        one_of("strategy", way.strategy, STRATEGIES)
    names = [way.name for way in spec.rounds.ways]
    if len(set(names)) < len(names):
        raise FileError(path, "two ways have the same name; give each a different name")
    if len(spec.methods) != 1 or spec.choose != [{}] or spec.methods[0].choose is not None:
        raise FileError(path, "rounds need one method, and nothing to choose")
    if FULL in [strategy.strategy for strategy in spec.strategies]:
        raise FileError(path, "rounds need a strategy that hides labels")


class Combination(NamedTuple):
    """An entry and the labels that it is trained on."""

    entry: Entry
    strategy: str
    proportion: float | None
    per_image: bool = False


def combinations(spec: Spec) -> Iterator[Combination]:
    """Every entry with every strategy; an entry with its own labels only with these."""
    for entry in spec.methods:
        if entry.labels is not None:
            yield Combination(entry, entry.labels, None)
            continue
        for strategy in spec.strategies:
            if entry.only is not None and strategy.strategy not in entry.only:
                continue
            for proportion in strategy.proportions:
                yield Combination(entry, strategy.title, proportion, strategy.per_image)


def strategy_of(spec: Spec, title: str) -> Strategy:
    """The strategy with this title; an entry's own labels are a strategy without options."""
    own = Strategy(strategy=title)
    return next((strategy for strategy in spec.strategies if strategy.title == title), own)


def choices(spec: Spec, entry: Entry) -> Iterator[dict[str, Any]]:
    """Every combination of the values to choose from; one empty choice if there are none."""
    earlier: list[dict[str, Any]] = []
    for grid in grids_of(spec, entry):
        for values in itertools.product(*grid.values()):
            choice = dict(zip(grid, values, strict=True))
            if choice not in earlier:  # grids may overlap
                earlier.append(choice)
                yield choice


def grids_of(spec: Spec, entry: Entry) -> list[Grid]:
    """The grids that an entry chooses from: its own, or those of the spec."""
    return spec.choose if entry.choose is None else entry.choose


def edge_warnings(spec: Spec, entry: Entry, choice: dict[str, Any]) -> list[str]:
    """Warnings about chosen numbers at the edge of a grid, beyond which others may be better.

    There is none for fewer than three values, since one of them is always at an edge, and none for
    0, which is taken for the smallest possible value.
    """
    warnings = []
    for name, value in choice.items():
        others = _without(choice, name)
        tried = [
            _number(other[name])
            for other in choices(spec, entry)
            if name in other and _without(other, name) == others
        ]
        numbers = [number for number in tried if number is not None]
        if len(numbers) < 3 or len(numbers) < len(tried):
            continue
        for edge, superlative, comparative in (
            (min(numbers), "smallest", "smaller"),
            (max(numbers), "largest", "larger"),
        ):
            if _number(value) == edge != 0:
                warnings.append(
                    f"{name} = {edge:g} is the {superlative} value tried; a {comparative} one may "
                    "be better"
                )
    return warnings


def _without(choice: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in choice.items() if key != name}


def _number(value: Any) -> float | None:
    """A value as a number, also if YAML reads it as text, such as 1e-3; None for other values."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def start_of(spec: Spec, entry: Entry) -> str | None:
    """The method whose model the trainings of an entry start from."""
    start = spec.start if entry.start is None else entry.start
    return None if start in (None, _NO_START) else start


def settings_of(spec: Spec, entry: Entry, choice: dict[str, Any]) -> dict[str, Any]:
    """The settings of a training: a choice overrides the entry, and that overrides the spec."""
    settings = {**spec.settings, **entry.settings, **choice}
    settings = {name: value for name, value in settings.items() if value is not None}
    return {**settings, "method": entry.method, "options": entry.options}
