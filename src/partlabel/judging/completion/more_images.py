"""Images that a run was not given: found, scored, and compared with those of the test."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count
from partlabel.images.named_images import open_images
from partlabel.judging.scoring import Scored, score
from partlabel.labels import LabelTable
from partlabel.metrics.shift import Shift, measure_shift
from partlabel.models.prediction import iterate_logits
from partlabel.training.devices import find_device
from partlabel.training.embedded import inputs_of
from partlabel.training.run import Run

MOST_AUC, LEAST_EFFECTIVE = (
    0.75,
    0.25,
)  # beyond these, images differ too much from the test's
_COMPARED = 2000  # images of each kind that are compared
_LEAST = 30  # new images below which a comparison says nothing


class More(NamedTuple):
    """New images with scores, the difference from those of the test, and whether it is too large.

    Args:
        scored: the scores of the new images.
        shift: None if there are too few images to measure it.
    """

    scored: Scored
    shift: Shift | None

    @property
    def is_alike(self) -> bool:
        """Whether the new images are similar enough to those of the test."""
        shift = self.shift
        return shift is None or (shift.auc <= MOST_AUC and shift.effective >= LEAST_EFFECTIVE)

    def describe(self, *, filled: bool) -> str:
        """How many images there are, and how much they differ from those of the test."""
        images = count(len(self.scored.table), "image")
        text = f"{images} that the label file does not mention"
        text += " are completed too" if filled else " are not completed"
        if self.shift is None:
            return text
        text += (
            f". A classifier tells them from the images of the test with an AUC of "
            f"{self.shift.auc:.2f}, and {self.shift.effective:.0%} of the latter are like "
            "them (effective share)"
        )
        if not filled:
            text += (
                f". Beyond {MOST_AUC}, or below {LEAST_EFFECTIVE:.0%}, nothing is filled in: label "
                "some of them, or use --despite-shift"
            )
        elif not self.is_alike:
            text += ". The guarantee does not hold for them"
        return text


def find_more(run: Run, folder: Path, tested: NDArray[np.int64]) -> More | None:
    """The images that the labels of a run do not mention; None if there are none.

    Args:
        folder: where to look, see :func:`images.named_images.open_images`.
        tested: rows of the run with labels that test.
    """
    files, known = open_images(folder), run.selection.known
    mentioned = {match.file for match in files.match(known.ids) if match is not None}
    names = [name for name in files.names if name not in mentioned and name not in known.ids]
    if not names:
        return None
    blank = np.zeros((len(names), len(known.classes)), dtype=np.int8)
    table = LabelTable(names, known.classes, blank)
    shift = None
    if min(len(names), len(tested)) >= _LEAST:
        some = known.subset(np.sort(tested[:: -(-len(tested) // _COMPARED)]))
        few = table.subset(np.arange(0, len(names), -(-len(names) // _COMPARED)))
        shift = measure_shift(_features(run, some, None), _features(run, few, folder))
    return More(score(run, table, folder), shift)


def holds_images_of(run: Run, folder: Path) -> bool:
    """Whether there are images here that the labels of a run mention."""
    used = run.selection.known.ids.take(run.selection.used)
    return any(match is not None for match in open_images(folder).match(used))


def _features(run: Run, table: LabelTable, folder: Path | None) -> NDArray[np.float32]:
    """[n, d] the mean features of the readable images of a table."""
    model = run.classifier().to(find_device(run.execution.device))
    inputs = inputs_of(run, model, table, folder, keep_maps=True, evidence=False)
    parts = iterate_logits(
        model,
        inputs,
        np.arange(len(table)),
        run.settings.batch,
        run.execution.workers,
        forward=lambda model, images: model.backbone(images).mean(dim=(2, 3)),
    )
    return np.concatenate([features.cpu().numpy() for _, features in parts])
