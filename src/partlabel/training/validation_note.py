"""The validation figure of a finished run in words, and how much it rests on."""

import numpy as np

from partlabel.base.errors import count
from partlabel.training.run import Run

_FEW = 10  # present labels of a class, below which its average precision is mostly chance


def describe_validation(run: Run) -> str:
    """Validation mAP with the number of images; empty if the run has none.

    A run of ``auto`` on folds is validated on its training images, each by models that were not
    trained on it.
    """
    if run.record.best_val_mAP is None:
        return ""
    selection = run.selection
    table = selection.validation if len(selection.val) else selection.training
    counts = table.counts()
    present = counts.present[(counts.present > 0) & (counts.absent > 0)]
    labelled = int(np.count_nonzero(np.diff(table.cells.starts)))
    text = f"validation mAP {100 * run.record.best_val_mAP:.2f} on {count(labelled, 'image')}"
    if run.record.members and not len(selection.val):
        text += ", each scored by models and weights that its labels had no part in"
    few = int((present < _FEW).sum())
    if few:
        have = "has" if few == 1 else "have"
        text += (
            f", a rough figure: {few} of {count(len(present), 'class', 'classes')} {have} fewer "
            f"than {_FEW} present labels there"
        )
    return text
