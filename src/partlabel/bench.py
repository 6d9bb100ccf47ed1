"""Methods compared on equal terms: the same labels, the same tuning, the same test images.

A spec names label strategies, seeds and methods; each combination is a *cell*, trained and tested
on its own and kept in a folder of its own. Settings in ``choose`` are tried alike for every method,
on the first seed, and decided on validation labels; test labels are read only after that.
"""

import csv
import hashlib
import io
import itertools
import json
import math
import os
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from partlabel import simulate
from partlabel.errors import FileError, one_of
from partlabel.files import atomic_file
from partlabel.formats import read_labels
from partlabel.images import ImageFiles
from partlabel.methods import METHODS
from partlabel.rounds import judge
from partlabel.scoring import evaluate
from partlabel.settings import make_settings
from partlabel.training import train

FULL = "full"  # the strategy that hides nothing
JUDGED = ("pseudo_absent_accuracy", "pseudo_present_accuracy")


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
    choose: dict[str, list[Any]] = {}
    methods: list[Entry]


@dataclass(frozen=True)
class Cell:
    """One training: an entry on labels drawn by a strategy and a seed, with settings."""

    entry: str
    strategy: str
    proportion: float | None
    seed: int
    settings: dict[str, Any] = field(hash=False)
    terms: tuple[str, ...] = ()  # what else the result depends on: labels, images, splits

    @property
    def name(self) -> str:
        """A folder name: readable, and different for different settings."""
        text = json.dumps([self.settings, self.terms], sort_keys=True, default=str)
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        share = "" if self.proportion is None else f"-{self.proportion:g}"
        plain = "".join(c if c.isalnum() or c in "+.-" else "_" for c in self.entry)
        return f"{plain}-{self.strategy}{share}-seed{self.seed}-{digest}"


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
        for choice in _choices(spec):
            settings = spec.settings | entry.settings | choice
            make_settings(method=entry.method, options=entry.options, **settings)
        if entry.labels is not None:
            one_of("strategy", entry.labels, (FULL, *simulate.WITHOUT_PROPORTION))
    names = [entry.name for entry in spec.methods]
    if len(set(names)) < len(names):
        raise FileError(path, "two methods have the same name; give each a name of its own")
    given = {"labels": labels, "images": images}
    for name in given:
        if given[name] is None:
            if not getattr(spec, name):
                raise FileError(path, f"names no {name}; say --{name}, or put them into the spec")
            given[name] = path.parent / getattr(spec, name)
    return spec.model_copy(update={name: str(value) for name, value in given.items()})


def run(
    spec: Spec,
    out: Path,
    jobs: int = 1,
    cache: str | os.PathLike[str] | None = None,
    told: Callable[[str], object] = print,
) -> list[dict[str, Any]]:
    """Train and test every cell that is not done yet; returns the results and writes the tables."""
    out.mkdir(parents=True, exist_ok=True)
    combos, terms = list(_combinations(spec)), _terms(spec)
    tuned: dict[tuple[str, str, float | None], dict[str, Any]] = {}
    if spec.choose:
        trials = [
            Cell(entry.name, strategy, proportion, spec.seeds[0], _with(spec, entry, choice), terms)
            for entry, strategy, proportion in combos
            for choice in _choices(spec)
        ]
        told(f"choosing settings: {len(trials)} trainings")
        for result in _run_cells(spec, trials, out, jobs, cache, told):
            _keep_better(tuned, result)
    cells = [
        Cell(
            entry.name,
            strategy,
            proportion,
            seed,
            _with(spec, entry, tuned.get((entry.name, strategy, proportion), {}).get("chosen", {})),
            terms,
        )
        for entry, strategy, proportion in combos
        for seed in spec.seeds
    ]
    told(f"comparing: {len(cells)} trainings")
    results = list(_run_cells(spec, cells, out, jobs, cache, told, test=True))
    order = {cell.name: number for number, cell in enumerate(cells)}
    results.sort(key=lambda result: order[result["cell"]])
    _write_results(out / "results.csv", results)
    with atomic_file(out / "table.md") as stream:
        stream.write(tables(results).encode())
    return results


def _terms(spec: Spec) -> tuple[str, ...]:
    """Check what can be checked before the first training, and note what results depend on."""
    table = read_labels(spec.labels)
    for name in (spec.split, spec.test_split):
        table.in_split(name)
    if simulate.HOLDOUT in set(table.splits or []):
        raise FileError(
            spec.labels,
            f"has a split '{simulate.HOLDOUT}', which bench makes itself; give the full labels",
        )
    ImageFiles(spec.images)
    words = "\x1f".join([*table.ids, *table.classes, *(table.splits or [])]).encode()
    labels = hashlib.blake2b(words + table.dense().tobytes(), digest_size=8).hexdigest()
    return labels, spec.images, spec.split, spec.test_split, f"{spec.holdout:g}"


def _combinations(spec: Spec) -> Iterator[tuple[Entry, str, float | None]]:
    """Every entry with every strategy; an entry with labels of its own once."""
    for entry in spec.methods:
        if entry.labels is not None:
            yield entry, entry.labels, None
            continue
        for strategy in spec.strategies:
            for proportion in strategy.proportions:
                yield entry, strategy.strategy, proportion


def _choices(spec: Spec) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*spec.choose.values()):
        yield dict(zip(spec.choose, values, strict=True))


