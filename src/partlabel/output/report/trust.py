"""How far scores can be trusted: what they say against what is there, and what is promised."""

from scipy.special import expit

from partlabel.judging.completion import Assessment
from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.calibration import Bins
from partlabel.metrics.guarantee import Guarantee
from partlabel.output.drawing import BLUE, GREY, panels, styled, svg
from partlabel.output.report.parts import Part, percent


def trust(assessment: Assessment, classes: list[str], nothing: str) -> list[Part]:
    """Reliability diagrams, and what is promised of which class, or why there is nothing."""
    before, after = assessment.before, assessment.after
    if not len(before.cells):
        return [Part("What `complete` promises", nothing.capitalize() + ".")] if nothing else []
    own = int(assessment.calibration.own.sum())
    lines = {0: "one line for all classes", len(classes): "a line for each class"}.get(
        own, f"a line for each of {own} classes, and one for all others, of which few are known"
    )
    caption = (
        f"On {int(before.cells.sum()):,} labels of reserved images: of the labels that the "
        "model gives some probability, how many are present. On the diagonal it means what it "
        "says. Larger dots are more labels. The expected calibration error is "
        f"{percent(before.error)}% as it is, and {percent(after.error)}% calibrated on validation "
        f"labels ({lines}). `complete` writes calibrated scores."
    )
    return [
        Part("What scores mean", caption, _diagrams(before, after)),
        *_promised(assessment, classes),
    ]


def _diagrams(before: Bins, after: Bins) -> str:
    with styled():
        figure, grid = panels(1, 2, 7.5, 3.4)
        for axes, bins, title in zip(
            grid, (before, after), ("as it is", "calibrated"), strict=True
        ):
            axes.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
            sizes = 12 + 120 * (bins.cells / bins.cells.max()) ** 0.5
            axes.plot(bins.said, bins.present, color=BLUE, lw=1.2)
            axes.scatter(bins.said, bins.present, sizes, color=BLUE, zorder=3)
            axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
            axes.set(title=f"{title}, error {percent(bins.error)}%", xlabel="score")
        grid[0].set_ylabel("share present")
        return svg(figure)


def _promised(assessment: Assessment, classes: list[str]) -> list[Part]:
    rows = [
        [
            name,
            *_words(assessment.guarantees.present[j], 1),
            *_words(assessment.guarantees.absent[j], -1),
        ]
        for j, name in enumerate(classes)
    ]
    filled = assessment.filled
    caption = (
        "From which calibrated score up a label is filled in as present, and from which down as "
        f"absent, so that {100 * assessment.precision:g}% of these are right; and how many of the "
        "reserved labels beyond that were right. A class with few labels is tested together with "
        f"others (pooled). Of the reserved labels, {percent(filled[PRESENT])}% would have been "
        f"filled in as present and {percent(filled[ABSENT])}% as absent."
    )
    header = ["class", "present from", "right", "tested on", "absent to", "right", "tested on"]
    return [Part("What `complete` promises", caption, header=header, rows=rows, words=True)]


def _words(promise: Guarantee, sign: int) -> list[str]:
    if not promise.basis:
        return ["-", "-", "-"]
    limit = promise.limit
    right = f"{limit.right:,} of {limit.tested:,}"
    return [percent(float(expit(sign * limit.threshold))), right, promise.basis]
