"""Labels that the method itself gave to unknown cells, or estimated."""

from typing import Any

import numpy as np

from partlabel.base.errors import count
from partlabel.judging.pseudo_label_rates import ratio, read_tally, rounds_before
from partlabel.judging.scoring import has_estimates, label_estimates
from partlabel.metrics import evaluate
from partlabel.output.report.round_table import round_table
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Section, percent


def pseudo_labels(sample: Sample) -> list[Section]:
    """The pseudo-labels of each round, if the method gives any."""
    tally = read_tally(sample.ours.run, sample.truth)
    if tally is None or not len(tally.given):
        return []
    unknown = int(sample.training.counts().unknown.sum())
    header, rows = round_table(tally, unknown, sample.classes, percent)
    caption = (
        "Labels that the method gave to unknown cells in each round, and the share of the unknown "
        "cells, in percent, that have one so far. "
        f"{rounds_before(sample.ours.run)} of {count(len(tally.given), 'round')} came before the "
        "epoch that was kept. "
    )
    if tally.judged.any():
        caption += (
            f"Of the labels whose truth is known, {percent(ratio(tally.right, tally.judged))}% are "
            "correct. Check whether later rounds get worse, and whether most errors are in one "
            "class."
        )
        if "TP" in header:
            caption += (
                " TP and TN: the share of correct labels among cells that are truly present and "
                "truly absent."
            )
    else:
        caption += "With --truth, this table also shows how many of them are correct."
    return [Section("Pseudo-labels", caption, "", header, rows, bool(tally.judged.any()))]


def own_estimates(sample: Sample) -> list[Section]:
    """The method's own estimates compared with the scores of its classifier, if it has any."""
    if sample.truth is None or not has_estimates(sample.ours.run):
        return []
    _, estimates = label_estimates(sample.ours.run)
    truth = sample.truth.dense(sample.drawn)
    unknown = np.where(sample.labels == 0, truth, 0).astype(np.int8)
    both: list[tuple[str, Any]] = [
        ("the classifier", sample.ours.train),
        ("the method's own estimates", estimates[sample.drawn]),
    ]
    rows = [
        [name, *(percent(evaluate(scores, labels)["mAP"]) for labels in (truth, unknown))]
        for name, scores in both
    ]
    caption = (
        "mAP in percent against the truth, on the same "
        f"{count(len(sample.drawn), 'training image')}: over all labels, and over those that were "
        "unknown to the training. The estimates are those at the end of the training, the "
        "classifier is that of the epoch that was kept."
    )
    header = ["", "all labels", "unannotated labels"]
    return [Section("The method's own estimates", caption, "", header, rows)]
