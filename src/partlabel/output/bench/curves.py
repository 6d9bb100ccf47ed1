"""Curves: figures against the share of correct training labels, and validation mAP over epochs."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from partlabel.output.bench.results import Result, figures_of, name_of_labels, spread
from partlabel.output.bench.spec import FULL
from partlabel.output.bench.tables import COUNTS, VALIDATION, differences
from partlabel.output.drawing import panels, styled, svg

BY_EPOCH = "val_mAP_by_epoch"  # a list in a result
_MARKERS = "osD^vPX"
_ACROSS = 4  # panels in a row

Plot = Callable[[Axes], None]


def draw_curves(results: list[Result], figures: Sequence[str] | None = None) -> str:
    """One panel of :func:`plot_curves` per figure as SVG; empty for fewer than two proportions."""
    tested = [result for result in results if result.get("mAP") is not None]
    if len({result["proportion"] for result in tested} - {None}) < 2:
        return ""
    return _draw_panels(
        [partial(plot_curves, results=tested, figure=name) for name in _drawn(figures)]
    )


def draw_gains(results: list[Result], figures: Sequence[str] | None, baseline: str | None) -> str:
    """Differences to the baseline, drawn as :func:`draw_curves` draws figures."""
    if baseline is None:
        return ""
    tested = [result for result in results if result.get("mAP") is not None]
    gains = differences(tested, baseline, _drawn(figures))
    gains = [gain for gain in gains if gain["strategy"] != FULL]
    if len({gain["proportion"] for gain in gains} - {None}) < 2:
        return ""
    return _draw_panels(
        [
            partial(_plot_gains, gains=gains, figure=name, baseline=baseline)
            for name in _drawn(figures)
        ]
    )


def draw_epochs(results: list[Result]) -> str:
    """Validation mAP over epochs, one panel per kind of labels; empty if no result has it."""
    logged = [result for result in results if len(result.get(BY_EPOCH) or []) > 1]
    labels = list(dict.fromkeys(map(_labels, logged)))
    methods = list(dict.fromkeys(result["method"] for result in logged))
    plots: list[Plot] = []
    for name in labels:
        own = [result for result in logged if _labels(result) == name]
        plots.append(partial(_plot_epochs, results=own, methods=methods, title=name))
    return _draw_panels(plots) if plots else ""


def plot_curves(axes: Axes, results: list[Result], figure: str = "mAP") -> None:
    """Plot mean and standard deviation of a figure against the share of correct training labels.

    Each method has one line per strategy, which is a single point if the strategy has no
    proportions, and a dashed horizontal line if all labels are known. Colours distinguish methods,
    or strategies if there is only one method. Markers distinguish strategies.
    """
    methods = list(dict.fromkeys(result["method"] for result in results))
    strategies = list(dict.fromkeys(result["strategy"] for result in results))
    several = len(methods) > 1
    coloured = methods if several else strategies
    palette = _palette(coloured)
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
            values = figures_of(points, figure)
            if strategy == FULL and values:
                axes.axhline(100 * spread(values)[0], color=colour, ls="--", lw=1.5, label=name)
            else:
                _plot_line(axes, points, figure, markers[strategy], color=colour, label=name)
    axes.set(xlabel="training labels that are known and correct", ylabel=f"test {figure} (%)")
    axes.xaxis.set_major_formatter(PercentFormatter(1))


def _plot_gains(axes: Axes, gains: list[Result], figure: str, baseline: str) -> None:
    """Differences of one figure, with a line at 0."""
    axes.axhline(0, color="#94a3b8", lw=1)
    plot_curves(axes, gains, figure)
    axes.set(ylabel=f"{figure}, difference to {baseline}")


def _plot_epochs(axes: Axes, results: list[Result], methods: list[str], title: str) -> None:
    """One line per method: the mean over seeds, as far as all of them were trained."""
    palette = _palette(methods)
    for number, method in enumerate(methods):
        runs = [result[BY_EPOCH] for result in results if result["method"] == method]
        if not runs:
            continue
        length = min(map(len, runs))
        values = np.array([run[:length] for run in runs], dtype=np.float64)
        epochs = np.arange(1, length + 1)
        axes.plot(
            epochs, 100 * values.mean(axis=0), color=palette(number % palette.N), label=method
        )
    axes.set(xlabel="epoch", ylabel="validation mAP (%)", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _drawn(figures: Sequence[str] | None) -> list[str]:
    """The figures of a spec that can be drawn on one scale: shares, of test images."""
    shares = [name for name in figures or () if name not in (*COUNTS, VALIDATION)]
    return shares or ["mAP"]


def _draw_panels(plots: list[Plot]) -> str:
    """Panels in rows, with one legend beside the first row, as SVG."""
    across = min(len(plots), _ACROSS)
    rows = math.ceil(len(plots) / across)
    width, height = (6.5, 3.6) if len(plots) == 1 else (3.4 * across, 2.8 * rows)
    with styled():
        figure, grid = panels(rows, across, width, height)
        for axes, plot in zip(grid, plots, strict=False):
            plot(axes)
        for axes in grid[len(plots) :]:
            axes.axis("off")
        grid[across - 1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
        return svg(figure)


def _palette(names: list[str]) -> Any:
    return mpl.colormaps["tab10" if len(names) <= 10 else "tab20"]


def _labels(result: Result) -> str:
    return name_of_labels(result["strategy"], result["proportion"])


def _plot_line(axes: Axes, results: list[Result], figure: str, marker: str, **style: Any) -> None:
    """Plot one line with error bars; a single point has no line."""
    points = _points(results, figure)
    if points:
        x, y, deviation = zip(*points, strict=True)
        form = marker + ("-" if len(points) > 1 else "")
        axes.errorbar(x, y, deviation, fmt=form, ms=5, lw=1.8, elinewidth=1, capsize=2.5, **style)


def _points(results: list[Result], figure: str) -> list[tuple[float, float, float]]:
    """The share of correct labels, mean and deviation of a figure in percent, per proportion."""
    points = []
    for proportion in dict.fromkeys(result["proportion"] for result in results):
        group = [result for result in results if result["proportion"] == proportion]
        clean, values = figures_of(group, "clean"), figures_of(group, figure)
        share = float(np.mean(clean)) if clean else proportion  # older results lack it
        if share is not None and values:
            mean, deviation = spread([100 * value for value in values])
            points.append((share, mean, math.nan if deviation is None else deviation))
    return sorted(points)
