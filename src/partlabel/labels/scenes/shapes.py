"""The appearance of objects: a shape and a pattern on it.

A shape is a function of the coordinates x and y, which range from about -1 to 1. It is positive
inside the shape, and its value is roughly the distance to the edge.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[Any]
Shape = Callable[[Plane, Plane], Plane]


def _disc(x: Plane, y: Plane) -> Plane:
    return 0.85 - np.hypot(x, y)


def _square(x: Plane, y: Plane) -> Plane:
    return 0.75 - np.maximum(np.abs(x), np.abs(y))


def _polygon(x: Plane, y: Plane, sides: int, radius: float) -> Plane:
    angles = 2 * np.pi * np.arange(sides) / sides
    edges = [x * np.cos(a) + y * np.sin(a) for a in angles.astype(np.float32)]
    return np.asarray(radius - np.maximum.reduce(edges))


def _triangle(x: Plane, y: Plane) -> Plane:
    return _polygon(x, y, 3, 0.5)


def _hexagon(x: Plane, y: Plane) -> Plane:
    return _polygon(x, y, 6, 0.78)


def _star(x: Plane, y: Plane) -> Plane:
    return np.asarray(0.62 + 0.27 * np.cos(5 * np.arctan2(y, x)) - np.hypot(x, y))


def _cross(x: Plane, y: Plane) -> Plane:
    x, y = np.abs(x), np.abs(y)
    return np.minimum(0.9 - np.maximum(x, y), 0.26 - np.minimum(x, y))


def _ring(x: Plane, y: Plane) -> Plane:
    return 0.2 - np.abs(np.hypot(x, y) - 0.66)


def _crescent(x: Plane, y: Plane) -> Plane:
    return np.minimum(0.9 - np.hypot(x, y), np.hypot(x - 0.5, y) - 0.7)


def _heart(x: Plane, y: Plane) -> Plane:
    tip = 0.75 - np.abs(x) - np.abs(y - 0.1)
    lobes = 0.44 - np.hypot(np.abs(x) - 0.38, y + 0.3)
    return np.maximum(tip, lobes)


def _arrow(x: Plane, y: Plane) -> Plane:
    head = np.minimum(x, 0.85 - x - np.abs(y) * 1.1)
    shaft = np.minimum(0.2 - np.abs(y), np.minimum(x + 0.9, 0.3 - x))
    return np.maximum(head, shaft)


SHAPES: dict[str, Shape] = {
    "disc": _disc,
    "star": _star,
    "square": _square,
    "crescent": _crescent,
    "triangle": _triangle,
    "ring": _ring,
    "cross": _cross,
    "heart": _heart,
    "hexagon": _hexagon,
    "arrow": _arrow,
}

PATTERNS: dict[str, Shape] = {
    "plain": lambda x, y: np.ones_like(x),
    "striped": lambda x, y: np.sin(9 * x),
    "checked": lambda x, y: np.sin(7 * x) * np.sin(7 * y),
    "dotted": lambda x, y: 0.35 - np.cos(8 * x) * np.cos(8 * y),
}
"""The object has its first colour where a pattern is positive, and its second colour elsewhere."""

KINDS = [
    (pattern, shape)
    for patterns in (("plain", "striped"), ("checked", "dotted"))
    for shape in SHAPES
    for pattern in patterns
]
"""Pattern and shape of each class; classes 2k and 2k + 1 differ only in their pattern."""

CLASSES = [f"{pattern}-{shape}" for pattern, shape in KINDS]
