"""Drawing one image: a background, some objects, and clutter behind and in front of them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from partlabel.base.randomness import key
from partlabel.labels.scenes.shapes import KINDS, PATTERNS, SHAPES

Canvas = NDArray[np.float32]

_CONTEXTS = np.array(  # colours at the top and at the bottom of the four backgrounds
    [
        [[0.55, 0.75, 0.95], [0.35, 0.60, 0.30]],
        [[0.85, 0.80, 0.70], [0.60, 0.45, 0.35]],
        [[0.15, 0.18, 0.35], [0.30, 0.28, 0.40]],
        [[0.70, 0.85, 0.90], [0.80, 0.75, 0.55]],
    ],
    dtype=np.float32,
)
_VISIBLE = 0.35  # share of an object that must be visible for its class to be present


class Box(NamedTuple):
    """The class and the visible part of an object, in pixels; right and bottom are exclusive."""

    label: int
    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True)
class World:
    """The settings of a collection of images.

    Args:
        classes: number of classes, at most 40.
        size: width and height in pixels.
        seed: another seed gives other images with the same settings.
        difficulty: from 0 (large clean objects) to 1 (small, rotated, cluttered, noisy).
        objects: mean number of objects per image; there is always at least one.
        tail: how unequal the class frequencies are. Relative to the most frequent class, the class
            of rank k = 0, 1, 2, ... has the frequency (k + 1)^-tail.
        context: how many times as likely an object is on its preferred background as on another.
    """

    classes: int
    size: int
    seed: int
    difficulty: float = 0.5
    objects: float = 3.5
    tail: float = 0.6
    context: float = 4.0

    def odds(self) -> NDArray[np.float64]:
        """[backgrounds, classes] the probability that an object is of a class, per background."""
        label = np.arange(self.classes)
        # shuffled, so that the frequency does not depend on the shape
        rank = np.argsort((label * 7 + 3) % 41, kind="stable").argsort()
        frequency = (rank + 1.0) ** -self.tail
        preferred = (label // 2 + label % 2) % len(_CONTEXTS)
        weight = np.where(preferred == np.arange(len(_CONTEXTS))[:, None], self.context, 1.0)
        odds = frequency * weight
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def draw(world: World, number: int) -> tuple[NDArray[np.uint8], list[Box]]:
    """Image ``number`` of a world, [size, size, 3], and its visible objects, back to front."""
    rng = np.random.default_rng([world.seed & (2**64 - 1), key("scene", number)])
    context = int(rng.integers(len(_CONTEXTS)))
    canvas = _background(rng, context, world)
    owner = np.full((world.size, world.size), -1, dtype=np.int16)
    areas: list[int] = []
    count = 1 + rng.poisson(max(world.objects - 1, 0))
    labels = rng.choice(world.classes, size=count, p=world.odds()[context])
    _draw_clutter(rng, canvas, owner, world, rng.poisson(12 * world.difficulty))
    for label in labels:
        areas.append(_draw_object(rng, canvas, owner, world, int(label), len(areas)))
    _draw_clutter(rng, canvas, owner, world, rng.poisson(6 * world.difficulty))
    canvas += rng.normal(0, 0.08 * world.difficulty, canvas.shape).astype(np.float32)
    picture = (np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8)
    return picture, _visible_boxes(owner, areas, labels.tolist())


def _background(rng: np.random.Generator, context: int, world: World) -> Canvas:
    top, bottom = _CONTEXTS[context]
    depth = np.linspace(0, 1, world.size, dtype=np.float32)[:, None, None]
    canvas = np.broadcast_to(top + (bottom - top) * depth, (world.size, world.size, 3)).copy()
    coarse = Image.fromarray(rng.integers(0, 256, (6, 6), dtype=np.uint8))
    texture = np.asarray(coarse.resize((world.size, world.size), Image.Resampling.BICUBIC))
    canvas += (texture[:, :, None].astype(np.float32) / 255 - 0.5) * 0.4 * world.difficulty
    canvas += rng.uniform(-0.08, 0.08, 3).astype(np.float32)
    return canvas


def _draw_object(
    rng: np.random.Generator,
    canvas: Canvas,
    owner: NDArray[np.int16],
    world: World,
    label: int,
    number: int,
) -> int:
    """Draw an object, set the owner of its pixels to ``number``, and return its area."""
    smallest = 0.20 - 0.09 * world.difficulty
    radius = max(world.size * rng.uniform(smallest, smallest + 0.12), 2.0)
    centre = rng.uniform(radius * 0.6, world.size - radius * 0.6, 2)
    angle = rng.uniform(-np.pi, np.pi) * min(1.0, 2 * world.difficulty)
    colours = _two_colours(rng)
    left, top = np.maximum(np.floor(centre - radius), 0).astype(int)
    right, bottom = np.minimum(np.ceil(centre + radius), world.size).astype(int)
    x = (np.arange(left, right, dtype=np.float32) + 0.5 - centre[0])[None, :] / radius
    y = (np.arange(top, bottom, dtype=np.float32) + 0.5 - centre[1])[:, None] / radius
    cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    x, y = x * cos + y * sin, y * cos - x * sin
    pattern, shape = KINDS[label]
    cover = np.clip(SHAPES[shape](x, y).astype(np.float32) * np.float32(radius) + 0.5, 0, 1)
    colour = colours[(PATTERNS[pattern](x, y) <= 0).astype(np.intp)]
    patch = canvas[top:bottom, left:right]
    patch += (colour - patch) * cover[:, :, None]
    inside = cover > 0.5
    owner[top:bottom, left:right][inside] = number
    return int(inside.sum())


def _two_colours(rng: np.random.Generator) -> Canvas:
    """Two clearly different colours [2, 3]."""
    first = rng.uniform(0, 1, 3)
    second = np.where(first > 0.5, first - rng.uniform(0.35, 0.6), first + rng.uniform(0.35, 0.6))
    return np.asarray(np.clip([first, second], 0, 1), dtype=np.float32)


def _draw_clutter(
    rng: np.random.Generator, canvas: Canvas, owner: NDArray[np.int16], world: World, number: int
) -> None:
    """Draw small rectangles that belong to no class and hide what is behind them."""
    limit = max(2, world.size // 9)
    positions = rng.integers(0, world.size, (number, 2))
    sizes = rng.integers(1, limit + 1, (number, 2))
    colours = rng.uniform(0, 1, (number, 3)).astype(np.float32)
    for (x, y), (width, height), colour in zip(positions, sizes, colours, strict=True):
        canvas[y : y + height, x : x + width] = colour
        owner[y : y + height, x : x + width] = -1


def _visible_boxes(owner: NDArray[np.int16], areas: list[int], labels: list[int]) -> list[Box]:
    """The boxes of the sufficiently visible objects; ``areas`` are the areas of whole objects."""
    boxes = []
    for number, (area, label) in enumerate(zip(areas, labels, strict=True)):
        visible = owner == number
        if visible.sum() < max(_VISIBLE * area, 4):
            continue
        rows, columns = np.flatnonzero(visible.any(axis=1)), np.flatnonzero(visible.any(axis=0))
        edges = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
        boxes.append(Box(label, *(int(edge) for edge in edges)))
    return boxes
