"""Run the trainings of a benchmark, one after another or several at a time."""

import hashlib
import json
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch

from partlabel.base.errors import StoppedError, count, time_left
from partlabel.base.files import atomic_file
from partlabel.base.processes import take_turns
from partlabel.images.batches import Rows
from partlabel.judging.pseudo_label_rates import judge
from partlabel.judging.scoring import Measured, labels_to_measure, measure
from partlabel.labels import LabelTable, simulate
from partlabel.labels.groups import Groups
from partlabel.metrics import by_annotations, evaluate_cells
from partlabel.metrics.resampling import resampled_map
from partlabel.output.bench.curves import BY_EPOCH
from partlabel.output.bench.label_bias import WHOLE
from partlabel.output.bench.results import Result, name_of_labels
from partlabel.output.bench.spec import FULL, Spec, strategy_of
from partlabel.output.bench.spec_labels import read_table
from partlabel.output.bench.uncertainty import RESAMPLED, TEST_IMAGES, draw_samples
from partlabel.training.run import Run
from partlabel.training.run_split import side_classes
from partlabel.training.train import train


@dataclass(frozen=True)
class Setup:
    """The parts that all trainings of a benchmark share.

    Args:
        spec: what to compare.
        out: the folder of runs and results.
        jobs: number of trainings at a time.
        cache: folder of cached features; None for the default.
        groups: images of the labels that belong together.
    """

    spec: Spec
    out: Path
    jobs: int
    cache: str | os.PathLike[str] | None
    groups: Groups

    @property
    def groups_file(self) -> Path:
        """The file of the groups; there is one if there are any."""
        return self.out / "groups.csv"

    def folder(self, cell: "Cell") -> Path:
        """The folder of a cell."""
        return self.out / "cells" / cell.name

    def result_file(self, cell: "Cell", test: bool) -> Path:
        """The file of a cell's figures, which exists once the cell is finished."""
        return self.folder(cell) / ("test.json" if test else "val.json")


@dataclass(frozen=True)
class Cell:
    """One training.

    Args:
        entry: name of the entry in the spec.
        strategy, proportion, seed: how its labels are drawn.
        settings: all settings of the training.
        conditions: what else its result depends on: labels and splits.
        choice: those of the settings that are chosen among several values.
        per_image: whether the same number of labels is known in each image.
        start: the cell whose model the training starts from.
    """

    entry: str
    strategy: str
    proportion: float | None
    seed: int
    settings: dict[str, Any] = field(hash=False)
    conditions: tuple[str, ...] = ()
    choice: dict[str, Any] = field(default_factory=dict, hash=False)
    per_image: bool = False
    start: "Cell | None" = None

    @property
    def name(self) -> str:
        """A readable folder name, different for different settings and conditions."""
        text = json.dumps([self.settings, self.conditions], sort_keys=True, default=str)
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        share = "" if self.proportion is None else f"-{self.proportion:g}"
        share += "-per_image" if self.per_image else ""
        plain = "".join(c if c.isalnum() or c in "+.-" else "_" for c in self.entry)
        return f"{plain}-{self.strategy}{share}-seed{self.seed}-{digest}"


def run_cells(
    setup: Setup, cells: list[Cell], say: Callable[[str], object], *, test: bool = False
) -> list[Result]:
    """Train cells, and test them if ``test`` is set. Cells that are finished are not run again.

    Args:
        setup: the parts that all trainings share.
        cells: the cells to run.
        say: called with a message after each cell.
        test: whether to measure on test labels too.

    Returns:
        The results, in the order of the cells.
    """
    starts = {cell.start.name: cell.start for cell in cells if cell.start is not None}
    if starts:
        say(f"  training what others start from: {count(len(starts), 'training')}")
        run_cells(setup, list(starts.values()), say)
    waiting = {cell.name for cell in cells if not setup.result_file(cell, test).is_file()}
    if len(waiting) < len(cells):
        say(f"  {len(cells) - len(waiting):,} of {len(cells):,} are already finished")
    durations: list[float] = []
    results: dict[str, Result] = {}
    for number, result in enumerate(_results(setup, cells, test), start=1):
        results[result["cell"]] = result
        waiting.discard(result["cell"])
        duration = result.pop("seconds", 0.0)
        if duration:
            durations.append(duration)
        left = _time_left(durations, len(waiting), setup.jobs)
        say(f"  {number}/{len(cells)} {_title(result)}: {_outcome(result, test)}{left}")
    return [results[cell.name] for cell in cells]


