"""Unknown labels that a method treated as present while it trained, per epoch."""

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import LabelTable
from partlabel.learning.pseudo_labels.diary import Diary
from partlabel.output.drawing import BLUE, GREEN, GREY, panels, styled, svg
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Section

Pages = dict[int, NDArray[np.int64]]


def judge_pages(
    pages: Pages, training: LabelTable, truth: LabelTable
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Precision and recall of each page [epochs]; NaN where there is nothing to divide by.

    Only cells count that are unknown to the training and known in the truth. Precision is the share
    of the cells treated as present that are present. Recall is the share of the present cells that
    were treated as present.
    """
    hidden = (truth.matrix - truth.matrix.multiply(abs(training.matrix))).tocoo()
    rows, columns = hidden.coords
    cells = rows.astype(np.int64) * training.shape[1] + columns
    known, present = cells[hidden.data != 0], cells[hidden.data > 0]
    precision, recall = [], []
    for page in pages.values():
        judged = np.intersect1d(page, known)
        correct = len(np.intersect1d(judged, present))
        precision.append(correct / len(judged) if len(judged) else np.nan)
        recall.append(correct / len(present) if len(present) else np.nan)
    return np.array(precision), np.array(recall)


def treated_as_present(sample: Sample, diary: Diary | None) -> list[Section]:
    """The number of labels treated as present per epoch, and how many of them are present."""
    pages = {} if diary is None else diary.pages(len(sample.ours.run.history()))
    if not any(map(len, pages.values())):
        return []
    title = "Unknown labels that were treated as present"
    caption = (
        "Unknown training labels that the method treated as present, per epoch. Labels that it "
        "treated as absent are not shown. "
    )
    if sample.truth is None:
        caption += "With --truth, this section also shows how many of them are correct."
        return [Section(title, caption, _draw_pages(pages, {}))]
    precision, recall = judge_pages(pages, sample.training, sample.truth)
    lines = {"precision": 100 * precision, "recall": 100 * recall}
    caption += (
        "Precision: the share of them that are present. Recall: the share of all unknown labels "
        "that are present which were treated as present. If precision falls while recall rises, "
        "the model confirms its own errors."
    )
    return [Section(title, caption, _draw_pages(pages, lines))]


def _draw_pages(pages: Pages, lines: dict[str, NDArray[np.float64]]) -> str:
    """The number of labels, and the lines in percent if there are any, over epochs."""
    epochs = list(pages)
    with styled():
        figure, axes = panels(1, 1 + bool(lines), 4.5 * (1 + bool(lines)), 2.6)
        axes[0].plot(epochs, [len(page) for page in pages.values()], color=GREY, lw=2, marker=".")
        axes[0].set(xlabel="epoch", ylim=(0, None), title="labels treated as present")
        for (name, values), colour in zip(lines.items(), (BLUE, GREEN), strict=False):
            axes[1].plot(epochs, values, label=name, color=colour, lw=2, marker=".")
        if lines:
            axes[1].set(xlabel="epoch", ylim=(0, 100), ylabel="%", title="how many are correct")
            axes[1].legend()
        return svg(figure)
