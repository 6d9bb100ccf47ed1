"""Images that a run was not given: found and scored."""

from pathlib import Path

import numpy as np
from scipy import sparse

from partlabel.images.named_images import open_images
from partlabel.judging.image_scores import KeptScores, scores_of
from partlabel.labels import LabelTable
from partlabel.training.run import Run


def find_more(run: Run, folder: Path) -> KeptScores | None:
    """The images here that the labels of a run do not mention; None if there are none."""
    files, known = open_images(folder), run.selection.known
    mentioned = {match.file for match in files.match(known.ids) if match is not None}
    names = [name for name in files.names if name not in mentioned and name not in known.ids]
    if not names:
        return None
    blank = sparse.csr_array((len(names), len(known.classes)), dtype=np.int8)
    scores = scores_of(run, LabelTable(names, known.classes, blank), folder)
    assert isinstance(scores, KeptScores)  # they are of image files
    return scores


def holds_images_of(run: Run, folder: Path) -> bool:
    """Whether there are images here that the labels of a run mention."""
    used = run.selection.known.ids.take(run.selection.used)
    return any(match is not None for match in open_images(folder).match(used))
