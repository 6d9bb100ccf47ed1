"""Charts of scores by kind of label.

Charts that compare runs take one entry per run by name: the baseline first, if there is one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.calibration import logits
from partlabel.output.drawing import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    bars,
    panels,
    run_colours,
    styled,
    svg,
)
from partlabel.output.report.analysis import Kinds, Numbers, mean_of

_MOST_DENSE = 8.0  # densities are cut off here: one narrow peak would flatten all others


def score_histogram(
    train: tuple[NDArray[Any], NDArray[Any]], val: tuple[NDArray[Any], NDArray[Any]]
) -> str:
    """Histograms of the scores of present, absent and unknown labels.

    One row for training images and, if there are any, one for validation images.

    Args:
        train, val: scores and labels, both [n, C].
    """
    kinds = [("present", PRESENT, GREEN), ("absent", ABSENT, GREY), ("unknown", 0, AMBER)]
    rows = [("training", *train, kinds), ("validation", *val, kinds[:2])]
    rows = [row for row in rows if len(row[1])]
    with styled():
        figure, grid = panels(len(rows), 3, 9, 2.2 * len(rows))
        for number, (images, scores, labels, row_kinds) in enumerate(rows):
            axes_row = grid[3 * number : 3 * number + 3]
            axes_row[0].set_ylabel(images)
            for axes, (name, value, colour) in zip(axes_row, row_kinds, strict=False):
                _histogram(axes, scores[labels == value], name, colour)
            for axes in axes_row[len(row_kinds) :]:
                axes.axis("off")
        return svg(figure)


def _histogram(axes: Axes, scores: NDArray[Any], name: str, colour: str) -> None:
    axes.set(title=f"{name} ({len(scores):,})", xlabel="score", xlim=(-0.05, 1.05))
    if not len(scores):
        axes.set_yticks([])
        return
    axes.hist(scores, bins=40, range=(0, 1), color=colour)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def share_bars(share: Numbers, names: list[str]) -> str:
    """Stacked bars [C]: the share of positives among unknown labels, and the rest."""
    with styled():
        figure, (axes,) = panels(1, 1, 9, 2.8)
        bars(axes, 100 * share, names, GREEN)
        bars(axes, 100 * (1 - share), names, "#e2e8f0", 100 * share)
        axes.set(ylabel="% of unknown labels", ylim=(0, 100))
        return svg(figure)


def kind_means(scores: Mapping[str, NDArray[Any]], kinds: Kinds) -> str:
    """Mean absolute logit and mean probability of each kind of label."""
    with styled():
        figure, (left, right) = panels(1, 2, 9, 2.8)
        names = [name.replace(" ", "\n") for name, _ in kinds.items()]
        width = 0.8 / len(scores)
        for number, (name, run_scores, colour) in enumerate(run_colours(scores)):
            x = np.arange(len(names)) + width * (number - (len(scores) - 1) / 2)
            for axes, values in ((left, np.abs(logits(run_scores))), (right, run_scores)):
                heights = [mean_of(values, cells) for _, cells in kinds.items()]
                drawn_bars = axes.bar(x, heights, width * 0.92, color=colour, label=name)
                texts = ["" if np.isnan(height) else f"{height:.2f}" for height in heights]
                axes.bar_label(drawn_bars, labels=texts, fontsize=8, color="#64748b", padding=2)
        for axes, title in ((left, "mean absolute logit"), (right, "mean probability")):
            axes.set_xticks(np.arange(len(names)), names)
            axes.tick_params(axis="x", length=0)
            axes.set_title(title)
            axes.margins(y=0.12)
        if len(scores) > 1:
            left.legend()
        return svg(figure)


def densities(
    scores: Mapping[str, NDArray[Any]], kinds: Kinds, columns: Sequence[int], names: list[str]
) -> str:
    """Densities of the scores of unannotated positives and negatives: one column per class."""
    with styled():
        size = 2.3 * len(columns) + 0.4, 1.8 * len(scores)
        figure, grid = panels(len(scores), len(columns), *size)
        for number, axes in enumerate(grid):
            row, column = divmod(number, len(columns))
            run, j = list(scores)[row], columns[column]
            for cells, colour in ((kinds.negatives, AMBER), (kinds.positives, GREEN)):
                values = scores[run][cells[:, j], j]
                axes.hist(values, bins=25, range=(0, 1), density=True, color=colour, alpha=0.6)
            axes.set(xlim=(0, 1), ylim=(0, _MOST_DENSE))
            if row == 0:
                axes.set_title(names[j])
            if column == 0:
                axes.set_ylabel(run)
        return svg(figure)


def distance_bars(distances: Numbers, names: list[str]) -> str:
    """Distances [C], one bar per class."""
    with styled():
        figure, (axes,) = panels(1, 1, 9, 2.8)
        bars(axes, distances, names, BLUE)
        axes.set(ylabel="Wasserstein distance", ylim=(0, None))
        return svg(figure)


def distance_scatter(before: Numbers, after: Numbers, axis_names: Sequence[str]) -> str:
    """One point per class [C]: the distance of the baseline (x axis) and of the run (y axis).

    On the dashed line they are equal.
    """
    with styled():
        figure, (axes,) = panels(1, 1, 3.6, 3.6)
        axes.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
        above = after > before
        for classes, colour in ((~above, GREY), (above, BLUE)):
            axes.scatter(before[classes], after[classes], color=colour, s=22, alpha=0.8, lw=0)
        end = 1.08 * max(float(np.max([before, after])), 0.05)
        axes.set(xlim=(0, end), ylim=(0, end), aspect="equal")
        axes.set(xlabel=axis_names[0], ylabel=axis_names[1])
        return svg(figure)
