"""The style of all charts, and how they become part of a page."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

BLUE, GREEN, GREY, AMBER = "#2563eb", "#15803d", "#94a3b8", "#d97706"
INK = "#475569"
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#cbd5e1",
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "xtick.color": "#64748b",
    "ytick.color": "#64748b",
    "legend.frameon": False,
    "svg.hashsalt": "partlabel",  # the same chart gives the same file
    "text.parse_math": False,  # the name of a class may contain dollar signs
}
_MOST_NAMES = 60  # bars that have room for a name below them
_LONGEST = 24  # characters of such a name


@contextmanager
def styled() -> Iterator[None]:
    """Charts drawn inside have the common style."""
    with mpl.rc_context(_STYLE):
        yield


def svg(figure: Figure) -> str:
    """A chart as an element of a page."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None}, bbox_inches="tight")
    text = stream.getvalue()
    return text[text.index("<svg") :]


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of axes, which are listed row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def run_colours(runs: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """Name, entry and colour of each run: a baseline, which comes first, is grey, a run blue."""
    colours = [BLUE] if len(runs) == 1 else [GREY, BLUE]
    return [(name, runs[name], colour) for name, colour in zip(runs, colours, strict=True)]


def bars(axes: Axes, values: NDArray[Any], names: list[str], colour: str, base: Any = 0.0) -> None:
    """One bar per class [C], upwards from ``base``. Names are left out if there are too many."""
    if len(values) > _MOST_NAMES:
        low = np.broadcast_to(np.asarray(base, dtype=np.float64), np.shape(values))
        edges = np.arange(len(values) + 1) - 0.5
        axes.stairs(low + values, edges, baseline=low, fill=True, color=colour)
        axes.set_xlabel(f"{len(values):,} classes")
        axes.set_xticks([])
    else:
        axes.bar(np.arange(len(values)), values, bottom=base, color=colour, width=0.75)
        upright = len(values) > 8 or max(map(len, names)) > 12
        short = [name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…" for name in names]
        axes.set_xticks(np.arange(len(values)), short, rotation=90 if upright else 0)
        axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.7, len(values) - 0.3)
