"""Boxes around objects: ``image,class,left,top,right,bottom``, in pixels of the upright picture."""

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
    """What a file of boxes says, in its order.

    Args:
        path: the file.
        images, classes: the names in it, each once.
        image, label: [n] the image and the class of each box, as places in these.
        edges: [n, 4] left, top, right and bottom in pixels, right and bottom outside.
        line: says where in the file a box is.
    """

    path: Path
    images: list[str]
    classes: list[str]
    image: NDArray[np.int32]
    label: NDArray[np.int32]
    edges: NDArray[np.float64]
    line: Callable[[int], str]


def read_boxes(path: str | os.PathLike[str]) -> BoxFile:
    """Read a file of boxes, which may have further columns; a mistake is an error with its line."""
    source = Source(path)
    if source.kind != "text":
        raise source.error("boxes are a text table: image,class," + ",".join(_EDGES))
    text = read_delimited(source)
    image, label = text.column("image"), text.column("class")
    edges = _edges(text)
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


def _edges(text: Delimited) -> NDArray[np.float64]:
    columns = [text.column(name) for name in _EDGES]
    parsed = [[_number(value) for value in text.values(column)] for column in columns]
    wrong = {
        column: {v for v, n in zip(text.values(column), numbers, strict=True) if math.isnan(n)}
        for column, numbers in zip(columns, parsed, strict=True)
    }
    text.check(wrong, "expected a number of pixels")
    found = [
        np.array(numbers or [0.0])[text.codes(column)]
        for column, numbers in zip(columns, parsed, strict=True)
    ]
    return np.stack(found, axis=1)


def _number(value: str) -> float:
    """A finite number, NaN for anything else."""
    try:
        number = float(value)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
