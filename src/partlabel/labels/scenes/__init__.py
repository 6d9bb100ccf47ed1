"""Generated images with several objects each; all labels and boxes are known.

This data comes with the package, for examples and tests, and is hard enough that methods differ.
Classes co-occur because they prefer certain backgrounds, and some are much rarer than others.
Objects are small, hide each other, and lie among clutter.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from partlabel.base.errors import InputError
from partlabel.base.files import atomic_folder
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.labels.formats import write_labels
from partlabel.labels.formats.boxes import write_boxes
from partlabel.labels.scenes.picture import Box, World, draw
from partlabel.labels.scenes.shapes import CLASSES

__all__ = ["CLASSES", "Box", "Scenes", "World", "make", "write"]


class Scenes(NamedTuple):
    """Images [n, size, size, 3], their labels (all known), and the visible objects of each."""

    pictures: NDArray[np.uint8]
    labels: LabelTable
    boxes: list[list[Box]]


def make(
    n: int,
    classes: int = 20,
    size: int = 64,
    seed: int = 0,
    *,
    difficulty: float = 0.5,
    objects: float = 3.5,
    tail: float = 0.6,
    context: float = 4.0,
    test: float = 0.0,
) -> Scenes:
    """Make ``n`` images; image i depends on the seed and the settings, not on ``n``.

    Args:
        classes, size, seed, difficulty, objects, tail, context: see :class:`World`.
        test: share of the images in the split ``test``; the others are in ``train``. With 0 the
            table has no splits.

    >>> pictures, labels, boxes = make(2, classes=8, size=32, seed=0)
    >>> pictures.shape, labels.known
    ((2, 32, 32, 3), 1.0)
    >>> labels.dense()[0, boxes[0][0].label]
    np.int8(1)
    """
    world = World(classes, size, seed, difficulty, objects, tail, context)
    _check_settings(n, world, test)
    pictures = np.empty((n, size, size, 3), dtype=np.uint8)
    boxes = []
    for number in range(n):
        pictures[number], visible = draw(world, number)
        boxes.append(visible)
    return Scenes(pictures, _labels(world, boxes, test), boxes)


def write(
    folder: str | os.PathLike[str],
    n: int,
    world: World,
    test: float = 0.25,
    done: Callable[[int], object] = int,
) -> LabelTable:
    """Make images and write ``folder/images``, ``folder/labels.csv`` and ``folder/boxes.csv``.

    Args:
        folder: a new or an empty folder.
        n: number of images.
        world: the settings of the images.
        test: share of the images in the split ``test``.
        done: called after each image with the number of images so far.
    """
    _check_settings(n, world, test)
    boxes = []
    with atomic_folder(folder) as new_folder:
        (new_folder / "images").mkdir()
        for number in range(n):
            picture, visible = draw(world, number)
            boxes.append(visible)
            Image.fromarray(picture).save(new_folder / "images" / _name(number), compress_level=1)
            done(number + 1)
        labels = _labels(world, boxes, test)
        write_labels(labels, new_folder / "labels.csv", "csv")
        _write_boxes(new_folder / "boxes.csv", boxes)
    return labels


def _check_settings(n: int, world: World, test: float) -> None:
    limits = {
        "count": (n, 0, 10**9),
        "classes": (world.classes, 1, len(CLASSES)),
        "size": (world.size, 8, 8192),
        "difficulty": (world.difficulty, 0, 1),
        "objects": (world.objects, 1, 100),
        "tail": (world.tail, 0, 10),
        "context": (world.context, 1, 1e6),
        "test": (test, 0, 1),
    }
    for name, (value, low, high) in limits.items():
        if not low <= value <= high:
            raise InputError(f"scenes: {name} is {value}; it must be between {low} and {high:g}")


def _labels(world: World, boxes: list[list[Box]], test: float) -> LabelTable:
    matrix = np.full((len(boxes), world.classes), ABSENT, dtype=np.int8)
    for number, visible in enumerate(boxes):
        matrix[number, [box.label for box in visible]] = PRESENT
    test_size = round(test * len(boxes))
    splits = ["train"] * (len(boxes) - test_size) + ["test"] * test_size if test_size else None
    names = [_name(number) for number in range(len(boxes))]
    return LabelTable(names, CLASSES[: world.classes], matrix, splits)


def _name(number: int) -> str:
    return f"{number:06d}.png"


def _write_boxes(path: Path, boxes: list[list[Box]]) -> None:
    records = (
        [_name(number), CLASSES[box.label], *box[1:]]
        for number, visible in enumerate(boxes)
        for box in visible
    )
    write_boxes(path, records)
