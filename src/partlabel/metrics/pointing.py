"""The pointing game: does the highest place of a class map lie on an object of the class?

[1] Zhang et al., Top-down Neural Attention by Excitation Backprop, ECCV 2016.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError, InputError, some
from partlabel.images.folder import ImageFiles, upright_size
from partlabel.labels import LabelTable
from partlabel.labels.formats.boxes import BoxFile

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Boxes:
    """Boxes of a table's classes in its pictures.

    Args:
        rows, columns: [b] the picture and the class of each box.
        edges: [b, 4] left, top, right and bottom as shares of the picture's width and height.
    """

    rows: Places
    columns: Places
    edges: Numbers

    def compact(self) -> tuple[Places, "Boxes"]:
        """The pictures that have a box, and the boxes of these alone."""
        kept, rows = np.unique(self.rows, return_inverse=True)
        return kept, Boxes(rows, self.columns, self.edges)

    def targets(self) -> tuple[Places, Places]:
        """[t, 2] the picture and class of each target, and [b] the target of each box."""
        pairs = np.stack([self.rows, self.columns], axis=1)
        found, target = np.unique(pairs, axis=0, return_inverse=True)
        return found, target.reshape(-1)


@dataclass(frozen=True)
class Pointing:
    """How a game went, class by class [C].

    Args:
        targets: pictures with a box of the class.
        hits: those of them whose highest place lies in such a box.
        covered: the sum of the shares of these pictures that boxes of the class cover: as many
            hits are expected of places chosen at random.
    """

    targets: Places
    hits: Places
    covered: Numbers


def highest_places(maps: NDArray[Any]) -> Numbers:
    """The centre of the highest place of each map; of equal ones the first.

    Args:
        maps: [..., H, W]

    Returns:
        [..., 2] how far right and how far down it is, as shares of width and height.

    >>> highest_places(np.array([[0, 0, 0, 9], [0, 0, 0, 0]])).tolist()
    [0.875, 0.25]
    """
    height, width = maps.shape[-2:]
    down, right = np.divmod(maps.reshape(*maps.shape[:-2], -1).argmax(axis=-1), width)
    return np.stack([(right + 0.5) / width, (down + 0.5) / height], axis=-1)


def union(edges: Numbers) -> float:
    """The share of a picture that boxes [b, 4] cover together, what lies outside cut off.

    >>> union(np.array([[0, 0, 0.5, 0.5], [0.25, 0, 0.75, 0.5], [0.9, 0.5, 1.5, 1]]))
    0.425
    """
    left, top, right, bottom = np.clip(edges, 0, 1).T
    x, y = np.unique([left, right]), np.unique([top, bottom])
    across = (left[:, None] <= x[:-1]) & (x[:-1] < right[:, None])
    along = (top[:, None] <= y[:-1]) & (y[:-1] < bottom[:, None])
    inside = (along[:, :, None] & across[:, None, :]).any(axis=0)
    return float((inside * np.diff(y)[:, None] * np.diff(x)).sum())


def play(points: Numbers, boxes: Boxes) -> Pointing:
    """Count hits.

    Args:
        points: [n, C, 2] see :func:`highest_places`.
        boxes: of these pictures and classes.
    """
    targets, target = boxes.targets()
    x, y = points[boxes.rows, boxes.columns].T
    left, top, right, bottom = boxes.edges.T
    inside = (left <= x) & (x < right) & (top <= y) & (y < bottom)
    hit = np.bincount(target, inside, len(targets)) > 0
    ends = np.bincount(target, minlength=len(targets)).cumsum()
    together = np.split(boxes.edges[np.argsort(target, kind="stable")], ends[:-1])
    classes, column = points.shape[1], targets[:, 1]
    covered = np.zeros(classes)
    np.add.at(covered, column, [union(edges) for edges in together[: len(targets)]])
    return Pointing(
        np.bincount(column, minlength=classes),
        np.bincount(column[hit], minlength=classes),
        covered,
    )


def boxes_of(table: LabelTable, stated: BoxFile, files: ImageFiles) -> Boxes:
    """The boxes of those pictures and classes that are in a table.

    An image of the file that has no picture is an error; pictures and classes that the table does
    not have are passed over.
    """
    found = files.locate(stated.images)
    for number, path in enumerate(found):
        if path is None:
            where = stated.line(int(np.flatnonzero(stated.image == number)[0]))
            message = f"there is no image '{stated.images[number]}' in {files.folder}"
            raise FileError(stated.path, message, where)
    paths = files.locate(table.ids)
    place = {path: row for row, path in enumerate(paths)}
    row = np.array([place.get(path, -1) for path in found], dtype=np.int64)[stated.image]
    column = table.classes.find(stated.classes)[stated.label]
    if len(column) and (column < 0).all():
        raise InputError(
            f"{stated.path}: none of its classes, such as {some(stated.classes)}, is one of the "
            f"run's, such as {some(table.classes[:3])}; names must be the same"
        )
    used = (row >= 0) & (column >= 0)
    if not used.any():
        raise InputError(
            f"{stated.path}: has no box of a class of the run's in the {len(table):,} training and "
            "validation images that are looked at"
        )
    rows = np.unique(row[used])
    sizes = np.ones((len(table), 2))
    for here in rows.tolist():
        path = paths[here]
        assert path is not None
        sizes[here] = upright_size(path)
    return Boxes(row[used], column[used], stated.edges[used] / np.tile(sizes[row[used]], 2))
