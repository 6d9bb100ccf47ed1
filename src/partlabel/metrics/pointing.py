"""The pointing game: does the maximum of a class map lie on an object of the class?

[1] Zhang et al., Top-down Neural Attention by Excitation Backprop, ECCV 2016.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError, InputError, some
from partlabel.images.collection import Images
from partlabel.images.folder import upright_size
from partlabel.labels import LabelTable
from partlabel.labels.formats.boxes import BoxFile

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Boxes:
    """Boxes around objects of a table's classes in its images.

    Args:
        rows, columns: [b] the image and the class of each box, as rows and columns of the table.
        edges: [b, 4] left, top, right and bottom, relative to the width and height of the image.
    """

    rows: Indices
    columns: Indices
    edges: Numbers

    def compact(self) -> tuple[Indices, "Boxes"]:
        """The images [i] that have a box, and the boxes with rows that count only these images."""
        kept, rows = np.unique(self.rows, return_inverse=True)
        return kept, Boxes(rows, self.columns, self.edges)

    def targets(self) -> tuple[Indices, Indices]:
        """The image and class of each target [t, 2], and the target of each box [b].

        A target is an image together with a class that has at least one box in it.
        """
        pairs = np.stack([self.rows, self.columns], axis=1)
        targets, target_of_box = np.unique(pairs, axis=0, return_inverse=True)
        return targets, target_of_box.reshape(-1)


@dataclass(frozen=True)
class Pointing:
    """The result of a pointing game per class.

    Args:
        targets: [C] number of images with a box of the class.
        hits: [C] number of these images whose class map has its maximum inside such a box.
        covered: [C] expected number of hits of a point drawn at random: the share of an image that
            is covered by boxes of the class, summed over these images.
    """

    targets: Indices
    hits: Indices
    covered: Numbers


def highest_places(maps: NDArray[Any]) -> Numbers:
    """The position of the maximum of each map. If there are several, the first one.

    Args:
        maps: [..., H, W]

    Returns:
        [..., 2] x and y of the centre of the map cell, relative to width and height.

    >>> highest_places(np.array([[0, 0, 0, 9], [0, 0, 0, 0]])).tolist()
    [0.875, 0.25]
    """
    height, width = maps.shape[-2:]
    down, right = np.divmod(maps.reshape(*maps.shape[:-2], -1).argmax(axis=-1), width)
    return np.stack([(right + 0.5) / width, (down + 0.5) / height], axis=-1)


def union(edges: Numbers) -> float:
    """The share of an image that boxes cover together. Parts outside the image are cut off.

    Args:
        edges: [b, 4] see :class:`Boxes`.

    >>> union(np.array([[0, 0, 0.5, 0.5], [0.25, 0, 0.75, 0.5], [0.9, 0.5, 1.5, 1]]))
    0.425
    """
    left, top, right, bottom = np.clip(edges, 0, 1).T
    x, y = np.unique([left, right]), np.unique([top, bottom])
    # the edges of all boxes cut the image into a grid; each cell of it is covered or not
    inside_x = (left[:, None] <= x[:-1]) & (x[:-1] < right[:, None])
    inside_y = (top[:, None] <= y[:-1]) & (y[:-1] < bottom[:, None])
    inside = (inside_y[:, :, None] & inside_x[:, None, :]).any(axis=0)
    return float((inside * np.diff(y)[:, None] * np.diff(x)).sum())


def play(points: Numbers, boxes: Boxes) -> Pointing:
    """Count the targets whose point lies inside one of their boxes.

    Args:
        points: [n, C, 2] see :func:`highest_places`.
        boxes: boxes of these n images and C classes.
    """
    targets, target_of_box = boxes.targets()
    x, y = points[boxes.rows, boxes.columns].T
    left, top, right, bottom = boxes.edges.T
    inside = (left <= x) & (x < right) & (top <= y) & (y < bottom)
    hit = np.bincount(target_of_box, inside, len(targets)) > 0
    ends = np.bincount(target_of_box, minlength=len(targets)).cumsum()
    by_target = np.split(boxes.edges[np.argsort(target_of_box, kind="stable")], ends[:-1])
    classes, column = points.shape[1], targets[:, 1]
    covered = np.zeros(classes)
    np.add.at(covered, column, [union(edges) for edges in by_target[: len(targets)]])
    return Pointing(
        np.bincount(column, minlength=classes),
        np.bincount(column[hit], minlength=classes),
        covered,
    )


def boxes_of(table: LabelTable, box_file: BoxFile, files: Images) -> Boxes:
    """The boxes of a file whose image and class are in a table.

    Other boxes are ignored. An error is raised for a box whose image does not exist.
    """
    box_paths = files.locate(box_file.images)
    for number, path in enumerate(box_paths):
        if path is None:
            where = box_file.line(int(np.flatnonzero(box_file.image == number)[0]))
            message = f"there is no image '{box_file.images[number]}' in {files.where}"
            raise FileError(box_file.path, message, where)
    paths = files.locate(table.ids)
    row_of = {path: row for row, path in enumerate(paths)}
    row = np.array([row_of.get(path, -1) for path in box_paths], dtype=np.int64)[box_file.image]
    column = table.classes.find(box_file.classes)[box_file.label]
    if len(column) and (column < 0).all():
        raise InputError(
            f"{box_file.path}: none of its classes, such as {some(box_file.classes)}, is a class "
            f"of the run, such as {some(table.classes[:3])}; names must be the same"
        )
    used = (row >= 0) & (column >= 0)
    if not used.any():
        raise InputError(
            f"{box_file.path}: has no box of a class of the run in the {len(table):,} training and "
            "validation images that the report uses"
        )
    sizes = np.ones((len(table), 2))
    for i in np.unique(row[used]).tolist():
        path = paths[i]
        assert path is not None
        sizes[i] = upright_size(path)
    return Boxes(row[used], column[used], box_file.edges[used] / np.tile(sizes[row[used]], 2))
