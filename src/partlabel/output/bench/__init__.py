"""Compare methods under the same conditions: the same labels, tuning and test images.

A spec names label strategies, seeds and methods. Each combination is a *cell*, which is trained and
tested in a folder of its own. Settings under ``choose`` are tried for every method in the same way,
on the first seed, and the best ones are chosen on validation labels. Test labels are used only
after that.
"""

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from partlabel.base import processes
from partlabel.base.errors import FileError, count
from partlabel.base.files import atomic_file
from partlabel.base.terminal import say
from partlabel.base.text_tables import html_table
from partlabel.images.named_images import open_images
from partlabel.labels import simulate
from partlabel.output.bench.curves import draw_curves, draw_epochs, draw_gains
from partlabel.output.bench.jobs import Cell, Setup, run_cells
from partlabel.output.bench.label_bias import bias_notes
from partlabel.output.bench.results import Result, name_of_labels, write_results
from partlabel.output.bench.round_tables import draw_rounds, tables_of_rounds
from partlabel.output.bench.rounds import run_rounds
from partlabel.output.bench.shared_groups import find_groups, write_groups
from partlabel.output.bench.spec import (
    Combination,
    Spec,
    choices,
    combinations,
    edge_warnings,
    read_spec,
    settings_of,
    start_of,
)
from partlabel.output.bench.spec_labels import has_folds, labels_of, read_table
from partlabel.output.bench.tables import Tables, tables
from partlabel.training.embedded import open_vectors
from partlabel.training.run_split import by_humans

__all__ = ["Benchmark", "Spec", "read_spec", "run_spec", "tables"]

Choice = dict[str, Any]  # settings under ``choose``, with one value each
Say = Callable[[str], object]


@dataclass(frozen=True, repr=False)
class Benchmark:
    """The results of a comparison, one per training, and tables of them."""

    results: list[Result]
    tables: Tables

    def __repr__(self) -> str:
        return f"<Benchmark: {len(self.results)} trainings>"

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
    say: Say = say,
) -> Benchmark:
    """Train and test every cell that is not finished, and write the results.

    Args:
        spec: what to compare.
        out: the folder of runs and results.
        jobs: number of trainings at a time.
        cache: folder of cached features.
        say: called with each message about the progress.
    """
    out.mkdir(parents=True, exist_ok=True)
    conditions = _check_data(spec, say)
    processes.agree(dict(zip(("labels", "features"), conditions, strict=False)))
    setup = Setup(spec, out, jobs, cache, find_groups(spec, cache, say))
    write_groups(setup)
    processes.wait_for_all()  # the first process writes, and all read
    if spec.rounds is not None:
        lines = run_rounds(setup, say)
        ways = [way for way in spec.rounds.ways if (way.strategy, way.goal) == ("random", "map")]
        outcome = tables_of_rounds(lines, ways[0].name if ways else None)
        _write(out, lines, outcome, {"curves": draw_rounds(lines)})
        return Benchmark(lines, outcome)
    notes = _test_notes(setup)
    for note in notes:
        say(f"note: {note}")
    chosen = _choose_settings(setup, conditions, say)
    cells = [
        _cell(spec, combination, seed, choice, conditions)
        for combination, choice in chosen
        for seed in spec.seeds
    ]
    say(f"comparing: {count(len(cells), 'training')}")
    results = run_cells(setup, cells, say, test=True)
    folds = spec.folds if has_folds(spec) else None
    summary = tables(results, spec.figures, spec.baseline, spec.ceiling, folds or 0)
    summary = replace(summary, notes=[*summary.notes, *notes])
    charts = {
        "curves": draw_curves(results, spec.figures),
        "gains": draw_gains(results, spec.figures, spec.baseline),
        "epochs": draw_epochs(results),
    }
    _write(out, results, summary, charts)
    return Benchmark(results, summary)


def _check_data(spec: Spec, say: Say) -> tuple[str, ...]:
    """Check labels and images before the first training; returns what all results depend on."""
    table = read_table(spec, spec.seeds[0])
    for name in (spec.split, spec.test_split):
        table.in_split(name)
    if simulate.HOLDOUT in set(table.splits or []):
        raise FileError(
            spec.labels,
            f"has a split '{simulate.HOLDOUT}', but bench draws this split itself; rename it to "
            f"'{spec.split}'",
        )
    for entry in spec.strategies:
        simulate.check_classes(entry.strategy, len(table.classes), **entry.options)
    known = table.split(spec.split).known
    if known < 1:
        say(f"{known:.1%} of the training labels are known; all figures use known labels only")
    if spec.images:
        open_images(spec.images)
    features = open_vectors(spec.features or None, spec.feature_ids or None)
    source = "images" if features is None else features.digest()
    names = "\x1f".join([*table.ids, *table.classes, *(table.splits or [])]).encode()
    labels = hashlib.blake2b(names + table.dense().tobytes(), digest_size=8).hexdigest()
    return labels, source, spec.split, spec.test_split, f"{spec.holdout:g}"


