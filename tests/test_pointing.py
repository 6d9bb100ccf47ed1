"""The pointing game on maps and boxes with known results."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from partlabel import LabelTable
from partlabel.base.errors import InputError
from partlabel.images.folder import ImageFiles, upright_size
from partlabel.labels import scenes
from partlabel.labels.formats.boxes import read_boxes
from partlabel.metrics.pointing import Boxes, boxes_of, highest_places, play, union

HEADER = "image,class,left,top,right,bottom\n"


def make_boxes(*boxes: tuple[int, int, list[float]]) -> Boxes:
    rows, columns, edges = zip(*boxes, strict=True)
    return Boxes(np.array(rows), np.array(columns), np.array(edges))


def test_position_of_the_maximum() -> None:
    maps = np.zeros((2, 1, 2, 4))
    maps[0, 0, 1, 3], maps[1, 0, 0, 0] = 5, -1
    assert highest_places(maps).tolist() == [[[0.875, 0.75]], [[0.375, 0.25]]]
    assert highest_places(np.zeros((3, 3))).tolist() == [1 / 6, 1 / 6]


def test_hits_are_counted_per_class() -> None:
    points = np.full((2, 3, 2), 0.5)
    points[1, 0] = [0.125, 0.875]
    boxes = make_boxes(
        (0, 0, [0.6, 0.0, 1.0, 1.0]),
        (0, 0, [0.4, 0.4, 0.6, 0.6]),  # one box of several is enough
        (1, 0, [0.0, 0.0, 0.5, 0.5]),  # x is inside, y is not
        (1, 1, [0.5, 0.5, 1.0, 1.0]),  # the left and top edges are inside
        (0, 1, [0.0, 0.0, 0.5, 0.5]),  # the right and bottom edges are outside
    )
    result = play(points, boxes)
    assert result.targets.tolist() == [2, 2, 0]
    assert result.hits.tolist() == [1, 1, 0]
    np.testing.assert_allclose(result.covered, [0.44 + 0.25, 0.5, 0])


def test_a_game_without_boxes() -> None:
    none = Boxes(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 4)))
    result = play(np.zeros((2, 3, 2)), none)
    assert result.targets.sum() == result.hits.sum() == result.covered.sum() == 0


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_union_equals_counting_grid_cells(seed: int, number: int) -> None:
    """On a grid of 8 x 8; boxes may extend beyond the image."""
    corners = np.random.default_rng(seed).integers(-3, 12, (number, 2, 2))
    edges = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    inside = sum(
        any(a <= x < c and b <= y < d for a, b, c, d in edges) for x in range(8) for y in range(8)
    )
    assert math.isclose(union(edges / 8), inside / 64)


def test_boxes_are_matched_and_scaled(tmp_path: Path) -> None:
    """Images that are not square, a rotated one, ids without extensions, and boxes to ignore."""
    rotated = Image.Exif()
    rotated[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "a.png")
    Image.new("RGB", (40, 20)).save(tmp_path / "b.jpg", exif=rotated)
    Image.new("RGB", (10, 10)).save(tmp_path / "other.png")
    assert upright_size(tmp_path / "a.png") == (40, 20)
    assert upright_size(tmp_path / "b.jpg") == (20, 40)
    lines = "a.png,dog,10,5,20,20\nother.png,dog,0,0,1,1\nb.jpg,cow,0,0,1,1\nb.jpg,cat,10,10,20,30"
    (tmp_path / "boxes.csv").write_text(HEADER + lines)
    table = LabelTable(["b", "a"], ["cat", "dog"], [[1, 0], [0, 1]])
    boxes = boxes_of(table, read_boxes(tmp_path / "boxes.csv"), ImageFiles(tmp_path))
    assert boxes.rows.tolist() == [1, 0]
    assert boxes.columns.tolist() == [1, 0]
    assert boxes.edges.tolist() == [[0.25, 0.25, 0.5, 1.0], [0.5, 0.25, 1.0, 0.75]]


def test_boxes_of_scenes(tmp_path: Path) -> None:
    labels = scenes.write(tmp_path / "s", 5, scenes.World(4, 32, 0))
    boxes = boxes_of(
        labels, read_boxes(tmp_path / "s" / "boxes.csv"), ImageFiles(tmp_path / "s" / "images")
    )
    present = np.zeros(labels.shape, dtype=bool)
    present[boxes.rows, boxes.columns] = True
    assert np.array_equal(present, labels.dense() == 1)
    per_image = scenes.make(5, 4, 32, 0).boxes
    expected = [[edge / 32 for edge in box[1:]] for image in per_image for box in image]
    assert boxes.edges.tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,class,left,top,right\na.png,dog,0,0,1\n", "line 1: the column 'bottom' is missing"),
        (HEADER + "a.png,dog,0,0,1,1\na.png,dog,0,x,1,1\n", "line 3, column 'top': 'x' is not"),
        (HEADER + "a.png,dog,0,0,nan,1\n", "line 2, column 'right': 'nan' is not allowed"),
        (HEADER + "a.png,dog,0,,1,1\n", "line 2, column 'top': '' is not allowed"),
        (HEADER + "a.png,dog,2,0,1,1\n", "line 2: a box must have left < right"),
        (HEADER + "a.png,dog,0,0,1\n", "line 2: 5 fields, but the header has 6"),
        (HEADER + "a.png,dog,0,0,1,1\nb.png,dog,0,0,1,1\n", "line 3: there is no image 'b.png' in"),
        (
            HEADER + "a.png,cow,0,0,1,1\n",
            "none of its classes, such as 'cow', is a class of the run",
        ),
        ("[]", "boxes are a text table"),
        ("", "the file is empty"),
    ],
)
def test_bad_files(text: str, message: str, tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "boxes.csv").write_text(text)
    table = LabelTable(["a.png"], ["dog"], [[1]])
    with pytest.raises(InputError, match=r"boxes\.csv") as caught:
        boxes_of(table, read_boxes(tmp_path / "boxes.csv"), ImageFiles(tmp_path))
    assert message in str(caught.value)