def _with(spec: Spec, entry: Entry, choice: dict[str, Any]) -> dict[str, Any]:
    settings = {**spec.settings, **entry.settings, **choice}
    return {**settings, "method": entry.method, "options": entry.options}


def _keep_better(
    tuned: dict[tuple[str, str, float | None], dict[str, Any]], result: dict[str, Any]
) -> None:
    key = (result["method"], result["strategy"], result["proportion"])
    score = result.get("val_mAP")
    if score is not None and score > tuned.get(key, {}).get("val_mAP", -math.inf):
        tuned[key] = {"val_mAP": score, "chosen": result["chosen"]}


def _run_cells(
    spec: Spec,
    cells: list[Cell],
    out: Path,
    jobs: int,
    cache: str | os.PathLike[str] | None,
    told: Callable[[str], object],
    *,
    test: bool = False,
) -> Iterator[dict[str, Any]]:
    arguments = [(spec, cell, out, cache, test, jobs) for cell in cells]
    if jobs == 1:
        done: Iterator[dict[str, Any]] = (_run_cell(*one) for one in arguments)
    else:
        done = _in_processes(arguments, jobs)
    for number, result in enumerate(done, start=1):
        figure = result.get("mAP" if test else "val_mAP")
        shown = result.get("error") or ("-" if figure is None else f"{100 * figure:.2f}")
        told(f"  {number}/{len(cells)} {result['cell']}: {shown}")
        yield result


def _in_processes(arguments: list[tuple[Any, ...]], jobs: int) -> Iterator[dict[str, Any]]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_run_cell, *one) for one in arguments]
        for future in as_completed(waiting):
            yield future.result()


def _run_cell(
    spec: Spec,
    cell: Cell,
    out: Path,
    cache: str | os.PathLike[str] | None,
    test: bool,
    jobs: int,
) -> dict[str, Any]:
    """Train a cell, test it if asked, and remember both; a failure is a result too."""
    if jobs > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    folder = out / "cells" / cell.name
    kept = folder / ("test.json" if test else "val.json")
    chosen = {name: cell.settings[name] for name in spec.choose if name in cell.settings}
    result: dict[str, Any] = {
        "cell": cell.name,
        "method": cell.entry,
        "strategy": cell.strategy,
        "proportion": cell.proportion,
        "seed": cell.seed,
        "chosen": chosen,
    }
    if kept.is_file():
        return {**result, **json.loads(kept.read_text())}
    try:
        table = read_labels(spec.labels)
        hidden = "partial" if cell.strategy == FULL else cell.strategy
        proportion = 1.0 if cell.strategy == FULL else cell.proportion
        labels = simulate.hide(table, hidden, proportion, cell.seed, spec.split, spec.holdout)
        # a method sees no test label: the rows of other splits are not in its table
        own = np.flatnonzero(labels.in_split(spec.split) | labels.in_split(simulate.HOLDOUT))
        done = train(
            labels.subset(own),
            spec.images,
            folder / "run",
            resume=True,
            cache=cache,
            **{"seed": cell.seed, "split": spec.split, **cell.settings},
        )
        figures: dict[str, Any] = {
            "val_mAP": done.record.best_val_mAP,
            "best_epoch": done.record.best_epoch,
        }
        if test:
            figures |= dict(evaluate(done, table.split(spec.test_split), spec.images, cache=cache))
            figures |= judge(done, table)
    except Exception as error:  # the other cells go on
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "error.txt").write_text(traceback.format_exc())
        return result | {"error": f"{type(error).__name__}: {error}"}
    with atomic_file(kept) as stream:
        stream.write(json.dumps(figures).encode())
    return result | figures


def _write_results(path: Path, results: list[dict[str, Any]]) -> None:
    flat = [{**r, "chosen": json.dumps(r["chosen"])} for r in results]
    names = list(dict.fromkeys(name for line in flat for name in line))
    with atomic_file(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        text.detach()


def tables(results: list[dict[str, Any]]) -> str:
    """Test mAP, and where methods gave pseudo-labels what share of those is right."""
    judged = {name: [result for result in results if name in result] for name in JUDGED}
    more = [markdown(those, name) for name, those in judged.items() if those]
    return "\n".join([markdown(results), *more])


def markdown(results: list[dict[str, Any]], figure: str = "mAP") -> str:
    """A table of mean and deviation over seeds, in percent: methods down, strategies across."""

    def column(result: dict[str, Any]) -> str:
        share = result["proportion"]
        return str(result["strategy"]) + ("" if share is None else f" {100 * share:g}%")

    rows = list(dict.fromkeys(result["method"] for result in results))
    columns = list(dict.fromkeys(map(column, results)))
    lines = [
        f"| {figure} | {' | '.join(columns)} |",
        "| --- " * (len(columns) + 1) + "|",
    ]
    for row in rows:
        words = []
        for name in columns:
            here = [r for r in results if r["method"] == row and column(r) == name]
            values = [100 * r[figure] for r in here if r.get(figure) is not None]
            failed = sum("error" in r for r in here)
            word = "" if not here else "failed" if not values else f"{np.mean(values):.2f}"
            if len(values) > 1:
                word += f" ± {np.std(values, ddof=1):.2f}"
            words.append(word + (f" ({failed} failed)" if failed and values else ""))
        lines.append(f"| {row} | {' | '.join(words)} |")
    return "\n".join(lines) + "\n"
