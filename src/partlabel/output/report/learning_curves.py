"""How the training went: the figures of the log over epochs."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from partlabel.base.choices import WHOLE_BATCH
from partlabel.learning.method import Figure
from partlabel.output.drawing import BLUE, GREEN, GREY, panels, run_colours, styled, svg
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Section
from partlabel.training.run import Run

History = list[dict[str, float]]
Kinds = Mapping[str, Figure]

_POSITIVES = "positives"  # a cost with a section of its own
_VALIDATION = {"val_mAP": "validation mAP", "ema_val_mAP": "validation mAP of the teacher"}
_LEAST_SPAN = 5.0  # points of mAP: noise must not fill an axis
_MOST_ACROSS = 4  # small panels in a row


def training_curves(run: Run) -> Section:
    """The costs, the validation mAP, and what else the method logs."""
    _, method = run.build(run.record, pretrained=False)
    history, kinds, kept = run.history(), method.figures(), run.record.best_epoch
    figure = draw_curves(history, kinds, kept) + draw_small_panels(history, kinds)
    moment = "after" if run.settings.optimizer == WHOLE_BATCH else "averaged over"
    caption = f"Left: the training loss and its parts, {moment} each epoch. "
    if _logged(history, _VALIDATION):
        caption += (
            f"Right: mAP on validation images; the dotted line marks the epoch that was kept "
            f"({kept}). If the mAP falls while the loss still falls, the model memorises its "
            "training labels. If both still improve at the end, more epochs help. "
        )
    else:
        caption += "There are no validation images, so the last epoch was kept. "
    small = _logged(history, _of_kind(kinds, Figure.COUNT, Figure.SHARE))
    if small:
        caption += (
            f"Below: {', '.join(small)}, as logged by the method. The loss may rise while the "
            "method gives labels to more cells. "
        )
    for name in _logged(history, _of_kind(kinds, Figure.SETTING)):
        caption += f"Chosen by the method: {name} {_value_range(_points(history, name)[1])}. "
    return Section("How the training went", caption.strip(), figure)


def draw_curves(history: History, kinds: Kinds, kept: int) -> str:
    """Costs and, if there is any, validation mAP over epochs.

    Args:
        history: one line per epoch, as in the log.
        kinds: the kind of each figure of the method.
        kept: the epoch that was kept.
    """
    costs = [name for name in _of_kind(kinds, Figure.COST) if name != _POSITIVES]
    validated = _logged(history, _VALIDATION)
    with styled():
        figure, (left, *others) = panels(1, 2 if validated else 1, 9 if validated else 4.5, 2.8)
        for name in _logged(history, costs):
            left.plot(*_points(history, name), label=name, lw=2)
        left.set(title="cost")
        left.legend()
        for right in others:
            _draw_validation(right, history, validated, kept)
        for axes in (left, *others):
            _set_epochs(axes, len(history))
        return svg(figure)


def _draw_validation(axes: Axes, history: History, names: Sequence[str], kept: int) -> None:
    values = []
    for name, colour in zip(names, (BLUE, GREEN), strict=False):
        epochs, shares = _points(history, name)
        percentages = [100 * share for share in shares]
        axes.plot(epochs, percentages, label=_VALIDATION[name], color=colour, lw=2, marker=".")
        values += percentages
    axes.axvline(kept, color=GREY, ls=":", label=f"epoch kept: {kept}")
    axes.set(title="validation mAP (%)", ylim=axis_range(values))
    axes.legend()


def axis_range(percentages: Sequence[float], least: float = _LEAST_SPAN) -> tuple[float, float]:
    """Limits of an axis around percentages: at least this far apart, and within 0 to 100.

    >>> axis_range([75.0, 76.0]), axis_range([99.0, 100.0]), axis_range([0.0, 80.0])
    ((73.0, 78.0), (95.0, 100.0), (0.0, 84.0))
    """
    low, high = min(percentages), max(percentages)
    margin = max(0.05 * (high - low), (least - (high - low)) / 2)
    low, high = low - margin, high + margin
    if low < 0:
        low, high = 0.0, max(high, least)
    if high > 100:
        low, high = min(low, 100 - least), 100.0
    return low, high


def draw_small_panels(history: History, kinds: Kinds) -> str:
    """One panel per count and per share; empty without any."""
    names = _logged(history, _of_kind(kinds, Figure.COUNT, Figure.SHARE))
    if not names:
        return ""
    columns = min(len(names), _MOST_ACROSS)
    rows = math.ceil(len(names) / columns)
    with styled():
        figure, grid = panels(rows, columns, 3 * columns, 2 * rows)
        for axes, name in zip(grid, names, strict=False):
            epochs, values = _points(history, name)
            axes.plot(epochs, values, color=GREY, lw=2, marker=".")
            top = 1.0 if kinds[name] is Figure.SHARE else 1.1 * max(values) or 1.0
            axes.set(title=name, ylabel=kinds[name].value, ylim=(0, top))
            _set_epochs(axes, len(history))
        for axes in grid[len(names) :]:
            axes.axis("off")
        return svg(figure)


def known_positives(sample: Sample) -> list[Section]:
    """How fast labels that are known to be present are learned."""
    histories = {one.name: one.run.history() for one in sample.runs if not one.run.record.members}
    logged = {name: h for name, h in histories.items() if _logged(h, [_POSITIVES])}
    if not logged:
        return []
    caption = (
        "Loss on the training labels that are known to be present (the mean of -log p). It should "
        "fall. If it stalls or rises early, other labels dominate the loss, such as unknown labels "
        "that count as absent."
    )
    return [Section("How fast known labels are learned", caption, _draw_positives(logged))]


def _draw_positives(histories: Mapping[str, History]) -> str:
    with styled():
        figure, (axes,) = panels(1, 1, 6, 2.6)
        for name, history, colour in run_colours(histories):
            axes.plot(*_points(history, _POSITIVES), label=name, color=colour, lw=2, marker=".")
        axes.set(ylim=(0, None), title="loss on known positives")
        _set_epochs(axes, max(map(len, histories.values())))
        axes.legend()
        return svg(figure)


def _of_kind(kinds: Kinds, *wanted: Figure) -> list[str]:
    return [name for name, kind in kinds.items() if kind in wanted]


def _logged(history: History, names: Sequence[str] | Mapping[str, str]) -> list[str]:
    """Those of the names that some epoch has a number for."""
    return [name for name in names if len(_points(history, name)[0])]


def _points(history: History, name: str) -> tuple[list[float], list[float]]:
    """The epochs that have a number of this name, and the numbers."""
    lines = [line for line in history if not np.isnan(line.get(name, np.nan))]
    return [line["epoch"] for line in lines], [line[name] for line in lines]


def _value_range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low} to {high}"


def _set_epochs(axes: Axes, epochs: int) -> None:
    axes.set(xlabel="epoch", xlim=(0.5, epochs + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
