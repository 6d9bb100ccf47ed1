"""Reliability diagrams: whether scores can be read as probabilities."""

from partlabel.judging.completion import Assessment
from partlabel.metrics.calibration import Bins
from partlabel.output.drawing import BLUE, GREY, panels, styled, svg
from partlabel.output.report.section import Section, percent


def reliability_diagrams(assessment: Assessment, classes: list[str]) -> list[Section]:
    """Diagrams of raw and of calibrated scores; none without reserved labels."""
    before, after = assessment.before, assessment.after
    if not len(before.cells):
        return []
    own = int(assessment.calibration.own.sum())
    fitted = {0: "one curve for all classes", len(classes): "one curve per class"}.get(
        own, f"one curve for each of {own} classes, and one for the others, which have few labels"
    )
    caption = (
        f"On {int(before.cells.sum()):,} labels that were held out: the share of labels that are "
        "present, among labels with about the same score. On the diagonal, a score is a "
        "probability. Larger dots stand for more labels. The expected calibration error is "
        f"{percent(before.error)}% for raw scores and {percent(after.error)}% after calibration on "
        f"other labels ({fitted}). `complete` writes calibrated scores."
    )
    title = "Can scores be read as probabilities?"
    return [Section(title, caption, _draw_diagrams(before, after))]


def _draw_diagrams(before: Bins, after: Bins) -> str:
    with styled():
        figure, grid = panels(1, 2, 7.5, 3.4)
        for axes, bins, title in zip(
            grid, (before, after), ("raw scores", "calibrated"), strict=True
        ):
            axes.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
            sizes = 12 + 120 * (bins.cells / bins.cells.max()) ** 0.5
            axes.plot(bins.predicted, bins.present, color=BLUE, lw=1.2)
            axes.scatter(bins.predicted, bins.present, sizes, color=BLUE, zorder=3)
            axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
            axes.set(title=f"{title}, error {percent(bins.error)}%", xlabel="score")
        grid[0].set_ylabel("share present")
        return svg(figure)
