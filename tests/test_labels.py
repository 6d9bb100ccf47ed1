"""The label table, compared with the dense matrix that it represents."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import partlabel
from partlabel import ABSENT, PRESENT, UNKNOWN, LabelTable
from partlabel.base.errors import InputError
from partlabel.labels import Names
from partlabel.labels.cells import Details, from_triples
from tables import names, tables


def small() -> LabelTable:
    return LabelTable(
        ["a.jpg", "b.jpg", "c.jpg"],
        ["cat", "dog"],
        [[1, 0], [-1, 1], [0, 0]],
        splits=["train", "val", "train"],
    )


def test_constants() -> None:
    assert (PRESENT, ABSENT, UNKNOWN) == (1, -1, 0)
    assert partlabel.labels.PRESENT == 1


def test_shape_and_counts() -> None:
    table = small()
    assert table.shape == (3, 2)
    assert table.known == 3 / 6
    assert table.ids == ["a.jpg", "b.jpg", "c.jpg"]
    assert list(table.classes) == ["cat", "dog"]
    assert table.counts().present.tolist() == [1, 1]
    assert table.counts()["absent"].tolist() == [1, 0]
    assert table.counts().unknown.tolist() == [1, 2]
    assert table.dense().dtype == np.int8
    assert table.matrix.toarray().tolist() == [[1, 0], [-1, 1], [0, 0]]


def test_split_and_subset() -> None:
    table = small()
    assert table.split("train").ids == ["a.jpg", "c.jpg"]
    assert table.subset([2, 0]).dense().tolist() == [[0, 0], [1, 0]]
    assert table.subset(np.array([False, True, False])).splits == ["val"]
    with pytest.raises(InputError, match="did you mean 'train'"):
        table.split("trian")
    with pytest.raises(InputError, match="no splits"):
        table.with_splits(None).split("train")


@given(tables(), st.data())
def test_dense_rows_are_the_rows_of_dense(table: LabelTable, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, max(len(table) - 1, 0)), max_size=5))
    rows = rows if len(table) else []
    assert np.array_equal(table.dense(rows), table.dense()[np.array(rows, dtype=int)])


@given(tables(), st.randoms(use_true_random=False))
def test_sparse_input_in_any_order_is_the_same_table(table: LabelTable, random: Any) -> None:
    dense = table.dense()
    positions = list(zip(*np.nonzero(dense), strict=True))
    random.shuffle(positions)
    rows = np.array([r for r, _ in positions], dtype=int)
    columns = np.array([c for _, c in positions], dtype=int)
    coo = sparse.coo_array((dense[rows, columns], (rows, columns)), shape=dense.shape)
    by_row = sorted(range(len(positions)), key=lambda i: rows[i])  # rows in order, columns shuffled
    starts = np.searchsorted(rows[by_row], np.arange(len(table) + 1))
    csr = sparse.csr_array(
        (dense[rows, columns][by_row], columns[by_row], starts), shape=dense.shape
    )
    for matrix in (coo, csr, sparse.csc_array(dense), sparse.csr_matrix(dense)):
        assert LabelTable(table.ids, table.classes, matrix) == table


def test_a_cell_given_twice_is_an_error() -> None:
    same_cell = ([1, 1], ([0, 0], [1, 1]))
    with pytest.raises(InputError, match="image 'a', class 'dog': the cell is given twice"):
        LabelTable(["a"], ["cat", "dog"], sparse.coo_array(same_cell, shape=(1, 2)))
    csr = sparse.csr_array(([1, -1, 1, 1], [1, 0, 1, 1], [0, 1, 4]), shape=(2, 2))
    with pytest.raises(InputError, match="image 'b', class 'dog': the cell is given twice"):
        LabelTable(["a", "b"], ["cat", "dog"], csr)


def test_stored_zeros_are_unknown() -> None:
    matrix = sparse.csr_array(([0, 1], [0, 1], [0, 2]), shape=(1, 2))
    table = LabelTable(["a"], ["cat", "dog"], matrix)
    assert table.known == 0.5
    assert table == LabelTable(["a"], ["cat", "dog"], [[0, 1]])


def test_a_later_change_of_the_matrix_does_not_change_the_table() -> None:
    matrix = sparse.csr_array(np.array([[1, -1]], dtype=np.int8))
    table = LabelTable(["a"], ["cat", "dog"], matrix)
    matrix.data[:] = -1
    assert table.dense().tolist() == [[1, -1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], ["x"], [[2]]), "2 is not a label"),
        ((["a"], ["x"], [[np.nan]]), "nan is not a label"),
        ((["a"], ["x"], [[0.5]]), "0.5 is not a label"),
        ((["a", "a"], ["x"], [[1], [1]]), "image name 'a' occurs more than once"),
        ((["a"], ["x", "x"], [[1, 1]]), "class name 'x' occurs more than once"),
        ((["a"], [""], [[1]]), "at least one character"),
        ((["a\nb"], ["x"], [[1]]), "control characters"),
        ((["a"], [" x"], [[1]]), "starts or ends with a space"),
        ((["a"], ["x"], [[1, 1]]), "1 x 2, but there are 1 id and 1 class"),
        ((["a"], ["x"], [1]), "but there are"),
        ((["a"], ["x"], [[1]], ["t", "t"]), "2 split names for 1 image"),
        (([None], ["x"], [[1]]), "names must be"),
        (([3], ["x"], [[1]]), "names must be"),
        ((["\ud800"], ["x"], [[1]]), "names must be"),
    ],
)
def test_invalid_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelTable(*arguments)


def test_empty_tables() -> None:
    for table in (LabelTable([], ["x"], []), LabelTable(["a"], [], np.zeros((1, 0)))):
        assert table.known == 0
        assert table.dense().shape == table.shape
        assert table.merge(small()).dense().sum() == small().dense().sum()


def test_rows_out_of_range() -> None:
    with pytest.raises(IndexError):
        small().dense([3])
    with pytest.raises(InputError, match="mask of length 2"):
        small().subset([True, False])
    assert small().dense([-1]).tolist() == [[0, 0]]
    with pytest.raises(InputError, match=r"table\.ids\.find"):
        small().subset(["a.jpg"])


def test_with_classes() -> None:
    table = small().with_classes(["dog", "cat"])
    assert table.classes == ["dog", "cat"]
    assert table.dense().tolist() == [[0, 1], [1, -1], [0, 0]]
    assert table.splits == small().splits
    assert small().with_classes(["dog"]).dense().tolist() == [[0], [1], [0]]
    with pytest.raises(InputError, match="did you mean 'dog'"):
        small().with_classes(["cat", "dgo"])
    assert table.classes.missing(["cat", "dgo", "dog"]) == ["dgo"]


@given(tables(scores=True, origins=True, splits=True))
def test_save_and_open(table: LabelTable) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.arrow"
        table.save(path)
        opened = LabelTable.open(path)
        assert opened == table
        assert np.array_equal(opened.scores(), table.scores(), equal_nan=True)
        table.subset([]).save(path)  # replaces a file that is open
        assert opened == table


def test_open_a_damaged_file(tmp_path: Path) -> None:
    small().save(tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    for content in (b"", b"ARROW1", good[: len(good) // 2], good[:-1], b"x" * 1000):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(InputError, match="bad"):
            LabelTable.open(tmp_path / "bad")
    with pytest.raises(InputError):
        LabelTable.open(tmp_path / "nothing here")


def merge_cell_by_cell(
    a: LabelTable, b: LabelTable, rule: str
) -> tuple[dict[tuple[str, str], int], int]:
    cells: dict[tuple[str, str], int] = {}
    conflicts = 0
    for table, first in ((a, True), (b, False)):
        dense = table.dense()
        for i, image in enumerate(table.ids):
            for j, name in enumerate(table.classes):
                value, old = int(dense[i, j]), cells.get((image, name), 0)
                if first or old == 0 or value == 0:
                    cells[image, name] = value or old
                elif old != value:
                    conflicts += 1
                    cells[image, name] = {"ours": old, "theirs": value, "unknown": 0}[rule]
    return cells, conflicts


@given(tables(), tables(), st.sampled_from(["ours", "theirs", "unknown"]))
def test_merge_equals_a_merge_cell_by_cell(a: LabelTable, b: LabelTable, rule: Any) -> None:
    merged = a.merge(b, rule)
    cells, conflicts = merge_cell_by_cell(a, b, rule)
    assert merged.conflicts == conflicts
    dense = merged.dense()
    for i, image in enumerate(merged.ids):
        for j, name in enumerate(merged.classes):
            assert dense[i, j] == cells.get((image, name), 0)
    assert set(merged.ids) == set(a.ids) | set(b.ids)
    assert list(merged.ids)[: len(a)] == list(a.ids)
    assert set(merged.classes) == set(a.classes) | set(b.classes)
    if conflicts:
        with pytest.raises(InputError, match="--conflict"):
            a.merge(b)
    else:
        assert a.merge(b) == merged


def test_merge_scores_and_sources() -> None:
    def one(value: int, score: float, source: int) -> LabelTable:
        cells = from_triples(
            np.array([0]),
            np.array([0]),
            np.array([value], np.int8),
            (1, 1),
            Details(np.array([score], np.float32), np.array([source], np.int8)),
        )
        return LabelTable.from_cells(["a"], ["x"], cells)

    unknown, human, model = one(0, 0.75, 0), one(1, np.nan, 0), one(1, 0.5, 1)
    for merged in (unknown.merge(human), human.merge(unknown)):
        assert (merged.dense()[0, 0], merged.scores()[0, 0]) == (1, 0.75)
    for merged in (model.merge(human), human.merge(model)):
        assert merged.cells.sources is None
        assert merged.scores()[0, 0] == 0.5
    clash = one(-1, 0.25, 1).merge(model, "theirs")
    assert (clash.scores()[0, 0], clash.cells.sources_or_human()[0]) == (0.5, 1)
    assert np.isnan(one(-1, 0.25, 1).merge(model, "unknown").scores()).all()


def test_a_split_without_images_is_not_found() -> None:
    with pytest.raises(InputError, match="no split 'val'"):
        small().split("train").split("val")


def test_merge_splits() -> None:
    a = LabelTable(["x", "y"], ["c"], [[1], [1]], ["train", ""])
    b = LabelTable(["x", "y", "z"], ["c"], [[1], [1], [1]], ["test", "test", "val"])
    with pytest.raises(InputError, match=r"the split of 1 image \(first: 'x'\)"):
        a.merge(b)
    assert a.merge(b, "ours").splits == ["train", "test", "val"]
    assert a.merge(b, "theirs").splits == ["test", "test", "val"]
    assert a.merge(b, "unknown").splits == ["", "test", "val"]
    assert (a.merge(b, "unknown").conflicts, a.merge(b, "unknown").split_conflicts) == (0, 1)
    with pytest.raises(InputError, match="did you mean 'theirs'"):
        a.merge(b, "their")  # type: ignore[arg-type]


@given(tables(scores=True, origins=True, splits=True))
def test_merge_with_itself_changes_nothing(table: LabelTable) -> None:
    assert table.merge(table) == table
    assert table.merge(table.subset([])) == table


@given(st.lists(names, max_size=8))
def test_names_equal_the_list_they_are_made_from(expected: list[str]) -> None:
    array = Names(expected)
    assert array == expected
    assert list(array) == expected
    assert array == Names(expected)
    assert list(array[1:]) == expected[1:]
    for i, name in enumerate(expected):
        assert array[i] == name
        assert name in array
        assert expected[int(array.find([name])[0])] == name
    assert "\x00 never" not in array
    assert array != [*expected, "more"]
