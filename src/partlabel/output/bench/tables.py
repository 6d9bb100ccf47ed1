"""Tables of results: mean and standard deviation over seeds, as papers print them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from partlabel.base.errors import count
from partlabel.learning.method import PSEUDO_LABELS
from partlabel.output.bench.results import Result, figures_of, name_of_labels, spread
from partlabel.output.bench.sheets import Sheet, latex, markdown
from partlabel.output.bench.uncertainty import RESAMPLED, TEST_IMAGES, Sureness, sureness
from partlabel.output.markup import escape_markdown

COUNTS = ("evaluated_classes", PSEUDO_LABELS)  # whole numbers; all others are in percent
WHOLE_MAP, VALIDATION = "mAP_whole", "val_mAP"
JUDGED = ("pseudo_absent_accuracy", "pseudo_present_accuracy")
FIGURES = (
    *("mAP", "CP", "CR", "CF1", "OP", "OR", "OF1", "macro_F1", "micro_F1", "exact_match"),
    *(WHOLE_MAP, VALIDATION, "top3_recall", "G1", "G2", "G3", "G4", "G5"),
    *("label_share", "TP", "TN", *JUDGED, *COUNTS),
)


@dataclass(frozen=True)
class Comparison:
    """What the numbers of a table are compared with.

    Args:
        title: added to the name of the figure; empty for the figures themselves.
        signed: whether the numbers are differences, which have a sign and can be tested.
        folds: the number of parts of the images, if each seed tests on another one; else 0.
    """

    title: str = ""
    signed: bool = False
    folds: int = 0


PLAIN = Comparison()


@dataclass(frozen=True)
class Layout:
    """How the tables are arranged.

    Args:
        labels: the kinds of labels, in the order of the columns.
        side_by_side: whether the columns are figures, for labels of one kind; else the columns are
            kinds of labels, and each figure has a table.
    """

    labels: list[str]
    side_by_side: bool


class Column(NamedTuple):
    """A column of a table: one figure of the methods trained on one kind of labels."""

    title: str
    labels: str
    figure: str


@dataclass(frozen=True)
class Tables:
    """The tables of a benchmark, and notes below them."""

    sheets: list[Sheet]
    notes: list[str]

    def markdown(self) -> str:
        """Tables and notes in Markdown."""
        notes = "".join(f"* {escape_markdown(note)}\n" for note in self.notes)
        return "\n".join(filter(None, [*map(markdown, self.sheets), notes]))

    def latex(self) -> str:
        """The tables in LaTeX, without the notes."""
        return "\n".join(map(latex, self.sheets))


def tables(
    results: list[Result],
    figures: Sequence[str] | None = None,
    baseline: str | None = None,
    ceiling: str | None = None,
    folds: int = 0,
) -> Tables:
    """One table per figure, with a row per method and a column per kind of labels.

    If there are several figures and only one kind of labels, there is one table with a column per
    figure instead.

    Args:
        results: one per training, including failed ones.
        figures: some of ``FIGURES``. By default mAP and, if a method gave pseudo-labels, the share
            of these that is correct.
        baseline: a method; below each table is another with the differences to it.
        folds: the number of parts of the images, if each seed tests on another one; else 0.
        ceiling: a method that knows more labels; a third table shows how much of the gap from the
            baseline to it each method closes.
    """
    labels = list(dict.fromkeys(map(_labels, results)))
    if figures is not None and len(figures) > 1 and len(labels) == 1:
        layout, groups = Layout(labels, side_by_side=True), [figures]
    else:
        layout = Layout(labels, side_by_side=False)
        groups = [[name] for name in figures or _default_figures(results)]
    sheets = []
    for group in groups:
        sheets.append(_sheet(_results_with(results, group), group, layout))
        if baseline is not None:
            sheets += _comparisons(results, group, layout, baseline, ceiling, folds)
    notes = _notes(results, figures or ())
    if baseline is not None and any(RESAMPLED in result for result in results):
        several = len({result.get("seed") for result in results}) > 1
        notes.append(
            "differences of mAP have an interval of 95% and a p-value, for other test images"
            + (" and other seeds" if several else "; one seed does not show what another changes")
        )
    return Tables([sheet for sheet in sheets if sheet.rows], notes)


def _default_figures(results: list[Result]) -> list[str]:
    """mAP, and those others that a result has; validation comes last."""
    others = (WHOLE_MAP, *JUDGED, VALIDATION)
    return ["mAP", *(n for n in others if any(r.get(n) is not None for r in results))]


def _comparisons(
    results: list[Result],
    figures: Sequence[str],
    layout: Layout,
    baseline: str,
    ceiling: str | None,
    folds: int,
) -> list[Sheet]:
    """Tables that compare methods with the baseline and, if there is one, with the ceiling."""
    shares = [name for name in figures if name not in (*COUNTS, VALIDATION)]
    if not shares:
        return []
    results = _results_with(results, shares)
    gaps = differences(results, baseline, shares)
    comparison = Comparison(f"difference to {baseline}", signed=True, folds=folds)
    sheets = [_sheet(gaps, shares, layout, comparison)]
    if ceiling is not None:
        closed = gap_closed(results, baseline, ceiling, shares)
        comparison = Comparison(f"% of the gap from {baseline} to {ceiling}")
        sheets.append(_sheet(closed, shares, layout, comparison))
    return sheets


def _notes(results: list[Result], figures: Sequence[str]) -> list[str]:
    """Why trainings failed, each reason once, and which figures no training has."""
    failures: dict[str, list[str]] = {}
    for result in results:
        if "error" in result:
            name = str(result.get("cell") or result["method"])
            failures.setdefault(result["error"], []).append(name)
    notes = [
        f"{count(len(names), 'failure')} ({names[0]}): {error}" for error, names in failures.items()
    ]
    if any("error" not in result for result in results):
        notes += [f"no method has {name}" for name in figures if not figures_of(results, name)]
    return notes


def differences(results: list[Result], baseline: str, figures: Sequence[str]) -> list[Result]:
    """The figures of other methods minus those of the baseline on the same labels and seed.

    If one of the two failed, the difference is a failure. A result is left out if the baseline was
    not trained on the same labels and seed.
    """

    def key(result: Result) -> tuple[object, ...]:
        return result["strategy"], result["proportion"], result["seed"]

    baselines = {key(result): result for result in results if result["method"] == baseline}
    gaps = []
    for result in results:
        other = baselines.get(key(result))
        if other is None or result["method"] == baseline:
            continue
        gap = {name: result[name] for name in ("method", "strategy", "proportion", "seed")}
        for name in figures:
            if result.get(name) is not None and other.get(name) is not None:
                gap[name] = result[name] - other[name]
        if RESAMPLED in result and result.get(TEST_IMAGES) == other.get(TEST_IMAGES):
            pairs = zip(result[RESAMPLED], other[RESAMPLED], strict=True)
            gap[RESAMPLED] = [None if None in pair else pair[0] - pair[1] for pair in pairs]
            gap[TEST_IMAGES] = result[TEST_IMAGES]
        error = result.get("error") or other.get("error")
        if error is not None:
            gap["error"] = error
        gaps.append(gap)
    return gaps


def gap_closed(
    results: list[Result], baseline: str, ceiling: str, figures: Sequence[str]
) -> list[Result]:
    """The share of the gap from the baseline to the ceiling that each method closes.

    One result per method and kind of labels. The ceiling is that for the same labels if there is
    one, else all results of the ceiling.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result["method"], _labels(result)), []).append(result)
    all_ceilings = [result for result in results if result["method"] == ceiling]
    closed = []
    for (method, labels), group in groups.items():
        if method in (baseline, ceiling):
            continue
        below = groups.get((baseline, labels), [])
        above = groups.get((ceiling, labels), all_ceilings)
        shares = {name: group[0][name] for name in ("method", "strategy", "proportion")}
        for figure in figures:
            share = _share_of_gap(group, below, above, figure)
            if share is not None:
                shares[figure] = share
        errors = [result["error"] for result in group if "error" in result]
        if errors:
            shares["error"] = errors[0]
        closed.append(shares)
    return closed


