"""Scores of the images that a run was trained on."""

from partlabel.judging.scoring import Scored, score
from partlabel.training.run import Run


def score_training(run: Run) -> Scored:
    """The scores of the training images of a run, with all labels that are known."""
    selection = run.selection
    table = selection.labels.with_classes(selection.classes).subset(selection.train)
    return score(run, table)
