"""A plot of results: test mAP against the share of training labels that are correct."""

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
    """The plot of :func:`plot_curves` as SVG; empty for fewer than two proportions."""
    tested = [result for result in results if result.get("mAP") is not None]
    if len({result["proportion"] for result in tested} - {None}) < 2:
        return ""
    with styled():
        figure, (axes,) = panels(1, 1, 6.5, 3.6)
        plot_curves(axes, tested)
        return svg(figure)


def plot_curves(axes: Axes, results: list[Result]) -> None:
    """Plot mean and standard deviation of test mAP against the share of correct training labels.

    Each method has one line per strategy, which is a single point if the strategy has no
    proportions, and a dashed horizontal line if all labels are known. Colours distinguish methods,
    or strategies if there is only one method. Markers distinguish strategies.
    """
    methods = list(dict.fromkeys(result["method"] for result in results))
    strategies = list(dict.fromkeys(result["strategy"] for result in results))
    several = len(methods) > 1
    coloured = methods if several else strategies
    palette = mpl.colormaps["tab10" if len(coloured) <= 10 else "tab20"]
    markers = dict(zip(strategies, cycle(_MARKERS), strict=False))
    for method in methods:
        own = [result for result in results if result["method"] == method]
        own_strategies = list(dict.fromkeys(result["strategy"] for result in own))
        for strategy in own_strategies:
            points = [result for result in own if result["strategy"] == strategy]
            colour = palette(coloured.index(method if several else strategy) % palette.N)
            if len(own_strategies) == 1:
                name = method
            else:
                name = f"{method}, {strategy}" if several else strategy
            if strategy == FULL:
                level = 100 * spread(figures_of(points, "mAP"))[0]
                axes.axhline(level, color=colour, ls="--", lw=1.5, label=name)
            else:
                _plot_line(axes, points, markers[strategy], color=colour, label=name)
    axes.set(xlabel="training labels that are known and correct", ylabel="test mAP (%)")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _plot_line(axes: Axes, results: list[Result], marker: str, **style: Any) -> None:
    """Plot one line with error bars; a single point has no line."""
    points = _points(results)
    if points:
        x, y, deviation = zip(*points, strict=True)
        form = marker + ("-" if len(points) > 1 else "")
        axes.errorbar(x, y, deviation, fmt=form, ms=5, lw=1.8, elinewidth=1, capsize=2.5, **style)


def _points(results: list[Result]) -> list[tuple[float, float, float]]:
    """The share of correct labels, mean and deviation of mAP in percent, for each proportion."""
    points = []
    for proportion in dict.fromkeys(result["proportion"] for result in results):
        group = [result for result in results if result["proportion"] == proportion]
        clean = figures_of(group, "clean")
        share = float(np.mean(clean)) if clean else proportion  # older results lack it
        mean, deviation = spread([100 * value for value in figures_of(group, "mAP")])
        if share is not None:
            points.append((share, mean, math.nan if deviation is None else deviation))
    return sorted(points)