def _share_of_gap(
    results: list[Result], below: list[Result], above: list[Result], figure: str
) -> float | None:
    """The share of the gap between two methods that a third one closes, by means over seeds.

    Only seeds for which all three have the figure are used. None if there is no gap.
    """
    by_seed = [
        {result["seed"]: result.get(figure) for result in group}
        for group in (results, below, above)
    ]
    seeds = [seed for seed in by_seed[0] if all(v.get(seed) is not None for v in by_seed)]
    own, low, high = (sum(values[seed] or 0.0 for seed in seeds) for values in by_seed)
    return (own - low) / (high - low) if high > low else None


def _labels(result: Result) -> str:
    """The kind of labels that a method was trained on."""
    return name_of_labels(result["strategy"], result["proportion"])


def _results_with(results: list[Result], figures: Sequence[str]) -> list[Result]:
    """The results, without methods that were tested but have none of these figures."""
    tested = {result["method"] for result in results if "error" not in result}
    with_figures = {
        result["method"]
        for result in results
        if any(result.get(name) is not None for name in figures)
    }
    return [result for result in results if result["method"] not in tested - with_figures]


def _sheet(
    results: list[Result],
    figures: Sequence[str],
    layout: Layout,
    comparison: Comparison = PLAIN,
) -> Sheet:
    """A table of results; without rows if there are no results."""
    existing = {_labels(result) for result in results}
    labels = [name for name in layout.labels if name in existing]
    if not labels:
        return Sheet([], [])
    if layout.side_by_side:
        corner, columns = labels[0], [Column(name, labels[0], name) for name in figures]
    else:
        corner, columns = figures[0], [Column(name, name, figures[0]) for name in labels]
    rows, means = [], []
    for method in dict.fromkeys(result["method"] for result in results):
        own = [result for result in results if result["method"] == method]
        texts, values = [], []
        for column in columns:
            cell = [result for result in own if _labels(result) == column.labels]
            texts.append(_format(cell, column.figure, comparison))
            values.append(_mean(cell, column.figure))
        rows.append([method, *texts])
        means.append(values)
    if comparison.title:
        return Sheet([f"{corner}, {comparison.title}", *(one.title for one in columns)], rows)
    return Sheet([corner, *(one.title for one in columns)], rows, _best(means, columns))


