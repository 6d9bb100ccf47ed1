"""Charts of the loss around the weights of runs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from partlabel.output.drawing import panels, run_colours, styled, svg
from partlabel.output.report.analysis import Numbers
from partlabel.output.report.landscape import Landscape, steps
from partlabel.output.report.section import Section


def landscapes(surveyed: dict[str, Landscape]) -> list[Section]:
    """The loss around the weights of each run that has a finite loss, by its name."""
    surveyed = {n: one for n, one in surveyed.items() if np.isfinite(one.at_weights)}
    if not surveyed:
        return []
    lines = {name: one.line for name, one in surveyed.items()}
    surfaces = {name: one.surface for name, one in surveyed.items()}
    line_steps, side_steps = (steps(len(next(iter(p.values())))) for p in (lines, surfaces))
    caption = (
        "The method's own training loss on a few training images, minus its value at the weights "
        "of the end of the training. The weights are moved along one random direction, which has "
        "the norm of the weights in each filter. A wide valley is often taken as a sign of good "
        "generalisation. Compare the shapes of different methods, not their heights: their losses "
        "have different scales."
    )
    plane = "The same in the plane of two random directions" + (
        ", all on one scale." if len(surfaces) > 1 else "."
    )
    return [
        Section("The loss around the weights", caption, loss_lines(line_steps, lines)),
        Section("The loss in two directions", plane, loss_surfaces(side_steps, surfaces)),
    ]


def loss_lines(steps: Numbers, lines: Mapping[str, Numbers]) -> str:
    """The loss along a random direction, relative to its value at the weights."""
    with styled():
        figure, (axes,) = panels(1, 1, 6, 2.8)
        for name, values, colour in run_colours(lines):
            axes.plot(steps, values - values[len(steps) // 2], label=name, color=colour, lw=2)
        axes.set(xlabel="step along a random direction", ylabel="loss above that at 0")
        axes.legend()
        return svg(figure)


def loss_surfaces(steps: Numbers, surfaces: Mapping[str, Numbers]) -> str:
    """The loss in the plane of two random directions, all on one scale."""
    x, y = np.meshgrid(steps, steps, indexing="ij")
    middle = len(steps) // 2
    heights = {name: values - values[middle, middle] for name, values in surfaces.items()}
    finite = np.concatenate([values[np.isfinite(values)] for values in heights.values()])
    low, high = float(finite.min()), float(max(finite.max(), finite.min() + 1e-9))
    with styled():
        figure = Figure(figsize=(4.4 * len(surfaces), 3.6))
        for number, (name, values) in enumerate(heights.items(), 1):
            axes: Any = figure.add_subplot(1, len(surfaces), number, projection="3d")
            axes.plot_surface(x, y, values, cmap="viridis", vmin=low, vmax=high, lw=0.2, ec="white")
            axes.set(zlim=(low, high), title=name, xticks=[-1, 0, 1], yticks=[-1, 0, 1])
            _clear_walls(axes)
        return svg(figure)


def _clear_walls(axes: Any) -> None:
    """Remove the grey walls of a 3D plot."""
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((1, 1, 1, 0))
        axis.line.set_color("#cbd5e1")
        axis._axinfo["grid"] |= {"color": "#e2e8f0", "linewidth": 0.6}
