"""Labels with verdicts as a label file, and all verdicts as a table."""

import os
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from partlabel.base.errors import InputError, PartlabelWarning, count
from partlabel.base.files import atomic_group
from partlabel.labels import CHOSEN, HUMAN, MODEL, NOT_ASKED, RANDOM, LabelTable
from partlabel.labels.cells import DEFAULTS, Details, from_triples
from partlabel.labels.formats import target_format, write_labels
from partlabel.labels.formats.delimited import write_delimited
from partlabel.labels.formats.formulas import quoted
from partlabel.labels.table import MOST_ORIGINS
from partlabel.output.review.desk import Desk
from partlabel.output.review.verdicts import Asked, Value

VERDICTS = "verdicts.csv"
_COLUMNS = [
    *("time", "reviewer", "image", "class", "verdict", "asked", "undone"),
    *("score", "filled_in", "learned_score", "stratum", "stratum_size", "inclusion", "plan"),
]
_WORDS = {
    Value.PRESENT: "present",
    Value.ABSENT: "absent",
    Value.UNKNOWN: "unknown",
    Value.SKIPPED: "skipped",
}
_FILLED = {1: "present", -1: "absent", 0: ""}


class _NewCell(NamedTuple):
    """A label that replaces one of the table, or is added to it."""

    cell: int  # row times the number of classes, plus column
    value: int
    scores: float
    sources: int
    origins: int
    asked: int


def reviewed_table(desk: Desk, *, filled: bool = False) -> LabelTable:
    """The labels with all verdicts: source human, the reviewer as origin, and why they were asked.

    A label on which reviewers differ becomes unknown; a skipped one stays as it was.

    Args:
        filled: also fill in labels that random verdicts guarantee, with source model.
    """
    with desk.lock:
        table = desk.table.with_more_classes(desk.new_classes) if desk.new_classes else desk.table
        origins = list(table.origins)
        new = list(_by_reviewers(desk, origins, len(table.classes)))
        if filled:
            taken = {one.cell for one in new}
            new += [one for one in _filled_in(desk, len(table.classes)) if one.cell not in taken]
    if len(origins) > MOST_ORIGINS:
        raise InputError(f"a label file can name {MOST_ORIGINS} origins, and there are more")
    return _with_cells(table, new, origins)


def _with_cells(table: LabelTable, new: list[_NewCell], origins: list[str]) -> LabelTable:
    cells, width = table.cells, len(table.classes)
    where = cells.rows * width + cells.columns
    added = np.array([one.cell for one in new], dtype=np.int64)
    kept = ~np.isin(where, added)
    columns: dict[str, Any] = {}
    for name, default in DEFAULTS.items():
        stored = cells.details.filled(name, len(where))[kept]
        more = np.array([getattr(one, name) for one in new], dtype=default.dtype)
        columns[name] = np.concatenate([stored, more])
    values = np.array([one.value for one in new], dtype=np.int8)
    rows, places = np.divmod(np.concatenate([where[kept], added]), width)
    merged = from_triples(
        rows,
        places,
        np.concatenate([cells.values[kept], values]),
        table.shape,
        Details(**columns),
    )
    return LabelTable.from_cells(table.ids, table.classes, merged, table.splits, origins)


def _by_reviewers(desk: Desk, origins: list[str], width: int) -> Iterator[_NewCell]:
    """The verdicts that count; names of reviewers are added to the origins."""
    for name, image, one in desk.standings.all():
        if one.value == Value.SKIPPED:
            continue
        origin = ", ".join(sorted(entry.reviewer for entry in one.latest))
        if origin not in origins:
            origins.append(origin)
        cell = desk.row_of[image] * width + desk.column(name)
        asked = RANDOM if one.asked == Asked.RANDOM else CHOSEN
        yield _NewCell(cell, int(one.value or 0), np.nan, HUMAN, origins.index(origin) + 1, asked)


def _filled_in(desk: Desk, width: int) -> Iterator[_NewCell]:
    """Unknown labels that random verdicts guarantee."""
    for name in desk.classes:
        audit = desk.random.audit(name) if name in desk.random.draws else None
        for side in [] if audit is None else audit.sides(desk.opinions.precision):
            assert audit is not None
            for row in audit.guaranteed(side).tolist():
                cell, score = row * width + desk.column(name), float(audit.plan.scores[row])
                yield _NewCell(cell, side.value, score, MODEL, 0, NOT_ASKED)


def write_review(
    desk: Desk,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    filled: bool = False,
    excel_safe: bool = False,
) -> list[Path]:
    """Write the labels to a file, or a new folder, and ``verdicts.csv`` beside it."""
    path = Path(path)
    target_format(path, format)
    table = reviewed_table(desk, filled=filled)
    if path.name == VERDICTS:
        raise InputError(f"{path}: this name is taken for the verdicts; choose another")
    paths = [path, path.with_name(VERDICTS)]
    with atomic_group(paths) as (labels, verdicts):
        write_labels(table, labels, format, shown_as=path, excel_safe=excel_safe)
        write_verdicts(desk, verdicts, excel_safe=excel_safe)
    conflicts = sum(one.conflict for _, _, one in desk.standings.all())
    if conflicts:
        warnings.warn(
            f"reviewers differ on {count(conflicts, 'label')}, which stay unknown; {VERDICTS} has "
            "what each of them said",
            PartlabelWarning,
            stacklevel=2,
        )
    return paths


def write_verdicts(desk: Desk, path: Path, *, excel_safe: bool = False) -> None:
    """Write every verdict that was ever given, in order, with what the model said at that time."""
    sizes = {(d.plan, d.name, d.stratum): d.size for ds in desk.random.draws.values() for d in ds}
    lines = []
    for _, act, undone in desk.standings.history():
        at = datetime.fromtimestamp(act.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for one in act.verdicts:
            stratum = "" if one.stratum is None else str(one.stratum)
            size = sizes.get((one.plan or "", one.name, one.stratum or 0), "")
            lines.append(
                (
                    at,
                    *(
                        quoted(t, excel_safe=excel_safe)
                        for t in (act.reviewer, one.image, one.name)
                    ),
                    *(_WORDS[one.value], one.asked.value, "yes" if undone else "no"),
                    *(_number(one.score), _FILLED[one.decided], _number(one.learned)),
                    *(stratum, size if stratum else "", _number(one.inclusion), one.plan or ""),
                )
            )
    write_delimited(path, _COLUMNS, lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
