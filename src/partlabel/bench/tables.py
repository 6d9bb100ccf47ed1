"""Results as tables in Markdown."""

from typing import Any

import numpy as np

JUDGED = ("pseudo_absent_accuracy", "pseudo_present_accuracy")


def tables(results: list[dict[str, Any]]) -> str:
    """Test mAP, and where methods gave pseudo-labels what share of those is right."""
    judged = {name: [result for result in results if name in result] for name in JUDGED}
    more = [markdown(those, name) for name, those in judged.items() if those]
    return "\n".join([markdown(results), *more])


def markdown(results: list[dict[str, Any]], figure: str = "mAP") -> str:
    """A table of mean and deviation over seeds, in percent: methods down, strategies across."""

    def column(result: dict[str, Any]) -> str:
        share = result["proportion"]
        return str(result["strategy"]) + ("" if share is None else f" {100 * share:g}%")

    rows = list(dict.fromkeys(result["method"] for result in results))
    columns = list(dict.fromkeys(map(column, results)))
    lines = [
        f"| {figure} | {' | '.join(columns)} |",
        "| --- " * (len(columns) + 1) + "|",
    ]
    for row in rows:
        words = []
        for name in columns:
            here = [r for r in results if r["method"] == row and column(r) == name]
            values = [100 * r[figure] for r in here if r.get(figure) is not None]
            failed = sum("error" in r for r in here)
            word = "" if not here else "failed" if not values else f"{np.mean(values):.2f}"
            if len(values) > 1:
                word += f" ± {np.std(values, ddof=1):.2f}"
            words.append(word + (f" ({failed} failed)" if failed and values else ""))
        lines.append(f"| {row} | {' | '.join(words)} |")
    return "\n".join(lines) + "\n"
