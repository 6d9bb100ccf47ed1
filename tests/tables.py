"""Label tables for hypothesis to try."""

import numpy as np
from hypothesis import strategies as st

from partlabel import LabelTable
from partlabel.labels.cells import Cells, from_triples

# any letter, and the characters that text formats trip over
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
    splits: bool = False,
    silent: bool = True,
    in_order: bool = False,
) -> LabelTable:
    """Small tables.

    Args:
        values: what may stand in a cell.
        scores: with scores and sources.
        silent: there may be images and classes of which nothing is stated.
        in_order: ids and classes sorted, for formats that do not keep their order.
    """
    ids = draw(st.lists(names, min_size=0 if silent else 1, max_size=6, unique=True))
    classes = draw(st.lists(class_names, min_size=1, max_size=5, unique=True))
    if in_order:
        ids, classes = sorted(ids), sorted(classes)
    shape = (len(ids), len(classes))
    cell = st.sampled_from(values)
    flat = draw(st.lists(cell, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    matrix = np.array(flat, dtype=np.int8).reshape(shape)
    if not silent:
        spoken = [value for value in values if value != 0]
        matrix[:, 0] = draw(st.sampled_from(spoken))
        matrix[0, :] = draw(st.sampled_from(spoken))
    table = LabelTable(ids, classes, matrix)
    if scores:
        table = table.with_cells(draw(_scored(matrix)))
    if splits:
        which = st.lists(
            st.sampled_from(["", "train", "val"]), min_size=len(ids), max_size=len(ids)
        )
        table = table.with_splits(draw(which))
    return table


@st.composite
def _scored(draw: st.DrawFn, matrix: "np.typing.NDArray[np.int8]") -> Cells:
    size = matrix.size
    score = st.one_of(st.just(np.nan), st.floats(0, 1, width=32))
    scores = np.array(draw(st.lists(score, min_size=size, max_size=size)), dtype=np.float32)
    source = st.integers(0, 1)
    sources = np.array(draw(st.lists(source, min_size=size, max_size=size)), dtype=np.int8)
    rows, columns = np.divmod(np.arange(size), max(matrix.shape[1], 1))
    cells = from_triples(rows, columns, matrix.reshape(-1), matrix.shape, scores, sources)
    return cells.tidy()