def _results(setup: Setup, cells: list[Cell], test: bool) -> Iterator[Result]:
    """The results of cells as they are finished, in any order."""
    if setup.jobs == 1:
        work = partial(_run_cell, setup, test=test)
        yield from (r for _, r in take_turns(lambda n: work(cells[n]), len(cells)))
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(setup.jobs, context, end_with, (os.getpid(),)) as pool:
        futures = [pool.submit(_run_cell, setup, cell, test) for cell in cells]
        for future in as_completed(futures):
            yield future.result()


def _title(result: Result) -> str:
    """The training that a result belongs to, in words."""
    labels = name_of_labels(result["strategy"], result["proportion"])
    chosen = [f"{name} {value}" for name, value in result["chosen"].items()]
    return ", ".join([result["method"], labels, f"seed {result['seed']}", *chosen])


def _outcome(result: Result, test: bool) -> str:
    """A result in a few words."""
    if "error" in result:
        return f"failed, {result['error']}"
    kind, figure = ("test", "mAP") if test else ("validation", "val_mAP")
    value = result.get(figure)
    return f"no {kind} mAP" if value is None else f"{kind} mAP {100 * value:.2f}"


def _time_left(durations: list[float], waiting: int, jobs: int) -> str:
    """An estimate of the time for the cells that wait, from the seconds that others took.

    >>> _time_left([60, 180], 3, 2), _time_left([60], 0, 1), _time_left([10], 2, 1)
    (' (about 3 min left)', '', ' (less than 1 min left)')
    """
    if not durations or not waiting:
        return ""
    return time_left(float(np.mean(durations)) * waiting / jobs)


def label_shares(labels: LabelTable, truth: LabelTable, split: str) -> dict[str, float]:
    """The shares of all cells of a split that are ``known``, and ``clean``: known and correct.

    Args:
        labels: the labels that a method is trained on.
        truth: the true labels, a table with the same rows.
        split: name of the split.

    >>> truth = LabelTable(["a", "b"], ["x", "y"], [[1, -1], [1, 1]], ["train", "test"])
    >>> labels = LabelTable(["a", "b"], ["x", "y"], [[1, 1], [0, 0]], ["train", "test"])
    >>> label_shares(labels, truth, "train")
    {'known': 1.0, 'clean': 0.5}
    """
    rows = labels.in_split(split)
    own, true = labels.subset(rows), truth.subset(rows)
    agreement = own.matrix.multiply(true.matrix).data  # 1 where both agree, else -1
    correct = float(np.count_nonzero(agreement > 0))
    return {"known": own.known, "clean": correct / max(math.prod(own.shape), 1)}


