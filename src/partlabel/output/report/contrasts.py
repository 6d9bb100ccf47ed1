"""The pictures of a run beside its baseline, and of labels that were left unknown.

Those that compare take one entry a run by name: the run, or first the baseline and then the run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from partlabel.metrics.calibration import logits
from partlabel.output.drawing import AMBER, BLUE, GREEN, GREY, bars, panels, styled, svg
from partlabel.output.report.analysis import Kinds, Numbers, mean_of

_MOST_DENSE = 8.0  # where densities are cut off: one narrow peak would flatten all else


def _colours(runs: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """Name, entry and colour of each run: the baseline pale, the run itself blue."""
    colours = [BLUE] if len(runs) == 1 else [GREY, BLUE]
    return [(name, runs[name], colour) for name, colour in zip(runs, colours, strict=True)]


def positives_loss(histories: Mapping[str, list[dict[str, float]]]) -> str:
    """Mean -log p of known positives over epochs."""
    with styled():
        figure, (axes,) = panels(1, 1, 6, 2.6)
        for name, history, colour in _colours(histories):
            lines = [line for line in history if "positives" in line]
            if lines:
                epochs, values = zip(*[(x["epoch"], x["positives"]) for x in lines], strict=True)
                axes.plot(epochs, values, label=name, color=colour, lw=2, marker=".")
        axes.set(xlabel="epoch", ylim=(0, None), title="loss on known positives")
        axes.legend()
        return svg(figure)


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
        for number, (name, said, colour) in enumerate(_colours(scores)):
            at = np.arange(len(names)) + width * (number - (len(scores) - 1) / 2)
            for axes, values in ((left, np.abs(logits(said))), (right, said)):
                heights = [mean_of(values, cells) for _, cells in kinds.items()]
                drawn = axes.bar(at, heights, width * 0.92, color=colour, label=name)
                shown = ["" if np.isnan(h) else f"{h:.2f}" for h in heights]
                axes.bar_label(drawn, labels=shown, fontsize=8, color="#64748b", padding=2)
        for axes, title in ((left, "mean absolute logit"), (right, "mean probability")):
            axes.set_xticks(np.arange(len(names)), names)
            axes.tick_params(axis="x", length=0)
            axes.set_title(title)
            axes.margins(y=0.12)
        if len(scores) > 1:
            left.legend()
        return svg(figure)


def densities(
    scores: Mapping[str, NDArray[Any]], kinds: Kinds, shown: Sequence[int], names: list[str]
) -> str:
    """Densities of the scores of unannotated positives and negatives: a column a class."""
    with styled():
        figure, grid = panels(len(scores), len(shown), 2.3 * len(shown) + 0.4, 1.8 * len(scores))
        for place, axes in enumerate(grid):
            row, column = divmod(place, len(shown))
            name, j = list(scores)[row], shown[column]
            for kind, colour in ((kinds.negatives, AMBER), (kinds.positives, GREEN)):
                here = scores[name][kind[:, j], j]
                axes.hist(here, bins=25, range=(0, 1), density=True, color=colour, alpha=0.6)
            axes.set(xlim=(0, 1), ylim=(0, _MOST_DENSE))
            if row == 0:
                axes.set_title(names[j])
            if column == 0:
                axes.set_ylabel(name)
        return svg(figure)


def distance_bars(distances: Numbers, names: list[str]) -> str:
    """A distance a class [C], the largest first."""
    with styled():
        figure, (axes,) = panels(1, 1, 9, 2.8)
        bars(axes, distances, names, BLUE)
        axes.set(ylabel="Wasserstein distance", ylim=(0, None))
        return svg(figure)


def distance_scatter(before: Numbers, after: Numbers, axis_names: Sequence[str]) -> str:
    """A point a class: the baseline's distance across, the run's up, a line where they equal."""
    with styled():
        figure, (axes,) = panels(1, 1, 3.6, 3.6)
        axes.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
        above = after > before
        for some, colour in ((~above, GREY), (above, BLUE)):
            axes.scatter(before[some], after[some], color=colour, s=22, alpha=0.8, lw=0)
        end = 1.08 * max(float(np.max([before, after])), 0.05)
        axes.set(xlim=(0, end), ylim=(0, end), aspect="equal")
        axes.set(xlabel=axis_names[0], ylabel=axis_names[1])
        return svg(figure)


def gain_bars(gains: Numbers, names: list[str]) -> str:
    """Gains in AP [C], in points: losses in another colour."""
    with styled():
        figure, (axes,) = panels(1, 1, 9, 2.8)
        bars(axes, np.maximum(gains, 0), names, GREEN)
        bars(axes, np.minimum(gains, 0), names, AMBER)
        axes.axhline(0, color="#cbd5e1", lw=0.8)
        axes.set(ylabel="gain in AP (points)")
        return svg(figure)


def loss_lines(steps: Numbers, lines: Mapping[str, Numbers]) -> str:
    """The loss along a random direction, each line less its value at the weights themselves."""
    with styled():
        figure, (axes,) = panels(1, 1, 6, 2.8)
        for name, values, colour in _colours(lines):
            axes.plot(steps, values - values[len(steps) // 2], label=name, color=colour, lw=2)
        axes.set(xlabel="step along a random direction", ylabel="loss above that at 0")
        axes.legend()
        return svg(figure)


def loss_surfaces(steps: Numbers, surfaces: Mapping[str, Numbers]) -> str:
    """The loss in the plane of two random directions, all on one scale."""
    x, y = np.meshgrid(steps, steps, indexing="ij")
    middle = len(steps) // 2
    heights = {name: values - values[middle, middle] for name, values in surfaces.items()}
    found = np.concatenate([values[np.isfinite(values)] for values in heights.values()])
    low, high = float(found.min()), float(max(found.max(), found.min() + 1e-9))
    with styled():
        figure = Figure(figsize=(4.4 * len(surfaces), 3.6))
        for place, (name, values) in enumerate(heights.items()):
            axes: Any = figure.add_subplot(1, len(surfaces), place + 1, projection="3d")
            axes.plot_surface(x, y, values, cmap="viridis", vmin=low, vmax=high, lw=0.2, ec="white")
            axes.set(zlim=(low, high), title=name, xticks=[-1, 0, 1], yticks=[-1, 0, 1])
            _plain_walls(axes)
        return svg(figure)


def _plain_walls(axes: Any) -> None:
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((1, 1, 1, 0))
        axis.line.set_color("#cbd5e1")
        axis._axinfo["grid"] |= {"color": "#e2e8f0", "linewidth": 0.6}
