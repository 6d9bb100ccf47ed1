"""The scores of training images by models that were not trained on them, as ``auto`` keeps them."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from partlabel.base.errors import FileError
from partlabel.training.checkpoint import load_state
from partlabel.training.run import Run


class OutOfFold(NamedTuple):
    """Scores [k, C] of training images (rows [k]) by models that were not trained on their fold."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    folds: NDArray[np.int64]


def out_of_fold(run: Run) -> OutOfFold | None:
    """The out-of-fold scores of a run; None if it has none."""
    path = run.folder / "out_of_fold.safetensors"
    if not path.is_file():
        return None
    state = load_state(path)
    state = state if isinstance(state, dict) else {}
    parts = [state.get(name) for name in ("rows", "logits", "folds")]
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    if len(tensors) < len(parts):
        raise FileError(path, "is damaged, or of an earlier version; train again")
    rows, logits, folds = tensors
    scores = 1 / (1 + np.exp(-logits.double().numpy()))
    images, classes = run.selection.known.shape
    positions = rows.numpy()
    fits = scores.shape == (len(positions), classes) and folds.shape == rows.shape
    if not fits or (len(positions) and not (positions.min() >= 0 and positions.max() < images)):
        raise FileError(path, "does not fit the labels of the run; train again")
    return OutOfFold(positions, scores, folds.numpy())
