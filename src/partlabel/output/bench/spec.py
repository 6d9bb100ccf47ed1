"""What to compare, as a file says it."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from partlabel.base.errors import FileError, one_of
from partlabel.base.randomness import key, keys, uniform
from partlabel.labels import LabelTable, simulate
from partlabel.labels.formats import read_labels
from partlabel.learning.methods import METHODS
from partlabel.output.bench.tables import FIGURES
from partlabel.training.arguments import make_settings

FULL = "full"  # the strategy that hides nothing
_TEST = 0.2  # share of the images that are tested on, where a table has no splits

Grid = dict[str, list[Any]]  # settings, and the values to try of each
Grids = Annotated[
    list[Grid],
    BeforeValidator(lambda given: [given] if isinstance(given, dict) else given),
    Field(min_length=1),
]


class Strategy(BaseModel):
    """A way to hide labels, at one or several proportions."""

    model_config = ConfigDict(extra="forbid")
    strategy: str
    proportions: list[float | None] = [None]


class Entry(BaseModel):
    """A row of the table: a method, its settings, and on which labels it trains."""

    model_config = ConfigDict(extra="forbid")
    name: str
    method: str
    settings: dict[str, Any] = {}
    options: dict[str, Any] = Field(default={}, description="The method's own settings.")
    labels: str | None = Field(None, description="A strategy to use instead, such as full.")
    only: list[str] | None = Field(None, description="Of the strategies, those that it can use.")
    choose: Grids | None = Field(None, description="Instead of the spec's.")


class Spec(BaseModel):
    """What to compare; paths are relative to the spec's file."""

    model_config = ConfigDict(extra="forbid")
    labels: str = ""
    images: str = ""
    split: str = "train"
    test_split: str = "test"
    holdout: float = Field(0.2, gt=0, lt=1)
    strategies: list[Strategy]
    seeds: list[int] = [0]
    settings: dict[str, Any] = {}
    choose: Grids = [{}]
    methods: list[Entry]
    figures: list[str] | None = Field(None, min_length=1, description="What gets a table.")
    baseline: str | None = Field(None, description="The entry to show differences to.")
    ceiling: str | None = Field(None, description="An entry that knows all labels.")


def read_spec(path: Path, labels: Path | None = None, images: Path | None = None) -> Spec:
    """Read and check a spec; ``labels`` and ``images`` take the place of those it names."""
    try:
        spec = Spec(**yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise FileError(path, first["msg"], where) from None
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise FileError(path, f"not a spec: {error}") from error
    for strategy in spec.strategies:
        if strategy.strategy != FULL:
            for proportion in strategy.proportions:
                simulate.check(strategy.strategy, proportion)
    for entry in spec.methods:
        one_of("method", entry.method, METHODS)
        for choice in choices(spec, entry):
            settings = spec.settings | entry.settings | choice
            make_settings(method=entry.method, options=entry.options, **settings)
        for wanted in entry.only or []:
            one_of("strategy", wanted, [strategy.strategy for strategy in spec.strategies])
        if entry.labels is not None:
            one_of("strategy", entry.labels, (FULL, *simulate.WITHOUT_PROPORTION))
    names = [entry.name for entry in spec.methods]
    if len(set(names)) < len(names):
        raise FileError(path, "two methods have the same name; give each a name of its own")
    if not spec.seeds or len(set(spec.seeds)) < len(spec.seeds):
        raise FileError(path, "seeds must be given, each once")
    grids = [grid for entry in spec.methods for grid in grids_of(spec, entry)]
    if any(not values for grid in grids for values in grid.values()):
        raise FileError(path, "choose: a setting has nothing to choose from")
    for figure in spec.figures or []:
        one_of("figure", figure, FIGURES)
    for name in (spec.baseline, spec.ceiling):
        if name is not None:
            one_of("entry", name, names)
    if spec.ceiling is not None and spec.baseline in (None, spec.ceiling):
        raise FileError(path, "a ceiling needs a baseline, another entry, to measure the gap from")
    given = {"labels": labels, "images": images}
    for name in given:
        if given[name] is None:
            if not getattr(spec, name):
                raise FileError(path, f"names no {name}; say --{name}, or put them into the spec")
            given[name] = path.parent / getattr(spec, name)
    return spec.model_copy(update={name: str(value) for name, value in given.items()})


def read_table(spec: Spec) -> LabelTable:
    """The labels; a table without splits gets them: a fifth of its images, drawn, to test on."""
    table = read_labels(spec.labels)
    if table.splits is not None:
        return table
    test = uniform(key(0, "test"), keys(table.ids)) < _TEST
    return table.with_splits(np.where(test, spec.test_split, spec.split).tolist())


def combinations(spec: Spec) -> Iterator[tuple[Entry, str, float | None]]:
    """Every entry with every strategy; an entry with labels of its own once."""
    for entry in spec.methods:
        if entry.labels is not None:
            yield entry, entry.labels, None
            continue
        for strategy in spec.strategies:
            if entry.only is not None and strategy.strategy not in entry.only:
                continue
            for proportion in strategy.proportions:
                yield entry, strategy.strategy, proportion


def choices(spec: Spec, entry: Entry) -> Iterator[dict[str, Any]]:
    """Every combination of the settings to choose from; one, of nothing, without a choice."""
    given: list[dict[str, Any]] = []
    for grid in grids_of(spec, entry):
        for values in itertools.product(*grid.values()):
            choice = dict(zip(grid, values, strict=True))
            if choice not in given:  # grids may overlap
                given.append(choice)
                yield choice


def grids_of(spec: Spec, entry: Entry) -> list[Grid]:
    """What an entry may choose from: a combination of one of these."""
    return spec.choose if entry.choose is None else entry.choose


def at_the_edge(spec: Spec, entry: Entry, choice: dict[str, Any]) -> list[str]:
    """Which of the chosen numbers are the smallest or largest tried, so that others may be better.

    Of fewer than three values one is always at an edge, and nothing is smaller than 0.
    """
    found = []
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
        for edge, end in ((min(numbers), "smallest"), (max(numbers), "largest")):
            if _number(value) == edge != 0:
                found.append(f"{name} = {edge:g} is the {end} tried")
    return found


def _without(choice: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in choice.items() if key != name}


def _number(value: Any) -> float | None:
    """A number, also if it is written as one that YAML takes for a text, such as 1e-3."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def settings_of(spec: Spec, entry: Entry, choice: dict[str, Any]) -> dict[str, Any]:
    """What an entry is trained with, once a choice is made."""
    settings = {**spec.settings, **entry.settings, **choice}
    return {**settings, "method": entry.method, "options": entry.options}
