"""A hierarchy of classes: a dog is an animal, so labels of one class imply labels of others."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count, some
from partlabel.labels.cells import concatenate, from_triples
from partlabel.labels.combine import combine
from partlabel.labels.formats.source import Source
from partlabel.labels.names import Names
from partlabel.labels.table import ABSENT, PRESENT, LabelTable

Integers = NDArray[np.int64]

_EXAMPLES = 3  # contradictions that are described


@dataclass(frozen=True)
class Hierarchy:
    """The ancestors of each class, parents and their parents, by name."""

    ancestors: dict[str, frozenset[str]]

    @property
    def names(self) -> set[str]:
        """All classes of the hierarchy."""
        return set(self.ancestors)


@dataclass(frozen=True)
class Implied:
    """A table with the labels that a hierarchy implies.

    Args:
        table: the table; stated labels are as they were, except those of ``overruled``.
        added: number of labels that were unknown before.
        overruled: number of labels of a model that a human's label about another class refutes.
        contradictions: number of pairs of a present class and an absent ancestor in one image,
            both stated. Such labels stay as they are, and imply nothing.
        examples: some contradictions, in words.
        missing: the classes of the hierarchy that the table lacks; they are not added.
        parents: those of them that are ancestors of a class of the table.
    """

    table: LabelTable
    added: int
    overruled: int
    contradictions: int
    examples: list[str]
    missing: list[str]
    parents: list[str]

    def __str__(self) -> str:
        text = f"the hierarchy adds {count(self.added, 'label')}"
        if self.overruled:
            text += f" and corrects {count(self.overruled, 'label')} of a model"
        if self.missing:
            text += f"; no file has {some(self.missing)}"
        if self.parents:
            text += (
                f"; to add a parent such as '{self.parents[0]}' as a class, also merge a file that "
                f"has only the header image,{self.parents[0]}"
            )
        return text

    def warning(self) -> str:
        """A sentence about contradictions; empty if there are none."""
        if not self.contradictions:
            return ""
        return (
            f"{count(self.contradictions, 'contradiction')} to the hierarchy, which are left as "
            f"they are: {'; '.join(self.examples)}"
        )


def read_hierarchy(path: str | os.PathLike[str]) -> Hierarchy:
    """Read a hierarchy: lines ``child,parent``, or the JSON of Open Images."""
    source = Source(path)
    pairs = _open_images(source) if source.kind == "json" else _pairs(source)
    parents: dict[str, set[str]] = {}
    for child, parent in pairs:
        parents.setdefault(child, set()).add(parent)
        parents.setdefault(parent, set())
    if not parents:
        raise source.error("has no pairs of a class and its parent")
    try:
        order = list(TopologicalSorter(parents).static_order())  # parents come first
    except CycleError as error:
        cycle = " -> ".join(f"'{name}'" for name in reversed(error.args[1]))
        raise source.error(
            f"the hierarchy has a cycle: {cycle}; no class can be its own ancestor"
        ) from None
    ancestors: dict[str, frozenset[str]] = {}
    for name in order:
        above = parents[name]
        ancestors[name] = frozenset(above).union(*(ancestors[parent] for parent in above))
    return Hierarchy(ancestors)


def _pairs(source: Source) -> Iterable[tuple[str, str]]:
    for number, (line, fields) in enumerate(source.records()):
        names = [field.strip() for field in fields]
        if len(names) != 2 or not all(names):
            message = "expected two names, child,parent"
            raise source.error(f"{message}, found {','.join(names)[:60]!r}", f"line {line:,}")
        if number == 0 and [name.lower() for name in names] == ["child", "parent"]:
            continue
        yield names[0], names[1]


def _open_images(source: Source) -> Iterable[tuple[str, str]]:
    """Child and parent of each ``Subcategory``; a ``Part`` is no kind of its whole."""
    stack: list[Any] = [source.json]
    while stack:
        node = stack.pop()
        children = node.get("Subcategory", []) if isinstance(node, dict) else None
        if not isinstance(children, list) or not isinstance(node.get("LabelName"), str):
            raise source.error(
                "not a hierarchy: expected objects with 'LabelName' and a list 'Subcategory'"
            )
        stack += children
        for child in children:
            if isinstance(child, dict) and isinstance(child.get("LabelName"), str):
                yield child["LabelName"], node["LabelName"]


def imply(table: LabelTable, hierarchy: Hierarchy) -> Implied:
    """Add the labels that a hierarchy implies, for the classes that the table has.

    A present class makes its ancestors present, and an absent class makes its descendants absent.
    An implied label has the source and the origin of the label that implies it.
    """
    above, below = _relatives(table.classes, hierarchy)
    cells, width = table.cells, len(table.classes)
    up = _expand(np.flatnonzero(cells.values == PRESENT), cells.columns, above)
    pairs = _contradictions(table, up)
    consistent = np.ones(len(cells.values), dtype=np.bool_)
    consistent[[cell for pair in pairs for cell in (pair.child, pair.ancestor)]] = False
    up = _expand(np.flatnonzero((cells.values == PRESENT) & consistent), cells.columns, above)
    down = _expand(np.flatnonzero((cells.values == ABSENT) & consistent), cells.columns, below)
    reasons = np.concatenate([up.reasons, down.reasons])
    targets = np.concatenate([up.targets, down.targets])
    rows = cells.rows
    details = replace(cells.details.take(reasons), scores=None)  # scores are of other classes
    combined = combine(
        np.concatenate([rows * width + cells.columns, rows[reasons] * width + targets]),
        np.concatenate([cells.values, cells.values[reasons]]),
        concatenate([cells.details, details], [len(rows), len(reasons)]),
    )
    new_rows, new_columns = np.divmod(combined.cell, max(width, 1))
    new = from_triples(new_rows, new_columns, combined.value, table.shape, combined.details)
    missing = hierarchy.names - set(table.classes)
    return Implied(
        LabelTable.from_cells(table.ids, table.classes, new, table.splits, table.origins),
        int(np.count_nonzero(combined.value) - np.count_nonzero(cells.values)),
        int(combined.overruled.sum()),
        len(pairs),
        [_describe(table, pair) for pair in pairs[:_EXAMPLES]],
        sorted(missing),
        sorted(missing & _above(table.classes, hierarchy)),
    )


def _above(classes: Names, hierarchy: Hierarchy) -> set[str]:
    """All ancestors of these classes."""
    return {above for name in classes for above in hierarchy.ancestors.get(name, ())}


@dataclass(frozen=True)
class _Expansion:
    """Implied labels: the cell that implies each, and the column that it is about."""

    reasons: Integers
    targets: Integers


class _Contradiction(NamedTuple):
    """The positions of two cells of an image: a present class, and its absent ancestor."""

    child: int
    ancestor: int


def _relatives(classes: Names, hierarchy: Hierarchy) -> tuple[list[list[int]], list[list[int]]]:
    """For each class the columns of its ancestors, and of its descendants."""
    column = {name: number for number, name in enumerate(classes)}
    above: list[list[int]] = [[] for _ in column]
    below: list[list[int]] = [[] for _ in column]
    for name, child in column.items():
        for ancestor in hierarchy.ancestors.get(name, frozenset()):
            if ancestor in column:
                above[child].append(column[ancestor])
                below[column[ancestor]].append(child)
    return above, below


def _expand(
    positions: Integers, columns: NDArray[np.int32], relatives: Sequence[Sequence[int]]
) -> _Expansion:
    """One implied label for each cell at these positions and each relative of its class."""
    sizes = np.array([len(group) for group in relatives], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.array([j for group in relatives for j in group], dtype=np.int64)
    own = np.asarray(columns)[positions]
    repeats = sizes[own] if len(own) else np.zeros(0, dtype=np.int64)
    reasons = np.repeat(positions, repeats)
    within = np.arange(len(reasons)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    first = np.repeat(starts[own] if len(own) else repeats, repeats)
    return _Expansion(reasons, flat[first + within])


def _contradictions(table: LabelTable, up: _Expansion) -> list[_Contradiction]:
    """Pairs of stated labels that exclude each other, both by humans or both by models."""
    cells, width = table.cells, len(table.classes)
    if not len(up.reasons):
        return []
    stated = cells.rows * width + cells.columns
    implied = cells.rows[up.reasons] * width + up.targets
    at = np.minimum(np.searchsorted(stated, implied), len(stated) - 1)
    sources = cells.sources_or_human()
    clash = (stated[at] == implied) & (cells.values[at] == ABSENT)
    clash &= sources[at] == sources[up.reasons]
    return [
        _Contradiction(child, ancestor)
        for child, ancestor in zip(up.reasons[clash].tolist(), at[clash].tolist(), strict=True)
    ]


def _describe(table: LabelTable, pair: _Contradiction) -> str:
    cells = table.cells
    row = int(np.searchsorted(cells.starts, pair.child, side="right")) - 1
    child, ancestor = (table.classes[int(cells.columns[cell])] for cell in pair)
    return f"image '{table.ids[row]}' has '{child}', but no '{ancestor}'"
