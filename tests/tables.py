"""Hypothesis strategies for label tables."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from partlabel import LabelTable
from partlabel.labels.cells import Cells, Details, from_triples

# any character, but often those that are special in some text format
_LETTERS = st.one_of(
    st.sampled_from(list("abcXYZ019 ,;\"'&<>/|-_.éß漢🙂")),
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\ufffe\uffff\x7f"),
)
names = st.text(_LETTERS, min_size=1, max_size=8)
class_names = names.map(str.strip).filter(bool)


@st.composite
def tables(
    draw: st.DrawFn,
    *,
    values: tuple[int, ...] = (-1, 0, 1),
    scores: bool = False,
    origins: bool = False,
    splits: bool = False,
    unlabelled: bool = True,
    in_order: bool = False,
) -> LabelTable:
    """Small label tables.

    Args:
        values: the possible values of a cell.
        scores: whether cells have scores and sources.
        origins: whether labels have origins, and were asked for.
        splits: whether images have splits.
        unlabelled: whether there may be images and classes without known labels.
        in_order: whether ids and classes are sorted, for formats that do not keep their order.
    """
    ids = draw(st.lists(names, min_size=0 if unlabelled else 1, max_size=6, unique=True))
    classes = draw(st.lists(class_names, min_size=1, max_size=5, unique=True))
    if in_order:
        ids, classes = sorted(ids), sorted(classes)
    shape = (len(ids), len(classes))
    cell = st.sampled_from(values)
    flat = draw(st.lists(cell, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    matrix = np.array(flat, dtype=np.int8).reshape(shape)
    if not unlabelled:
        known_values = [value for value in values if value != 0]
        matrix[:, 0] = draw(st.sampled_from(known_values))
        matrix[0, :] = draw(st.sampled_from(known_values))
    table = LabelTable(ids, classes, matrix)
    if scores or origins:
        cells = draw(_cells_with_details(matrix, scores=scores, origins=origins))
        names_of_origins = ["north", "south, east"]
        table = LabelTable.from_cells(ids, classes, cells, None, names_of_origins)
    if splits:
        split = st.sampled_from(["", "train", "val"])
        table = table.with_splits(draw(st.lists(split, min_size=len(ids), max_size=len(ids))))
    return table


@st.composite
def _cells_with_details(
    draw: st.DrawFn, matrix: "np.typing.NDArray[np.int8]", *, scores: bool, origins: bool
) -> Cells:
    def column(values: st.SearchStrategy[Any], dtype: Any) -> "np.typing.NDArray[Any]":
        size = matrix.size
        return np.array(draw(st.lists(values, min_size=size, max_size=size)), dtype=dtype)

    details = Details()
    if scores:
        score = st.one_of(st.just(np.nan), st.floats(0, 1, width=32))
        details = replace(
            details, scores=column(score, np.float32), sources=column(st.integers(0, 1), np.int8)
        )
    if origins:
        details = replace(
            details,
            origins=column(st.integers(0, 2), np.uint8),
            asked=column(st.integers(0, 2), np.int8),
        )
    rows, columns = np.divmod(np.arange(matrix.size), max(matrix.shape[1], 1))
    return from_triples(rows, columns, matrix.reshape(-1), matrix.shape, details).tidy()
