"""How all pictures look, and how they get into a page."""

import io
from collections.abc import Iterator
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
    "svg.hashsalt": "partlabel",  # the same picture twice is the same file
    "text.parse_math": False,  # a class may have dollars in its name
}
_MOST_NAMES = 60  # bars that have room for a name below them
_LONGEST = 24  # letters of such a name


@contextmanager
def styled() -> Iterator[None]:
    """Everything drawn inside looks like all other pictures."""
    with mpl.rc_context(_STYLE):
        yield


def svg(figure: Figure) -> str:
    """A picture as an element of a page."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None}, bbox_inches="tight")
    text = stream.getvalue()
    return text[text.index("<svg") :]


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A picture with so many plots in it, row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def bars(axes: Axes, values: NDArray[Any], names: list[str], colour: str, base: Any = 0.0) -> None:
    """A bar a class [C] from ``base`` up, with names while they fit."""
    if len(values) > _MOST_NAMES:
        low = np.broadcast_to(np.asarray(base, dtype=np.float64), np.shape(values))
        edges = np.arange(len(values) + 1) - 0.5
        axes.stairs(low + values, edges, baseline=low, fill=True, color=colour)
        axes.set_xlabel(f"{len(values):,} classes")
        axes.set_xticks([])
    else:
        axes.bar(np.arange(len(values)), values, bottom=base, color=colour, width=0.75)
        upright = len(values) > 8 or max(map(len, names)) > 12
        shown = [name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…" for name in names]
        axes.set_xticks(np.arange(len(values)), shown, rotation=90 if upright else 0)
        axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.7, len(values) - 0.3)
