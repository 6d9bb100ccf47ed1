"""Scores of the images that a run was trained on."""

import numpy as np

from partlabel.judging.scoring import Scored, score
from partlabel.training.run import Run


def score_training(run: Run) -> Scored:
    """The scores of the training images of a run, with all labels that are known."""
    selection = run.selection
    table = selection.labels.with_classes(selection.classes).subset(selection.train)
    return score(run, table)


def unlearned(run: Run) -> list[str]:
    """The classes of its labels that a run has not learned, since none is known to be present."""
    used = {*run.selection.classes, *(run.selection.side or [])}
    return [name for name in run.selection.labels.classes if name not in used]


def with_unlearned(run: Run, scored: Scored) -> Scored:
    """The scores of training images, and for classes that the run has not learned one for all.

    It is the share of present labels that so many absent ones leave likely. So questions about
    these classes are spread over unlike images, until a present label is found.
    """
    names, selection = unlearned(run), run.selection
    if not names:
        return scored
    table = selection.labels.with_classes([*selection.classes, *names]).subset(selection.train)
    counts = table.counts()
    share = ((counts.present + 0.5) / (counts.present + counts.absent + 1))[-len(names) :]
    constant = np.where(scored.readable[:, None], share, np.nan)
    return Scored(table, np.concatenate([scored.scores, constant], axis=1), scored.broken)
