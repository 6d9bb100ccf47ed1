"""What the method ``auto`` tried, instead of the curves of a single training."""

from partlabel.output.report.section import Section
from partlabel.training.auto.leaderboard import as_table, command_for, read_leaderboard
from partlabel.training.run import Run


def tried_candidates(run: Run) -> Section:
    """The leaderboard of a run, and the members of its ensemble."""
    lines, members = read_leaderboard(run.folder), run.record.members
    header, rows = as_table(lines)
    names = "; ".join(f"{member.name} ({member.share:.0%})" for member in members)
    caption = (
        f"Candidates were compared by {header[1]} in percent, on labels that they were not trained "
        "on. Compare lines with the same number of folds only: candidates that were behind on "
        f"the first folds were not trained on all. The run has the weighted sum of the logits of: "
        f"{names}. "
    )
    if "AUC" in header[1]:
        caption += (
            "Too few labels are known to be absent to measure mAP, so the figure is how high known "
            "positives rank among all images. "
        )
    if len(members) == 1 and "taught" not in members[0].name:
        caption += f"To train it alone: {command_for(members[0].settings)}"
    return Section("What was tried", caption.strip(), header=header, rows=rows)
