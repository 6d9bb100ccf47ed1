"""Features of the images of a run, as the order by information needs them."""

import numpy as np
from numpy.typing import NDArray

from partlabel.labels import LabelTable
from partlabel.models.prediction import InputSource, iterate_logits
from partlabel.training.devices import find_device
from partlabel.training.embedded import inputs_of
from partlabel.training.run import Run

_IN_MEMORY = 2 << 30  # bytes of features that are kept
_SAMPLE = 2000  # images that the mean length of the features is measured on

Rows = NDArray[np.int64]


class RunFeatures:
    """The features of images that a run's head gets, averaged over positions, of mean length 1.

    Args:
        table: the images.
        rows: those of them that can be decoded.
    """

    def __init__(self, run: Run, table: LabelTable, rows: Rows) -> None:
        self.run, self.model = run, run.classifier().to(find_device(run.execution.device))
        self.inputs: InputSource = inputs_of(run, self.model, table, evidence=False)
        sample = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE)).astype(int))]
        vectors = self._read(sample)
        self.scale = 1 / max(float(np.sqrt(np.mean(np.sum(vectors**2, axis=1)))), 1e-12)
        self.kept: NDArray[np.float32] | None = None
        if len(table) * vectors.shape[1] * 4 <= _IN_MEMORY:
            self.kept = np.zeros((len(table), vectors.shape[1]), dtype=np.float32)
            self.kept[rows] = self._read(rows) * self.scale

    def __call__(self, rows: Rows) -> NDArray[np.float32]:
        """[m, D] features of these rows [m]."""
        return self._read(rows) * self.scale if self.kept is None else self.kept[rows]

    def _read(self, rows: Rows) -> NDArray[np.float32]:
        parts = iterate_logits(
            self.model,
            self.inputs,
            rows,
            self.run.settings.batch,
            self.run.execution.workers,
            forward=lambda model, maps: model.backbone(maps).mean(dim=(2, 3)),
        )
        return np.concatenate([vectors.cpu().numpy() for _, vectors in parts])
