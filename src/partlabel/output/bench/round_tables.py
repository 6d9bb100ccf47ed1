"""Tables and curves of labelling in rounds."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from partlabel.output.bench.results import Result, figures_of, name_of_labels, spread
from partlabel.output.bench.sheets import Sheet
from partlabel.output.bench.tables import Tables
from partlabel.output.drawing import panels, styled, svg

Curve = list[tuple[float, float]]  # answers, and the mean of a figure over the draws


def tables_of_rounds(results: list[Result], baseline: str | None = None) -> Tables:
    """Test mAP and guaranteed present labels by the number of answers, and what answers save.

    Args:
        results: one per round.
        baseline: the way of asking that the others are compared with.
    """
    sheets = []
    for labels in dict.fromkeys(map(_labels, results)):
        part = [line for line in results if _labels(line) == labels]
        sheets += [_by_answers(part, "mAP", labels), _saved(part, baseline, labels)]
        sheets.append(_by_answers(part, "promised", labels))
    errors = [f"{line['cell']}: {line['error']}" for line in results if "error" in line]
    return Tables([sheet for sheet in sheets if sheet.rows], errors)


def _labels(result: Result) -> str:
    return name_of_labels(result["strategy"], result["proportion"])


def _ways(results: list[Result], figure: str) -> list[str]:
    with_figure = (line["method"] for line in results if line.get(figure) is not None)
    return list(dict.fromkeys(with_figure))


def answers_of(line: Result, figure: str) -> int:
    """The answers that a figure rests on: guarantees also on those to the run's own questions."""
    return int(line["answers"] + (line["asked"] if figure == "promised" else 0))


def _by_answers(results: list[Result], figure: str, labels: str) -> Sheet:
    """One row per way of asking, one column per number of answers."""
    title = "test mAP" if figure == "mAP" else "guaranteed present labels"
    numbers = sorted({answers_of(one, figure) for one in results if one.get(figure) is not None})
    rows = []
    for way in _ways(results, figure):
        own = [line for line in results if line["method"] == way]
        texts = []
        for number in numbers:
            at = [line for line in own if "error" not in line]
            at = [line for line in at if answers_of(line, figure) == number]
            texts.append(_format(figures_of(at, figure), figure))
        rows.append([way, *texts])
    return Sheet([f"{title}, {labels}, after", *(f"{number:,}" for number in numbers)], rows)


def _format(values: Sequence[float], figure: str) -> str:
    if not values:
        return ""
    scale, form = (100, ".2f") if figure == "mAP" else (1, ",.0f")
    mean, deviation = spread([scale * value for value in values])
    return f"{mean:{form}}" + ("" if deviation is None else f" ± {deviation:{form}}")


def _saved(results: list[Result], baseline: str | None, labels: str) -> Sheet:
    """How many answers each way needs for what the baseline reaches with its last ones."""
    curves = {way: mean_curve(results, way, "mAP") for way in _ways(results, "mAP")}
    if baseline not in curves:
        return Sheet([], [])
    last, level = curves[baseline][-1]
    rows = []
    for way, curve in curves.items():
        needed = answers_needed(curve, level)
        means = _means_over_rounds(results, way)
        against = _means_over_rounds(results, baseline)
        shared = sorted(means.keys() & against.keys())
        better = sum(means[seed] > against[seed] for seed in shared)
        text = f"not within {curve[-1][0]:,.0f}" if math.isnan(needed) else f"{needed:,.0f}"
        mean = 100 * float(np.mean([means[seed] for seed in shared]))
        rows.append([way, text, f"{mean:.2f}", f"{better} of {len(shared)}"])
    reached = f"answers to reach the mAP of {baseline} after {last:,.0f} ({100 * level:.2f})"
    above = f"draws with a mean above that of {baseline}"
    return Sheet([labels, reached, "mean mAP over rounds", above], rows)


def mean_curve(results: list[Result], way: str, figure: str) -> Curve:
    """The mean of a figure over the draws, by the number of answers."""
    own = [one for one in results if one["method"] == way and one.get(figure) is not None]
    numbers = sorted({answers_of(line, figure) for line in own})
    parts = [[line for line in own if answers_of(line, figure) == number] for number in numbers]
    return [(n, spread(figures_of(p, figure))[0]) for n, p in zip(numbers, parts, strict=True)]


def answers_needed(curve: Curve, level: float) -> float:
    """The first number of answers at which a curve reaches a level, on straight lines; or NaN.

    >>> answers_needed([(0, 0.2), (100, 0.4), (200, 0.8)], 0.5)
    125.0
    """
    if curve[0][1] >= level:
        return float(curve[0][0])
    for (before, low), (after, high) in pairwise(curve):
        if high >= level:
            return before + (after - before) * (level - low) / (high - low)
    return math.nan


def _means_over_rounds(results: list[Result], way: str) -> dict[int, float]:
    """The mean of mAP over the rounds after the first, for each draw."""
    own = [line for line in results if line["method"] == way and line.get("answers")]
    return {
        seed: float(np.mean(figures_of([one for one in own if one["seed"] == seed], "mAP")))
        for seed in dict.fromkeys(line["seed"] for line in own)
    }


def draw_rounds(results: list[Result]) -> str:
    """Curves of test mAP, and of guaranteed present labels if there are any, as SVG."""
    figures = [figure for figure in ("mAP", "promised") if _ways(results, figure)]
    if not figures:
        return ""
    with styled():
        figure, axes = panels(1, len(figures), 4.6 * len(figures), 3.2)
        for one, name in zip(axes, figures, strict=True):
            _plot(one, results, name)
        return svg(figure)


def _plot(axes: Axes, results: list[Result], figure: str) -> None:
    """One line per way of asking, with a second axis in minutes of work."""
    palette, scale = mpl.colormaps["tab10"], 100 if figure == "mAP" else 1
    ways = list(dict.fromkeys(line["method"] for line in results))
    for way in _ways(results, figure):
        answers, values = zip(*mean_curve(results, way, figure), strict=True)
        colour = palette(ways.index(way) % palette.N)
        axes.plot(answers, scale * np.array(values), "o-", ms=3, lw=1.5, color=colour, label=way)
    axes.set(xlabel="answers", ylabel="test mAP (%)" if scale == 100 else "guaranteed present")
    axes.legend(fontsize=7)
    costs = [line["seconds"] / line["answers"] for line in results if line.get("answers")]
    if costs:
        minutes = float(np.mean(costs)) / 60
        above = axes.secondary_xaxis("top", functions=(_times(minutes), _times(1 / minutes)))
        above.set_xlabel("minutes of work")


def _times(factor: float) -> Callable[[Any], Any]:
    """A function that multiplies by a number."""
    return lambda values: np.asarray(values) * factor
