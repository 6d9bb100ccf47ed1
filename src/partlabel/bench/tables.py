"""Results as tables in Markdown: mean and deviation over seeds, as papers print them."""

from collections.abc import Sequence

from partlabel.bench.results import Result, figures_of, spread
from partlabel.errors import count

COUNTS = ("evaluated_classes", "pseudo_labels")  # shown as they are, all others in percent
JUDGED = ("pseudo_absent_accuracy", "pseudo_present_accuracy")
FIGURES = (
    *("mAP", "CP", "CR", "CF1", "OP", "OR", "OF1", "macro_F1", "micro_F1", "exact_match"),
    *("top3_recall", "G1", "G2", "G3", "G4", "G5"),
    *("label_share", "TP", "TN", *JUDGED, *COUNTS),
)


def tables(
    results: list[Result], figures: Sequence[str] | None = None, baseline: str | None = None
) -> str:
    """A table a figure, methods down and labels across; with labels of one kind, figures across.

    Args:
        results: one per training, failed ones too.
        figures: some of ``FIGURES``; by default mAP, and where methods gave pseudo-labels what
            share of those is right, always a table each.
        baseline: a method; beneath each table stand the differences to it.
    """
    notes = _notes(results, figures or ())
    one = len(figures or ()) > 1 and len(set(map(_labels, results))) == 1
    shown = []
    for group in [figures or ()] if one else [[name] for name in figures or _usual(results)]:
        shown.append(_table(_concerned(results, group), group, across=one))
        shares = [name for name in group if name not in COUNTS]
        if baseline is not None and shares:
            gaps = differences(_concerned(results, shares), baseline, shares)
            shown.append(_table(gaps, shares, across=one, difference=f", difference to {baseline}"))
    return "\n".join(filter(None, [*shown, notes]))


def _notes(results: list[Result], figures: Sequence[str]) -> str:
    """Why trainings failed, each reason once, and which figures no training has."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        if "error" in result:
            where = result.get("cell") or result["method"]
            reasons.setdefault(result["error"], []).append(str(where))
    notes = [f"{count(len(c), 'failure')} ({c[0]}): {why}" for why, c in reasons.items()]
    if any("error" not in result for result in results):
        notes += [f"no method has {name}" for name in figures if not figures_of(results, name)]
    return "".join(f"* {note}\n" for note in notes)


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


def _table(
    results: list[Result], figures: Sequence[str], *, across: bool, difference: str = ""
) -> str:
    """One figure with labels across, or these figures across; empty without results."""
    labels = list(dict.fromkeys(map(_labels, results)))
    if not labels:
        return ""
    if across:
        corner, columns = labels[0], {name: (labels[0], name) for name in figures}
    else:
        corner, columns = figures[0], {name: (name, figures[0]) for name in labels}
    lines = [[corner + difference, *columns], ["---"] * (1 + len(columns))]
    for method in dict.fromkeys(result["method"] for result in results):
        own = [result for result in results if result["method"] == method]
        words = [
            _word([result for result in own if _labels(result) == on], figure, bool(difference))
            for on, figure in columns.values()
        ]
        lines.append([method, *words])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _word(results: list[Result], figure: str, signed: bool) -> str:
    """Mean and deviation of a figure over seeds, and how many trainings failed."""
    values, failed = figures_of(results, figure), sum("error" in result for result in results)
    if not values:
        return "failed" if failed else ""
    scale, form = (1, ",.0f") if figure in COUNTS else (100, "z.2f")
    mean, deviation = spread([scale * value for value in values])
    word = format(mean, "+" + form if signed else form)
    if deviation is not None:
        word += f" ± {deviation:{form}}"
    return word + (f" ({failed} failed)" if failed else "")