def end_with(parent: int) -> None:
    """End this process soon after its parent process has ended for whatever reason."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def use_threads(jobs: int) -> None:
    """Share the cores with the other processes of a benchmark."""
    if jobs > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))


def _run_cell(setup: Setup, cell: Cell, test: bool) -> Result:
    """The result of a cell, read from its file if it is finished; a failure is a result too."""
    use_threads(setup.jobs)
    path = setup.result_file(cell, test)
    folder = path.parent
    result: Result = {
        "cell": cell.name,
        "method": cell.entry,
        "strategy": cell.strategy,
        "proportion": cell.proportion,
        "seed": cell.seed,
        "chosen": cell.choice,
    }
    start = time.monotonic()
    try:
        if path.is_file():
            return {**result, **json.loads(path.read_text())}
        trained_before = Run(folder / "run").finished
        figures = _train_and_measure(setup, cell, folder / "run", test)
    except StoppedError:
        raise
    except Exception as error:  # the other cells continue
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "error.txt").write_text(traceback.format_exc())
        return result | {"error": f"{type(error).__name__}: {error}"}
    (folder / "error.txt").unlink(missing_ok=True)  # of an earlier attempt
    with atomic_file(path) as stream:
        stream.write(json.dumps(figures).encode())
    seconds = 0.0 if trained_before else time.monotonic() - start
    return result | figures | {"seconds": seconds}


def _train_and_measure(setup: Setup, cell: Cell, folder: Path, test: bool) -> dict[str, Any]:
    """Hide labels, train on the others, and return the figures of the run."""
    spec = setup.spec
    table = read_table(spec, cell.seed, setup.groups)
    patterns = cell.settings.get("side") or []
    side = side_classes(table, [patterns] if isinstance(patterns, str) else patterns)
    learned = table.with_classes([n for n in table.classes if n not in set(side)])
    hidden = _hide(spec, cell, learned)
    labels = _with_side_information(hidden, table, side)
    # the method's table has no rows of other splits, so that no test label can be used
    rows = usable_rows(labels, spec, setup.groups)
    settings: dict[str, Any] = {"seed": cell.seed, "split": spec.split, "reserve": 0, "quiet": True}
    settings["split_duplicates"] = True  # they are found once, for all trainings
    if setup.groups.groups:
        settings["group"] = str(setup.groups_file)
    settings |= cell.settings
    if cell.start is not None:
        settings["start"] = str(setup.folder(cell.start) / "run")
    run = train(
        labels.subset(rows),
        spec.images or None,
        folder,
        features=spec.features or None,
        feature_ids=spec.feature_ids or None,
        resume=True,
        cache=setup.cache,
        **settings,
    )
    figures: dict[str, Any] = {
        "val_mAP": run.record.best_val_mAP,
        "best_epoch": run.record.best_epoch,
        **label_shares(hidden, learned, spec.split),
    }
    if test:
        figures |= _by_epoch(run)
        tested = labels_to_measure(run, table.split(spec.test_split))
        measured = measure(run, tested)
        evaluation = measured.evaluation
        figures |= _on_test_images(tested, measured)
        groups = by_annotations(evaluation, run.selection.training)
        figures |= {f"G{n}": group["mAP"] for n, group in enumerate(groups, 1)}
        figures |= dict(evaluation)
        figures |= judge(run, table)
    return figures


def _hide(spec: Spec, cell: Cell, table: LabelTable) -> LabelTable:
    """The table with some labels hidden, as the strategy of the cell says."""
    if cell.strategy == FULL:
        return simulate.hide(table, "partial", 1.0, cell.seed, spec.split, spec.holdout)
    strategy = strategy_of(spec, cell.strategy)
    return simulate.hide(
        table,
        strategy.strategy,
        cell.proportion,
        cell.seed,
        spec.split,
        spec.holdout,
        per_image=cell.per_image,
        **strategy.options,
    )


def _with_side_information(hidden: LabelTable, table: LabelTable, side: list[str]) -> LabelTable:
    """Labels of which some are hidden, with the side classes, of which none are."""
    if not side:
        return hidden
    return hidden.merge(table.with_classes(side).with_splits(hidden.splits))


def _by_epoch(run: Run) -> dict[str, Any]:
    """The validation mAP of each epoch, if all have one; ``auto`` has no epochs of its own."""
    if run.record.members:
        return {}
    values = [line.get("val_mAP") for line in run.history()]
    return {} if None in values else {BY_EPOCH: values}


def _on_test_images(table: LabelTable, measured: Measured) -> dict[str, Any]:
    """The mAP of resampled test images, and of those with all labels known if there are others."""
    images = np.flatnonzero(measured.readable)
    cells = replace(measured.cells, rows=np.searchsorted(images, measured.cells.rows))
    names = "\x1f".join(table.ids.take(images)).encode()
    resampled = resampled_map(cells, draw_samples(len(images)))
    figures: dict[str, Any] = {
        TEST_IMAGES: hashlib.blake2b(names, digest_size=8).hexdigest(),
        RESAMPLED: [None if math.isnan(value) else round(value, 6) for value in resampled.tolist()],
    }
    whole = np.bincount(cells.rows, minlength=len(images)) == cells.classes
    if WHOLE <= whole.sum() < len(whole):
        figures["mAP_whole"] = evaluate_cells(cells.where(whole[cells.rows]))["mAP"]
    return figures


def usable_rows(labels: LabelTable, spec: Spec, groups: Groups) -> Rows:
    """The rows to train or validate on, without those that belong to a test image.

    A training image that belongs to a validation image is left out too.
    """
    train, held_out = labels.in_split(spec.split), labels.in_split(simulate.HOLDOUT)
    tested = labels.in_split(spec.test_split)
    first = groups.first
    held_out = held_out & ~np.isin(first, first[tested])
    train = train & ~np.isin(first, first[tested | held_out])
    return np.flatnonzero(train | held_out)