def _best(means: list[list[float]], columns: list[Column]) -> set[tuple[int, int]]:
    """The cells (row, column) with the highest mean of a column with two means or more.

    The first column of a table is the name of the method, so columns count from 1.
    """
    best = set()
    for j, column in enumerate(columns):
        values = [round(row[j], 4) for row in means]  # as printed
        numbers = [value for value in values if not math.isnan(value)]
        if len(numbers) > 1 and column.figure not in COUNTS:
            best |= {(i, j + 1) for i, value in enumerate(values) if value == max(numbers)}
    return best


def _mean(results: list[Result], figure: str) -> float:
    values = figures_of(results, figure)
    return spread(values)[0] if values else math.nan


def _format(results: list[Result], figure: str, comparison: Comparison) -> str:
    """Mean and standard deviation of a figure over seeds, and the number of failed trainings.

    Differences of mAP also have an interval and a p-value.
    """
    values = figures_of(results, figure)
    failed = sum("error" in result for result in results)
    if not values:
        return "failed" if failed else ""
    scale, form = (1, ",.0f") if figure in COUNTS else (100, "z.2f")
    mean, deviation = spread([scale * value for value in values])
    text = format(mean, "+" + form if comparison.signed else form)
    if deviation is not None:
        text += f" ± {deviation:{form}}"
    if comparison.signed and figure == "mAP" and (sure := _sureness(results, comparison.folds)):
        low, high = 100 * sure.low, 100 * sure.high
        text += f" ({low:+.2f} to {high:+.2f}, p = {sure.p_value:.2g})"
    return f"{text} ({failed} failed)" if failed else text


def _sureness(results: list[Result], folds: int) -> Sureness | None:
    """How sure a mean difference of mAP is; None without resampled test images."""
    own = [one for one in results if one.get("mAP") is not None and RESAMPLED in one]
    if not own or len(own) < len(figures_of(results, "mAP")):
        return None
    resampled = [np.array(one[RESAMPLED], dtype=np.float64) for one in own]
    same_images = len({one[TEST_IMAGES] for one in own}) == 1
    values = [one["mAP"] for one in own]
    return sureness(values, resampled, same_images=same_images, folds=folds or len(own) + 1)