def _test_notes(setup: Setup) -> list[str]:
    """What is worth knowing about the test labels before results are read."""
    spec, notes = setup.spec, []
    table = read_table(spec, spec.seeds[0], setup.groups)
    if has_folds(spec):
        tested = labels_of(spec)
    else:
        tested = table.split(spec.test_split)
        first = setup.groups.first
        crossing = np.isin(
            first[table.in_split(spec.split)], first[table.in_split(spec.test_split)]
        )
        if crossing.any():
            left_out = count(int(crossing.sum()), "training image")
            notes.append(f"{left_out} left out: near-duplicates of test images")
    return [*notes, *bias_notes(by_humans(tested))]


def _cell(
    spec: Spec,
    combination: Combination,
    seed: int,
    choice: Choice,
    conditions: tuple[str, ...],
) -> Cell:
    settings = settings_of(spec, combination.entry, choice)
    start = None
    if method := start_of(spec, combination.entry):
        # one model for all entries: with the settings of the spec, whatever is chosen for an entry
        start = _labelled(f"start {method}", combination, seed, {**spec.settings, "method": method})
        start = replace(start, conditions=conditions)
        conditions = (*conditions, start.name)
    cell = _labelled(combination.entry.name, combination, seed, settings)
    return replace(cell, conditions=conditions, choice=choice, start=start)


def _labelled(name: str, combination: Combination, seed: int, settings: dict[str, Any]) -> Cell:
    """A cell with the labels of a combination."""
    _, strategy, proportion, per_image = combination
    return Cell(name, strategy, proportion, seed, settings, per_image=per_image)


def _choose_settings(
    setup: Setup, conditions: tuple[str, ...], say: Say
) -> list[tuple[Combination, Choice]]:
    """All combinations with the settings to use, chosen by validation mAP on the first seed."""
    spec = setup.spec
    options = [(one, list(choices(spec, one.entry))) for one in combinations(spec)]
    trials = [
        _cell(spec, combination, spec.seeds[0], choice, conditions)
        for combination, tried in options
        if len(tried) > 1
        for choice in tried
    ]
    best = {}
    if trials:
        say(f"choosing settings: {count(len(trials), 'training')}")
        best = _best_choices(run_cells(setup, trials, say))
    chosen = []
    for combination, tried in options:
        entry, strategy, proportion, _ = combination
        choice = tried[0]
        if len(tried) > 1:
            name = f"{entry.name}, {name_of_labels(strategy, proportion)}"
            key = (entry.name, strategy, proportion)
            choice = best.get(key, {})
            if key not in best:
                say(f"  {name}: no trial has a validation mAP, so `choose` has no effect")
            for warning in edge_warnings(spec, entry, choice):
                say(f"  {name}: {warning}")
        chosen.append((combination, choice))
    return chosen


def _best_choices(trials: list[Result]) -> dict[tuple[str, str, float | None], Choice]:
    """The choice with the highest validation mAP per method and labels; of equal ones the first."""
    best: dict[tuple[str, str, float | None], Result] = {}
    for trial in trials:
        key = (trial["method"], trial["strategy"], trial["proportion"])
        score, highest = trial.get("val_mAP"), best[key]["val_mAP"] if key in best else -math.inf
        if score is not None and score > highest:
            best[key] = trial
    return {key: trial["chosen"] for key, trial in best.items()}


def _write(out: Path, results: list[Result], summary: Tables, charts: dict[str, str]) -> None:
    """Write results, tables, and the charts that are not empty."""
    write_results(out / "results.csv", results)
    files = {"table.md": summary.markdown(), "table.tex": summary.latex()}
    for name, chart in charts.items():
        if chart:
            files[f"{name}.svg"] = chart
        else:
            (out / f"{name}.svg").unlink(missing_ok=True)  # of an earlier spec
    for name, text in files.items():
        with atomic_file(out / name) as stream:
            stream.write(text.encode())
