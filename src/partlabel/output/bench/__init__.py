"""Methods compared on equal terms: the same labels, the same tuning, the same test images.

A spec names label strategies, seeds and methods; each combination is a *cell*, trained and tested
on its own and kept in a folder of its own. Settings in ``choose`` are tried alike for every method,
on the first seed, and decided on validation labels; test labels are read only after that.
"""

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_file
from partlabel.base.terminal import say
from partlabel.base.text_tables import html_table
from partlabel.images.folder import ImageFiles
from partlabel.labels import simulate
from partlabel.output.bench.curves import draw_curves
from partlabel.output.bench.jobs import Cell, run_cells
from partlabel.output.bench.results import Result, write_results
from partlabel.output.bench.spec import (
    Entry,
    Spec,
    at_the_edge,
    choices,
    combinations,
    read_spec,
    read_table,
    settings_of,
)
from partlabel.output.bench.tables import Tables, tables

__all__ = ["Benchmark", "Spec", "read_spec", "run_spec", "tables"]


@dataclass(frozen=True)
class Benchmark:
    """The results of a comparison, one per training, and tables of them."""

    results: list[Result]
    tables: Tables

    def __str__(self) -> str:
        return self.tables.markdown()

    def _repr_html_(self) -> str:
        sheets = "".join(html_table(sheet.header, sheet.rows) for sheet in self.tables.sheets)
        return sheets + "".join(f"<p>{escape(note)}</p>" for note in self.tables.notes)


def run_spec(
    spec: Spec,
    out: Path,
    jobs: int = 1,
    cache: str | os.PathLike[str] | None = None,
    say: Callable[[str], object] = say,
) -> Benchmark:
    """Train and test every cell that is not done yet, and write the results to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    combos, terms = list(combinations(spec)), _terms(spec, say)
    tuned: dict[tuple[str, str, float | None], dict[str, Any]] = {}

    def cell(entry: Entry, strategy: str, proportion: float | None, seed: int, choice: Any) -> Cell:
        settings = settings_of(spec, entry, choice)
        return Cell(entry.name, strategy, proportion, seed, settings, terms, choice)

    trials = [
        cell(*combo, spec.seeds[0], choice)
        for combo in combos
        for tried in [list(choices(spec, combo[0]))]
        for choice in (tried if len(tried) > 1 else [])
    ]
    if trials:
        say(f"choosing settings: {len(trials)} trainings")
        order = {trial.name: number for number, trial in enumerate(trials)}
        tried = list(run_cells(spec, trials, out, jobs, cache, say))
        for result in sorted(tried, key=lambda result: order[result["cell"]]):
            _keep_better(tuned, result)
    cells = []
    for entry, strategy, proportion in combos:
        first, *more = choices(spec, entry)
        best = tuned.get((entry.name, strategy, proportion), {}).get("chosen")
        if more and best is None:
            say(f"  {entry.name}: no trial gave a validation mAP; it is trained as it is")
        for edge in at_the_edge(spec, entry, best) if more and best else []:
            where = strategy if proportion is None else f"{strategy} {proportion:.0%}"
            say(f"  {entry.name}, {where}: {edge}; beyond it may be better")
        choice = (best or {}) if more else first
        cells += [cell(entry, strategy, proportion, seed, choice) for seed in spec.seeds]
    say(f"comparing: {len(cells)} trainings")
    results = list(run_cells(spec, cells, out, jobs, cache, say, test=True))
    order = {one.name: number for number, one in enumerate(cells)}
    results.sort(key=lambda result: order[result["cell"]])
    write_results(out / "results.csv", results)
    summary = tables(results, spec.figures, spec.baseline, spec.ceiling)
    for name, text in (("table.md", summary.markdown()), ("table.tex", summary.latex())):
        with atomic_file(out / name) as stream:
            stream.write(text.encode())
    picture = draw_curves(results)
    if picture:
        with atomic_file(out / "curves.svg") as stream:
            stream.write(picture.encode())
    else:
        (out / "curves.svg").unlink(missing_ok=True)  # of an earlier spec
    return Benchmark(results, summary)


def _terms(spec: Spec, say: Callable[[str], object]) -> tuple[str, ...]:
    """Check what can be checked before the first training, and note what results depend on."""
    table = read_table(spec)
    for name in (spec.split, spec.test_split):
        table.in_split(name)
    if simulate.HOLDOUT in set(table.splits or []):
        raise FileError(
            spec.labels,
            f"has a split '{simulate.HOLDOUT}', which bench makes itself; call it '{spec.split}'",
        )
    known = table.split(spec.split).known
    if known < 1:
        say(f"{known:.1%} of the training labels are known; figures are over known labels only")
    ImageFiles(spec.images)
    words = "\x1f".join([*table.ids, *table.classes, *(table.splits or [])]).encode()
    labels = hashlib.blake2b(words + table.dense().tobytes(), digest_size=8).hexdigest()
    return labels, spec.images, spec.split, spec.test_split, f"{spec.holdout:g}"


def _keep_better(
    tuned: dict[tuple[str, str, float | None], dict[str, Any]], result: Result
) -> None:
    key = (result["method"], result["strategy"], result["proportion"])
    score = result.get("val_mAP")
    if score is not None and score > tuned.get(key, {}).get("val_mAP", -math.inf):
        tuned[key] = {"val_mAP": score, "chosen": result["chosen"]}
