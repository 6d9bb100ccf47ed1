"""The pictures of one run: its curves, its classes, its scores, its images."""

import base64
import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, StrMethodFormatter
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from partlabel.images.pictures import BrokenPictureError, read_picture
from partlabel.labels import ABSENT, PRESENT
from partlabel.output.drawing import AMBER, BLUE, GREEN, GREY, INK, panels, styled, svg

# columns of the log that are no cost, or have a place of their own in the report
_NO_COST = {
    "epoch",
    "stage",
    "lr",
    "val_mAP",
    "ema_val_mAP",
    "images_per_second",
    "positives",
    "pseudo_labels",
    "label_share",
    "sure",
}


def learning_curves(history: list[dict[str, float]]) -> str:
    """Loss and its parts, and validation mAP, over epochs."""
    with styled():
        figure, (left, right) = panels(1, 2, 9, 2.8)
        epochs = [line["epoch"] for line in history]
        for name in dict.fromkeys(name for line in history for name in line):
            values = [line.get(name, np.nan) for line in history]
            if name not in _NO_COST:
                left.plot(epochs, values, label=name, lw=2)
            elif name.endswith("val_mAP"):
                right.plot(epochs, [100 * v for v in values], label=name, lw=2, marker=".")
        left.set(xlabel="epoch", title="cost")
        right.set(xlabel="epoch", title="validation mAP (%)")
        for axes in (left, right):
            axes.legend()
        return svg(figure)


def precision_recall(
    scores: NDArray[Any], labels: NDArray[Any], classes: list[str], ap: NDArray[Any], most: int = 12
) -> str:
    """Precision over recall for the classes with the most positives."""
    positives = (labels == PRESENT).sum(axis=0)
    shown = [int(j) for j in np.argsort(-positives, kind="stable")[:most] if not np.isnan(ap[j])]
    if not shown:
        return ""
    with styled():
        columns = min(4, len(shown))
        rows = -(-len(shown) // columns)
        figure, grid = panels(rows, columns, 2.3 * columns, 1.9 * rows)
        for axes, j in zip(grid, shown, strict=False):
            known = labels[:, j] != 0
            order = np.argsort(-scores[known, j], kind="stable")
            right = (labels[known, j] == PRESENT)[order]
            hits = np.cumsum(right)
            axes.plot(hits / hits[-1], hits / np.arange(1, len(hits) + 1), color=BLUE, lw=1.8)
            axes.set_title(f"{classes[j]}  {100 * ap[j]:.0f}", fontsize=9)
            axes.set(xlim=(0, 1), ylim=(0, 1.03))
        for axes in grid[len(shown) :]:
            axes.axis("off")
        figure.supxlabel("recall", fontsize=9, color=INK)
        figure.supylabel("precision", fontsize=9, color=INK)
        return svg(figure)


def score_histogram(
    train: tuple[NDArray[Any], NDArray[Any]], val: tuple[NDArray[Any], NDArray[Any]]
) -> str:
    """How scores are spread among present, absent and unknown labels of training images.

    Below that, if there are any, among present and absent labels of validation images.

    Args:
        train, val: scores and labels, both [n, C].
    """
    kinds = [("present", PRESENT, GREEN), ("absent", ABSENT, GREY), ("unknown", 0, AMBER)]
    rows = [("training", *train, kinds), ("validation", *val, kinds[:2])]
    rows = [row for row in rows if len(row[1])]
    with styled():
        figure, grid = panels(len(rows), 3, 9, 2.2 * len(rows))
        for number, (images, scores, labels, shown) in enumerate(rows):
            line = grid[3 * number : 3 * number + 3]
            line[0].set_ylabel(images)
            for axes, (name, value, colour) in zip(line, shown, strict=False):
                _histogram(axes, scores[labels == value], name, colour)
            for axes in line[len(shown) :]:
                axes.axis("off")
        return svg(figure)


def _histogram(axes: Axes, scores: NDArray[Any], name: str, colour: str) -> None:
    axes.hist(scores, bins=40, range=(0, 1), color=colour)
    axes.set(
        title=f"{name} ({len(scores):,})",
        xlabel="score",
        yscale="log" if len(scores) else "linear",
    )
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def thumbnail(path: Path, size: int = 144) -> str:
    """An image as a data address; empty if it cannot be decoded."""
    try:
        return data_address(read_picture(path, size))
    except BrokenPictureError:
        return ""


def data_address(pixels: Tensor) -> str:
    """A picture [3, H, W] in uint8 as a data address."""
    stream = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(stream, format="JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()


def overlay(picture: Tensor, heat: Tensor) -> Tensor:
    """A picture [3, S, S] in uint8, almost grey, under the colours of a heat map [H, W].

    Where the map is 0 the picture is all there is to see, where it is 1 it just shines through.
    """
    size = picture.shape[1:]
    spread = interpolate(heat[None, None], size, mode="bilinear", align_corners=False)[0, 0]
    colours = mpl.colormaps["turbo"](0.3 + 0.58 * spread.numpy())[..., :3]
    colour = torch.from_numpy(colours).permute(2, 0, 1).float() * 255
    pale = 0.3 * picture + 0.7 * picture.float().mean(dim=0)
    return torch.lerp(pale, colour, 0.7 * spread.sqrt()).round().to(torch.uint8)
