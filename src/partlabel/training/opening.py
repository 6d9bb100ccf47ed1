"""What a caller names, opened: a run, a label table, image files."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partlabel.base import processes
from partlabel.labels import LabelTable
from partlabel.labels.formats import PathLike, ReadOptions, read_with
from partlabel.learning.teachers import read_teacher
from partlabel.training.embedded import open_vectors
from partlabel.training.run import Run
from partlabel.training.run_record import file_hash
from partlabel.training.settings import Execution

Labels = LabelTable | PathLike


def open_run(
    run: Run | PathLike,
    images: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    teachers: Sequence[PathLike] = (),
) -> Run:
    """A run, with other images, features or scores, another cache or device if these are given."""
    vectors = open_vectors(features, feature_ids)
    scores = [read_teacher(Path(path)) for path in teachers]
    changes: dict[str, Any] = {}
    if cache is not None:
        changes["cache"] = Path(cache)
    if device is not None:
        changes["device"] = device
    if not isinstance(run, Run):
        return _checked(Run(run, images, Execution(**changes), vectors, scores))
    if images is None and vectors is None and not scores and not changes:
        return run
    return run.using(images, run.execution.model_copy(update=changes), vectors, scores)


def _checked(run: Run) -> Run:
    """A run that all processes see alike."""
    best = run.folder / "best.safetensors"
    facts = {"labels": run.record.labels, "weights": file_hash(best) if best.is_file() else ""}
    processes.agree({f"a run with {name}": value[:16] for name, value in facts.items()})
    return run


def table_of(labels: Labels, options: ReadOptions) -> LabelTable:
    """A table as it is, or a label file that is read; all processes must see the same."""
    table = labels if isinstance(labels, LabelTable) else read_with(labels, options).table
    if processes.size() > 1:
        processes.agree({"labels": table_digest(table)})
    return table


def table_digest(table: LabelTable) -> str:
    """A hash of the content of a table."""
    digest = hashlib.blake2b(digest_size=16)
    parts: list[Iterable[str]] = [table.ids, table.classes, table.splits or []]
    for names in parts:
        digest.update("\x1f".join(names).encode())
    cells = table.cells
    for array in (cells.starts, cells.columns, cells.values, cells.sources_or_human()):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def paths_of(images: PathLike | Sequence[PathLike]) -> list[Path]:
    """One path, or several."""
    if isinstance(images, str | os.PathLike):
        return [Path(images)]
    return [Path(image) for image in images]
