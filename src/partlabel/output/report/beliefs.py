"""Unknown labels that a method treated as present while it trained, epoch by epoch."""

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import LabelTable
from partlabel.learning.pseudo_labels.diary import Diary
from partlabel.output.drawing import BLUE, GREEN, GREY, panels, styled, svg
from partlabel.output.report.parts import Part
from partlabel.output.report.sample import Sample

Pages = dict[int, NDArray[np.int64]]


def judge_pages(
    pages: Pages, training: LabelTable, truth: LabelTable
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Precision and recall of each page [epochs], NaN of nothing.

    Over cells that training did not know and the truth does: the share of those taken for present
    that are, and of those that are present the share that was taken for that.
    """
    # known now, and not then
    found = (truth.matrix - truth.matrix.multiply(abs(training.matrix))).tocoo()
    rows, columns = found.coords
    numbers = rows.astype(np.int64) * training.shape[1] + columns
    cells, present = numbers[found.data != 0], numbers[found.data > 0]
    precision, recall = [], []
    for page in pages.values():
        taken = np.intersect1d(page, cells)
        right = len(np.intersect1d(taken, present))
        precision.append(right / len(taken) if len(taken) else np.nan)
        recall.append(right / len(present) if len(present) else np.nan)
    return np.array(precision), np.array(recall)


def beliefs(sample: Sample, diary: Diary | None) -> list[Part]:
    """How many labels were treated as present, and how many of these are present."""
    pages = {} if diary is None else diary.pages(len(sample.ours.run.history()))
    if not any(map(len, pages.values())):
        return []
    caption = (
        "Unknown training labels that the model took for present while it learned, and taught "
        "itself (what it took for absent is not shown). "
    )
    if sample.truth is None:
        caption += "With --truth, this also shows how many of them are right."
        return [Part("What it taught itself", caption, _drawn(pages, {}))]
    precision, recall = judge_pages(pages, sample.training, sample.truth)
    lines = {"precision": 100 * precision, "recall": 100 * recall}
    caption += (
        "Precision: how many of them are present. Recall: how many of the unknown labels that are "
        "present were found. If precision falls while recall rises, it talks itself into things."
    )
    return [Part("What it taught itself", caption, _drawn(pages, lines))]


def _drawn(pages: Pages, lines: dict[str, NDArray[np.float64]]) -> str:
    epochs = list(pages)
    with styled():
        figure, axes = panels(1, 1 + bool(lines), 4.5 * (1 + bool(lines)), 2.6)
        axes[0].plot(epochs, [len(page) for page in pages.values()], color=GREY, lw=2, marker=".")
        axes[0].set(xlabel="epoch", ylim=(0, None), title="labels taken for present")
        for (name, values), colour in zip(lines.items(), (BLUE, GREEN), strict=False):
            axes[1].plot(epochs, values, label=name, color=colour, lw=2, marker=".")
        if lines:
            axes[1].set(xlabel="epoch", ylim=(0, 100), ylabel="%", title="how right they are")
            axes[1].legend()
        return svg(figure)
