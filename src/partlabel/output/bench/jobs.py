"""One training after another, or several at a time, each in a folder of its own."""

import hashlib
import json
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch

from partlabel.base.files import atomic_file
from partlabel.judging.pseudo_label_rates import judge
from partlabel.judging.scoring import evaluate_run
from partlabel.labels import LabelTable, simulate
from partlabel.metrics import by_annotations
from partlabel.output.bench.results import Result
from partlabel.output.bench.spec import FULL, Spec, read_table
from partlabel.training.run import Run
from partlabel.training.train import train
from partlabel.training.trainer import InterruptedTrainingError


@dataclass(frozen=True)
class Cell:
    """One training: an entry on labels drawn by a strategy and a seed, with settings."""

    entry: str
    strategy: str
    proportion: float | None
    seed: int
    settings: dict[str, Any] = field(hash=False)
    terms: tuple[str, ...] = ()  # what else the result depends on: labels, images, splits
    choice: dict[str, Any] = field(default_factory=dict, hash=False)  # of its settings

    @property
    def name(self) -> str:
        """A folder name: readable, and different for different settings."""
        text = json.dumps([self.settings, self.terms], sort_keys=True, default=str)
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        share = "" if self.proportion is None else f"-{self.proportion:g}"
        plain = "".join(c if c.isalnum() or c in "+.-" else "_" for c in self.entry)
        return f"{plain}-{self.strategy}{share}-seed{self.seed}-{digest}"


def run_cells(
    spec: Spec,
    cells: list[Cell],
    out: Path,
    jobs: int,
    cache: str | os.PathLike[str] | None,
    told: Callable[[str], object],
    *,
    test: bool = False,
) -> Iterator[Result]:
    """The results of these cells as they are done, in any order; each is told."""
    arguments = [(spec, cell, out, cache, test, jobs) for cell in cells]
    left = [cell.name for cell in cells if not _kept(out, cell, test).is_file()]
    times: list[float] = []
    if jobs == 1:
        done: Iterator[Result] = (_run_cell(*one) for one in arguments)
    else:
        done = _in_processes(arguments, jobs)
    for number, result in enumerate(done, start=1):
        figure = result.get("mAP" if test else "val_mAP")
        shown = result.get("error") or ("-" if figure is None else f"{100 * figure:.2f}")
        if result["cell"] in left:
            left.remove(result["cell"])
            times.append(result.pop("seconds", 0.0))
        told(f"  {number}/{len(cells)} {result['cell']}: {shown}{_time_left(times, left, jobs)}")
        yield result


def _kept(out: Path, cell: Cell, test: bool) -> Path:
    """Where the figures of a cell are written once it is done."""
    return out / "cells" / cell.name / ("test.json" if test else "val.json")


def _time_left(times: list[float], left: list[str], jobs: int) -> str:
    """How long the rest will take, by how long trainings took; those of no time were done before.

    >>> _time_left([60, 0, 180], ["a", "b", "c"], 2), _time_left([0], ["a"], 1)
    (' (about 3 min left)', '')
    """
    trained = [seconds for seconds in times if seconds]
    if not trained or not left:
        return ""
    minutes = float(np.mean(trained)) * len(left) / jobs / 60
    left_over = f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    return f" (about {left_over} left)"


def label_shares(labels: LabelTable, truth: LabelTable, split: str) -> dict[str, float]:
    """Which shares of all cells of a split are ``known``, and ``clean``: known and right.

    Args:
        labels: what a method is given.
        truth: a table with the same rows.

    >>> truth = LabelTable(["a", "b"], ["x", "y"], [[1, -1], [1, 1]], ["train", "test"])
    >>> labels = LabelTable(["a", "b"], ["x", "y"], [[1, 1], [0, 0]], ["train", "test"])
    >>> label_shares(labels, truth, "train")
    {'known': 1.0, 'clean': 0.5}
    """
    rows = labels.in_split(split)
    given, true = labels.subset(rows), truth.subset(rows)
    agreement = given.matrix.multiply(true.matrix).data  # 1 where both say the same, else -1
    right = float(np.count_nonzero(agreement > 0))
    return {"known": given.known, "clean": right / max(math.prod(given.shape), 1)}


def _in_processes(arguments: list[tuple[Any, ...]], jobs: int) -> Iterator[Result]:
    with ProcessPoolExecutor(jobs, get_context("spawn"), _end_with, (os.getpid(),)) as pool:
        waiting = [pool.submit(_run_cell, *one) for one in arguments]
        for future in as_completed(waiting):
            yield future.result()


def _end_with(parent: int) -> None:
    """Let this process end soon after its parent, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _run_cell(
    spec: Spec,
    cell: Cell,
    out: Path,
    cache: str | os.PathLike[str] | None,
    test: bool,
    jobs: int,
) -> Result:
    """Train a cell, test it if asked, and remember both; a failure is a result too."""
    if jobs > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    kept = _kept(out, cell, test)
    folder = kept.parent
    result: Result = {
        "cell": cell.name,
        "method": cell.entry,
        "strategy": cell.strategy,
        "proportion": cell.proportion,
        "seed": cell.seed,
        "chosen": cell.choice,
    }
    if kept.is_file():
        return {**result, **json.loads(kept.read_text())}
    started, fresh = time.monotonic(), not Run(folder / "run").finished
    try:
        table = read_table(spec)
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
            **{"seed": cell.seed, "split": spec.split, "reserve": 0, **cell.settings},
        )
        figures: dict[str, Any] = {
            "val_mAP": done.record.best_val_mAP,
            "best_epoch": done.record.best_epoch,
            **label_shares(labels, table, spec.split),
        }
        if test:
            tested = evaluate_run(done, table.split(spec.test_split))
            groups = by_annotations(tested, done.selection.training)
            figures |= {f"G{n}": group["mAP"] for n, group in enumerate(groups, 1)} | dict(tested)
            figures |= judge(done, table)
    except InterruptedTrainingError:
        raise
    except Exception as error:  # the other cells go on
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "error.txt").write_text(traceback.format_exc())
        return result | {"error": f"{type(error).__name__}: {error}"}
    (folder / "error.txt").unlink(missing_ok=True)  # of an earlier try
    with atomic_file(kept) as stream:
        stream.write(json.dumps(figures).encode())
    return result | figures | {"seconds": time.monotonic() - started if fresh else 0.0}
