"""The target ``cleanlab``: labels, and probabilities of models that have not seen them."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_file
from partlabel.judging.scoring import score
from partlabel.labels import PRESENT, LabelTable
from partlabel.training.out_of_fold import out_of_fold
from partlabel.training.run import Run
from partlabel.training.run_split import by_humans


def held_out_probabilities(run: Run) -> tuple[LabelTable, NDArray[np.float64]]:
    """The images that some model of a run has not trained on, and the probabilities [n, C] by it.

    These are the validation and reserved images, scored by the final model, and with ``auto`` on
    folds also the training images, scored by the models of the other folds.
    """
    selection, record = run.selection, run.record
    rows = np.concatenate([selection.val, selection.reserved])
    held_out = selection.known.subset(rows)
    scores = score(run, held_out).scores if len(rows) else np.empty((0, len(record.classes)))
    folds = out_of_fold(run)
    if folds is not None:
        rows = np.concatenate([folds.rows, rows])
        scores = np.concatenate([folds.scores, scores])
    if record.calibration is not None:
        scores = record.calibration.open().probabilities(scores)
    return selection.known.subset(rows), scores


def write_cleanlab(run: Run, path: Path) -> int:
    """Write labels and probabilities for ``cleanlab.multilabel_classification``.

    Only images of which all labels are known, and given by people, are written. Returns their
    number.
    """
    table, probabilities = held_out_probabilities(run)
    labels = by_humans(table).dense()
    rows = np.flatnonzero((labels != 0).all(axis=1) & ~np.isnan(probabilities).any(axis=1))
    if not len(rows):
        raise FileError(
            run.folder,
            "no image that a model has not trained on has all labels known, as cleanlab needs it; "
            "label some images for all classes, or use the suspects of `partlabel complete`",
        )
    content = {
        "ids": [table.ids[row] for row in rows.tolist()],
        "classes": list(table.classes),
        "labels": [np.flatnonzero(labels[row] == PRESENT).tolist() for row in rows],
        "pred_probs": probabilities[rows].round(6).tolist(),
    }
    with atomic_file(path) as stream:
        stream.write(json.dumps(content, ensure_ascii=False).encode())
    return len(rows)
