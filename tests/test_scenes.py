"""Generated images are reproducible, match their boxes, and follow their settings."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from partlabel import read_labels
from partlabel.base.errors import InputError
from partlabel.labels import scenes
from partlabel.labels.scenes import CLASSES, World


def test_an_image_depends_only_on_seed_and_number() -> None:
    few, many = scenes.make(3, 8, 48, seed=4), scenes.make(10, 8, 48, seed=4)
    assert np.array_equal(few.pictures, many.pictures[:3])
    assert few.boxes == many.boxes[:3]
    assert few.labels == many.labels.subset([0, 1, 2])
    other = scenes.make(3, 8, 48, seed=5)
    assert not np.array_equal(few.pictures, other.pictures)
    assert scenes.make(2, 8, 48, seed=-1).labels.known == 1.0


@pytest.mark.parametrize(("classes", "size"), [(1, 8), (8, 31), (40, 64), (20, 200)])
def test_labels_are_the_classes_of_the_boxes(classes: int, size: int) -> None:
    pictures, labels, boxes = scenes.make(20, classes, size, seed=0)
    assert pictures.shape == (20, size, size, 3)
    assert pictures.dtype == np.uint8
    assert labels.classes == CLASSES[:classes]
    assert labels.known == 1.0
    for row, visible in zip(labels.dense(), boxes, strict=True):
        assert set(np.flatnonzero(row == 1)) == {box.label for box in visible}
        for box in visible:
            assert 0 <= box.left < box.right <= size
            assert 0 <= box.top < box.bottom <= size


def test_objects_are_where_their_boxes_are() -> None:
    """Without clutter and noise, the image is smooth outside all boxes."""
    pictures, _, boxes = scenes.make(30, 20, 96, seed=1, difficulty=0.0)
    for picture, visible in zip(pictures.astype(float), boxes, strict=True):
        outside = np.ones((96, 96), dtype=bool)
        for box in visible:
            outside[
                box.top - 1 if box.top else 0 : box.bottom + 1, max(box.left - 1, 0) : box.right + 1
            ] = False
        steps = np.abs(np.diff(picture, axis=1)).max(axis=2)
        both_outside = outside[:, 1:] & outside[:, :-1]
        slivers = [box for box in visible if box.right - box.left < 3]  # may reach beyond the box
        assert slivers or np.mean(steps[both_outside] > 12) < 0.06


def test_the_forty_classes_differ() -> None:
    assert len(set(CLASSES)) == 40


def test_rare_classes_and_co_occurrence() -> None:
    labels = scenes.make(1500, 12, 32, seed=0).labels
    present = labels.dense() == 1
    share = present.mean(axis=0)
    assert share.max() > 2.5 * share.min()
    flat = scenes.make(1500, 12, 32, seed=0, tail=0.0, context=1.0).labels.dense() == 1
    assert flat.mean(axis=0).max() < 1.5 * flat.mean(axis=0).min()

    def lift(matrix: "np.typing.NDArray[np.bool_]") -> float:
        together = (matrix.T.astype(float) @ matrix) / len(matrix)
        expected = np.outer(matrix.mean(axis=0), matrix.mean(axis=0))
        ratio = together / expected
        return float(ratio[~np.eye(len(ratio), dtype=bool)].max())

    assert lift(present) > lift(flat) + 0.3


def test_difficulty_makes_objects_smaller() -> None:
    def mean_width(difficulty: float) -> float:
        boxes = scenes.make(100, 20, 64, seed=0, difficulty=difficulty).boxes
        return float(np.mean([box.right - box.left for visible in boxes for box in visible]))

    assert mean_width(1.0) < mean_width(0.5) < mean_width(0.0)


def test_write_gives_the_images_and_labels_of_make(tmp_path: Path) -> None:
    world = World(8, 32, seed=3)
    labels = scenes.write(tmp_path / "s", 12, world, test=0.25)
    made = scenes.make(12, 8, 32, seed=3, test=0.25)
    assert labels == made.labels == read_labels(tmp_path / "s" / "labels.csv")
    assert labels.in_split("test").sum() == 3
    for number, name in enumerate(labels.ids):
        picture = np.asarray(Image.open(tmp_path / "s" / "images" / name))
        assert np.array_equal(picture, made.pictures[number])
    with (tmp_path / "s" / "boxes.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == sum(map(len, made.boxes))
    assert rows[0]["class"] == CLASSES[made.boxes[0][0].label]
    with pytest.raises(InputError, match="not an empty folder"):
        scenes.write(tmp_path / "s", 1, world)
    assert read_labels(tmp_path / "s" / "labels.csv") == labels


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": 41}, "classes is 41; it must be between 1 and 40"),
        ({"size": 4}, "size is 4"),
        ({"difficulty": 1.5}, "difficulty is 1.5"),
        ({"test": -0.1}, "test is -0.1"),
        ({"n": -1}, "count is -1"),
    ],
)
def test_settings_out_of_range(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scenes.make(**({"n": 1} | arguments))  # type: ignore[arg-type]
