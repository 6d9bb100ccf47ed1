"""What the user should know of a completion: why something is missing, or not to be trusted."""

import numpy as np
from numpy.typing import NDArray

from partlabel.completion.assessment import Assessment
from partlabel.errors import count, some
from partlabel.guarantee import fewest
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.selection import Selection, by_humans

_APART = 0.1  # difference between shares from which on it is worth a warning


def why_nothing(chosen: Selection, reserve: float, precision: float) -> str:
    """Why no promise can be made at all, if so."""
    if len(chosen.reserved):
        return ""
    if len(chosen.val) and reserve == 0:
        return (
            "nothing is filled in: all validation images were used to choose the epoch, and none "
            "was kept to test promises on. Train again without --reserve 0"
        )
    if len(chosen.val):
        known = by_humans(chosen.table.subset(chosen.val)).counts()
        why = (
            f"of validation images only {'present' if known.present.any() else 'absent'} labels "
            "are known. These are no random sample, so no precision can be promised"
        )
    else:
        why = "there are no validation images to test promises on"
    return (
        f"nothing is filled in: {why}. Label some {4 * fewest(precision):,} images for all "
        "classes, in a split 'holdout', and train again"
    )


def silent_classes(assessment: Assessment, table: LabelTable, precision: float) -> str:
    """Which classes get nothing."""
    both = zip(assessment.promises.present, assessment.promises.absent, strict=True)
    silent = [
        name
        for name, (present, absent) in zip(table.classes, both, strict=True)
        if not present.basis and not absent.basis
    ]
    if not silent:
        return ""
    return (
        f"nothing is filled in for {count(len(silent), 'class', 'classes')}: {some(silent)}; "
        f"{precision:.0%} cannot be shown with the labels that were reserved. At least "
        f"{fewest(precision)} are needed, all right"
    )


def by_heart(assessment: Assessment, values: NDArray[np.int8]) -> str:
    """Whether training images are scored unlike others; [m] what was decided for open cells."""
    for value, word in ((PRESENT, "present"), (ABSENT, "absent")):
        here = float(np.mean(values == value)) if len(values) else 0.0
        there = assessment.filled[value]
        if abs(here - there) > _APART and len(values):
            return (
                f"{here:.0%} of the unknown labels of training images are filled in as {word}, but "
                f"{there:.0%} of those of images that were held out: the model scores the images "
                "it was trained on differently, and what it promises may not hold there. Fewer "
                "epochs, more weight decay or --frozen help"
            )
    return ""
