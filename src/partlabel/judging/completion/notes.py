"""Messages about a completion: why labels are missing, and what may not hold."""

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count, some
from partlabel.judging.completion.assessment import Assessment, Scores, expected_share
from partlabel.labels import Names
from partlabel.metrics.guarantee import fewest
from partlabel.training.selection import Selection

# A warning is given if two shares differ by all of these: a difference, a ratio, and a number of
# standard errors.
_GAP, _RATIO, _STANDARD_ERRORS = 0.05, 1.5, 4.0


def why_nothing(selection: Selection, reserve: float, precision: float) -> str:
    """Why nothing can be guaranteed at all; empty if something can."""
    if len(selection.reserved):
        return ""
    known = selection.validation.counts()
    kinds = known.present.any(), known.absent.any()
    if not len(selection.val):
        why = "there are no validation images to test a guarantee on"
    elif reserve == 0:
        return (
            "nothing is filled in: all validation images were used to choose the epoch, and none "
            "was reserved to test a guarantee on. Train again without --reserve 0"
        )
    elif all(kinds):
        why = "there are too few validation images to reserve some of them for testing"
    elif any(kinds):
        why = (
            f"the known validation labels are all {'present' if kinds[0] else 'absent'}. "
            "These are no random sample, so no precision can be guaranteed"
        )
    else:
        why = "no label of a validation image is known"
    return (
        f"nothing is filled in: {why}. Label some {4 * fewest(precision):,} images for all "
        "classes, in a split 'holdout', and train again"
    )


def classes_without_labels(assessment: Assessment, selection: Selection) -> str:
    """Which classes get no label, and why."""
    precision = assessment.precision
    pairs = zip(assessment.guarantees.present, assessment.guarantees.absent, strict=True)
    without = [j for j, pair in enumerate(pairs) if not any(one.basis for one in pair)]
    if not without:
        return ""
    absent, names = selection.validation.counts().absent, selection.classes
    one_kind = [names[j] for j in without if not absent[j]]
    others = [names[j] for j in without if absent[j]]
    reasons = []
    if one_kind:
        reasons.append(
            f"{some(one_kind)}: no validation label is known to be absent, so the known labels are "
            "no random sample"
        )
    if others:
        reasons.append(
            f"{some(others)}: the labels of {count(len(selection.reserved), 'reserved image')} are "
            f"too few to show {100 * precision:g}%. That takes {fewest(precision)} labels beyond a "
            "threshold, of one class or of several classes together, if all are correct, and more "
            "if some are wrong. More validation images (--val, or a split 'holdout') help"
        )
    number = count(len(without), "class", "classes")
    return f"nothing is filled in for {number}. " + ". ".join(reasons)


def better_alternatives(share: float, alternatives: dict[str, float]) -> str:
    """Which options would fill in more, from the share of unknown labels that each fills in."""
    better = [f"{100 * more:.0f}% with {way}" for way, more in alternatives.items() if more > share]
    if not better:
        return ""
    return (
        f"other options would fill in more: {', '.join(better)}. Trying several options and taking "
        "the one that fills in most breaks the guarantee a little more often than stated"
    )


def shifted_classes(
    assessment: Assessment, logits: Scores, cells: NDArray[np.bool_], names: Names
) -> str:
    """Which classes score differently on unknown labels than on the labels that were tested.

    Args:
        logits: [n, C] calibrated, of the training images.
        cells: [n, C] which cells of the training images are unknown.
        names: names of the classes.
    """
    unknown, tested = expected_share(logits, cells), assessment.expected
    gap = np.abs(unknown.mean - tested.mean)
    larger, smaller = np.maximum(unknown.mean, tested.mean), np.minimum(unknown.mean, tested.mean)
    shifted = (gap > _GAP) & (larger > _RATIO * smaller)
    shifted &= gap > _STANDARD_ERRORS * np.hypot(unknown.noise, tested.noise)
    if not shifted.any():
        return ""
    worst = int(np.nanargmax(np.where(shifted, gap, np.nan)))
    number = int(shifted.sum())
    return (
        f"the guarantee may not hold for {count(number, 'class', 'classes')}. For example, the "
        f"scores expect {unknown.mean[worst]:.0%} of the unknown labels of '{names[worst]}' to be "
        f"present, but {tested.mean[worst]:.0%} of the labels that the guarantee was tested on. "
        "Either the known labels are no random sample, or the model has memorised its training "
        "images (fewer epochs or more weight decay help)"
    )


def other_splits(values: NDArray[np.int8]) -> str:
    """How many labels of other splits are filled in, from the values [m] of their unknown cells."""
    number = int(np.count_nonzero(values))
    if not number:
        return ""
    return (
        f"{count(number, 'label')} of images in other splits are filled in too. The guarantee "
        "holds for them if these images are like the training images, and labelled alike"
    )
