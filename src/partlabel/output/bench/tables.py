"""Results as tables: mean and deviation over seeds, as papers print them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import ttest_1samp

from partlabel.base.errors import count
from partlabel.output.bench.results import Result, figures_of, spread
from partlabel.output.bench.sheets import Sheet, latex, markdown

COUNTS = ("evaluated_classes", "pseudo_labels")  # shown as they are, all others in percent
JUDGED = ("pseudo_absent_accuracy", "pseudo_present_accuracy")
FIGURES = (
    *("mAP", "CP", "CR", "CF1", "OP", "OR", "OF1", "macro_F1", "micro_F1", "exact_match"),
    *("top3_recall", "G1", "G2", "G3", "G4", "G5"),
    *("label_share", "TP", "TN", *JUDGED, *COUNTS),
)


@dataclass(frozen=True)
class Comparison:
    """What the numbers of a table are compared with.

    Args:
        title: added to the name of the figure; empty for the figures themselves.
        signed: whether the numbers are differences, which have a sign and can be tested.
    """

    title: str = ""
    signed: bool = False


PLAIN = Comparison()


@dataclass(frozen=True)
class Tables:
    """What results say: tables, and remarks beneath them."""

    sheets: list[Sheet]
    notes: list[str]

    def markdown(self) -> str:
        """All of it as text."""
        notes = "".join(f"* {note}\n" for note in self.notes)
        return "\n".join(filter(None, [*map(markdown, self.sheets), notes]))

    def latex(self) -> str:
        """The tables alone."""
        return "\n".join(map(latex, self.sheets))


def tables(
    results: list[Result],
    figures: Sequence[str] | None = None,
    baseline: str | None = None,
    ceiling: str | None = None,
) -> Tables:
    """A table a figure, methods down and labels across; with labels of one kind, figures across.

    Args:
        results: one per training, failed ones too.
        figures: some of ``FIGURES``; by default mAP, and where methods gave pseudo-labels what
            share of those is right, always a table each.
        baseline: a method; beneath each table stand the differences to it.
        ceiling: a method that knows more; beneath that stands how much of the gap from the baseline
            to it each method closes.
    """
    one = len(figures or ()) > 1 and len(set(map(_labels, results))) == 1
    columns = list(dict.fromkeys(map(_labels, results)))

    def sheet(some: list[Result], names: Sequence[str], kind: Comparison = PLAIN) -> Sheet:
        return _sheet(some, names, columns, across=one, kind=kind)

    shown = []
    for group in [figures or ()] if one else [[name] for name in figures or _usual(results)]:
        shown.append(sheet(_concerned(results, group), group))
        shares = [name for name in group if name not in COUNTS]
        if baseline is None or not shares:
            continue
        here = _concerned(results, shares)
        gaps = differences(here, baseline, shares)
        shown.append(sheet(gaps, shares, Comparison(f"difference to {baseline}", signed=True)))
        if ceiling is not None:
            closed = gap_closed(here, baseline, ceiling, shares)
            kind = Comparison(f"% of the gap from {baseline} to {ceiling}")
            shown.append(sheet(closed, shares, kind))
    return Tables([made for made in shown if made.rows], _notes(results, figures or ()))


def _notes(results: list[Result], figures: Sequence[str]) -> list[str]:
    """Why trainings failed, each reason once, and which figures no training has."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        if "error" in result:
            where = result.get("cell") or result["method"]
            reasons.setdefault(result["error"], []).append(str(where))
    notes = [f"{count(len(c), 'failure')} ({c[0]}): {why}" for why, c in reasons.items()]
    if any("error" not in result for result in results):
        notes += [f"no method has {name}" for name in figures if not figures_of(results, name)]
    return notes


def differences(results: list[Result], baseline: str, figures: Sequence[str]) -> list[Result]:
    """Figures of the other methods minus those of the baseline on the same labels and seed.

    A pair of which one failed is a failure; a result without a partner is left out.
    """

    def key(result: Result) -> tuple[object, ...]:
        return result["strategy"], result["proportion"], result["seed"]

    partners = {key(result): result for result in results if result["method"] == baseline}
    gaps = []
    for ours in results:
        theirs = partners.get(key(ours))
        if theirs is None or ours["method"] == baseline:
            continue
        gap = {name: ours[name] for name in ("method", "strategy", "proportion", "seed")}
        error = ours.get("error") or theirs.get("error")
        both = [n for n in figures if ours.get(n) is not None and theirs.get(n) is not None]
        gap |= {name: ours[name] - theirs[name] for name in both}
        gaps.append(gap if error is None else gap | {"error": error})
    return gaps


