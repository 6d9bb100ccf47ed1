"""Results as a picture: test mAP over how many of the training labels are right."""

import math
from itertools import cycle
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from partlabel.output.bench.results import Result, figures_of, spread
from partlabel.output.bench.spec import FULL
from partlabel.output.drawing import panels, styled, svg

_MARKERS = "osD^vPX"


def draw_curves(results: list[Result]) -> str:
    """The picture of :func:`plot_curves` as SVG; empty with fewer than two proportions."""
    tested = [result for result in results if result.get("mAP") is not None]
    if len({result["proportion"] for result in tested} - {None}) < 2:
        return ""
    with styled():
        figure, (axes,) = panels(1, 1, 6.5, 3.6)
        plot_curves(axes, tested)
        return svg(figure)


def plot_curves(axes: Axes, results: list[Result]) -> None:
    """Mean and deviation of test mAP over the share of training cells whose label is right.

    A method has a line for each strategy, with one point where the strategy has no proportions;
    on full labels it is a dashed line across. Colours tell methods apart, or of one method the
    strategies; marks tell strategies.
    """
    methods = list(dict.fromkeys(result["method"] for result in results))
    strategies = list(dict.fromkeys(result["strategy"] for result in results))
    coloured = "method" if len(methods) > 1 else "strategy"
    kinds = list(dict.fromkeys(result[coloured] for result in results))
    palette = mpl.colormaps["tab10" if len(kinds) <= 10 else "tab20"]
    marks = dict(zip(strategies, cycle(_MARKERS), strict=False))
    for method in methods:
        own = [result for result in results if result["method"] == method]
        used = dict.fromkeys(result["strategy"] for result in own)
        for strategy in used:
            here = [result for result in own if result["strategy"] == strategy]
            names = (method, strategy) if len(used) > 1 else (method,)
            name = ", ".join(names[-1:] if len(methods) == 1 else names)
            colour = palette(kinds.index(here[0][coloured]) % palette.N)
            if strategy == FULL:
                level = 100 * spread(figures_of(here, "mAP"))[0]
                axes.axhline(level, color=colour, ls="--", lw=1.5, label=name)
            else:
                _errorbars(axes, here, marks[strategy], color=colour, label=name)
    axes.set(xlabel="training labels that are known and right", ylabel="test mAP (%)")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _errorbars(axes: Axes, results: list[Result], mark: str, **looks: Any) -> None:
    points = _points(results)
    if points:
        x, y, deviation = zip(*points, strict=True)
        form = mark + ("-" if len(points) > 1 else "")
        axes.errorbar(x, y, deviation, fmt=form, ms=5, lw=1.8, elinewidth=1, capsize=2.5, **looks)


def _points(results: list[Result]) -> list[tuple[float, float, float]]:
    """Share of right labels, mean and deviation of mAP in percent, for each proportion."""
    points = []
    for proportion in dict.fromkeys(result["proportion"] for result in results):
        here = [result for result in results if result["proportion"] == proportion]
        clean = figures_of(here, "clean")
        share = float(np.mean(clean)) if clean else proportion  # older results lack it
        mean, deviation = spread([100 * value for value in figures_of(here, "mAP")])
        if share is not None:
            points.append((share, mean, math.nan if deviation is None else deviation))
    return sorted(points)
