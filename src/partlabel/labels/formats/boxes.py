"""Boxes around objects: ``image,class,left,top,right,bottom``, in pixels of the upright image."""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.labels.formats.delimited import Delimited, read_delimited, write_delimited
from partlabel.labels.formats.source import Source

_EDGES = ["left", "top", "right", "bottom"]


@dataclass(frozen=True)
class BoxFile:
    """The boxes of a file, in its order.

    Args:
        path: the file.
        images, classes: the names in the file, each once.
        image, label: [n] the image and the class of each box, as positions in these lists.
        edges: [n, 4] left, top, right and bottom in pixels; right and bottom are exclusive.
        line: returns the location of a box in the file.
    """

    path: Path
    images: list[str]
    classes: list[str]
    image: NDArray[np.int32]
    label: NDArray[np.int32]
    edges: NDArray[np.float64]
    line: Callable[[int], str]


def read_boxes(path: str | os.PathLike[str]) -> BoxFile:
    """Read a file of boxes; other columns are ignored, and a mistake is an error with its line."""
    source = Source(path)
    if source.kind != "text":
        raise source.error("boxes are a text table: image,class," + ",".join(_EDGES))
    text = read_delimited(source)
    image, label = text.column("image"), text.column("class")
    edges = _read_edges(text)
    empty = np.flatnonzero((edges[:, :2] >= edges[:, 2:]).any(axis=1))
    if len(empty):
        raise source.error(
            "a box must have left < right and top < bottom", text.line(int(empty[0]))
        )
    return BoxFile(
        source.path,
        text.values(image),
        text.values(label),
        text.codes(image),
        text.codes(label),
        edges,
        text.line,
    )


def write_boxes(path: Path, boxes: Iterable[Iterable[object]]) -> None:
    """Write boxes, each as image, class, left, top, right, bottom."""
    write_delimited(path, ["image", "class", *_EDGES], boxes)


def _read_edges(text: Delimited) -> NDArray[np.float64]:
    """[n, 4] the edges of all boxes; a text that is no number is an error."""
    edges = []
    invalid: dict[int, set[str]] = {}
    for name in _EDGES:
        column = text.column(name)
        texts = text.values(column)
        numbers = [_finite_number(value) for value in texts]
        invalid[column] = {t for t, n in zip(texts, numbers, strict=True) if math.isnan(n)}
        edges.append(np.array(numbers or [0.0])[text.codes(column)])
    text.reject_first(invalid, "expected a number of pixels")
    return np.stack(edges, axis=1)


def _finite_number(text: str) -> float:
    """The finite number that a text stands for, NaN for any other text."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