def gap_closed(
    results: list[Result], baseline: str, ceiling: str, figures: Sequence[str]
) -> list[Result]:
    """How far a method goes on the way from the baseline to the ceiling, by means over seeds.

    A result for each method and kind of labels, over the seeds that all three have; none where the
    ceiling is not above the baseline. The ceiling has the same labels, or labels of one kind.
    """
    closed = []
    tops = [result for result in results if result["method"] == ceiling]
    for method in dict.fromkeys(result["method"] for result in results):
        own = [result for result in results if result["method"] == method]
        for labels in dict.fromkeys(map(_labels, own)) if method not in (baseline, ceiling) else ():
            here = [result for result in own if _labels(result) == labels]
            same = [result for result in tops if _labels(result) == labels] or tops
            bases = [r for r in results if r["method"] == baseline and _labels(r) == labels]
            parts = [{r["seed"]: r for r in group} for group in (here, bases, same)]
            shared = [seed for seed in parts[0] if all(seed in part for part in parts)]
            kept = {name: here[0][name] for name in ("method", "strategy", "proportion")}
            failed = [r["error"] for r in here if "error" in r]
            for name in figures:
                whole = [seed for seed in shared if all(part[seed].get(name) for part in parts)]
                ours, base, top = (sum(part[seed][name] for seed in whole) for part in parts)
                if top > base:
                    kept[name] = (ours - base) / (top - base)
            closed.append(kept | ({"error": failed[0]} if failed else {}))
    return closed


def _usual(results: list[Result]) -> list[str]:
    return ["mAP", *(name for name in JUDGED if any(name in result for result in results))]


def _labels(result: Result) -> str:
    """What a method was trained on, as the head of a column."""
    share = result["proportion"]
    return str(result["strategy"]) + ("" if share is None else f" {100 * share:g}%")


def _concerned(results: list[Result], figures: Sequence[str]) -> list[Result]:
    """Without the methods that were tested and have none of these figures."""
    tested = {result["method"] for result in results if "error" not in result}
    having = {r["method"] for r in results if any(r.get(name) is not None for name in figures)}
    return [result for result in results if result["method"] not in tested - having]


def _sheet(
    results: list[Result],
    figures: Sequence[str],
    order: list[str],
    *,
    across: bool,
    kind: Comparison,
) -> Sheet:
    """One figure with labels across, in this order, or figures across; empty without results."""
    there = set(map(_labels, results))
    labels = [name for name in order if name in there]
    if not labels:
        return Sheet([], [])
    if across:
        corner, columns = labels[0], {name: (labels[0], name) for name in figures}
    else:
        corner, columns = figures[0], {name: (name, figures[0]) for name in labels}
    rows, means = [], []
    for method in dict.fromkeys(result["method"] for result in results):
        own = [result for result in results if result["method"] == method]
        cells = [
            ([result for result in own if _labels(result) == on], figure)
            for on, figure in columns.values()
        ]
        rows.append([method, *(_word(*cell, signed=kind.signed) for cell in cells)])
        means.append([_mean(*cell) for cell in cells])
    best = set() if kind.title else _best(means, list(columns.values()))
    title = f"{corner}, {kind.title}" if kind.title else corner
    return Sheet([title, *columns], rows, best)


def _best(means: list[list[float]], columns: list[tuple[str, str]]) -> set[tuple[int, int]]:
    """The highest of each column, if there is something to choose from."""
    best = set()
    for j, (_, figure) in enumerate(columns, 1):
        column = [round(row[j - 1], 4) for row in means]  # as it is printed
        having = [mean for mean in column if not math.isnan(mean)]
        if len(having) > 1 and figure not in COUNTS:
            best |= {(i, j) for i, mean in enumerate(column) if mean == max(having)}
    return best


def _mean(results: list[Result], figure: str) -> float:
    values = figures_of(results, figure)
    return spread(values)[0] if values else math.nan


def _word(results: list[Result], figure: str, *, signed: bool) -> str:
    """Mean and deviation of a figure over seeds, and how many trainings failed.

    Of differences also how well they go with no difference at all: a paired t-test.
    """
    values, failed = figures_of(results, figure), sum("error" in result for result in results)
    if not values:
        return "failed" if failed else ""
    scale, form = (1, ",.0f") if figure in COUNTS else (100, "z.2f")
    mean, deviation = spread([scale * value for value in values])
    word = format(mean, "+" + form if signed else form)
    if deviation is not None:
        word += f" ± {deviation:{form}}"
    if signed and (deviation or 0) > 1e-9:
        word += f" (p = {ttest_1samp(values, 0).pvalue:.2g})"
    return word + (f" ({failed} failed)" if failed else "")
