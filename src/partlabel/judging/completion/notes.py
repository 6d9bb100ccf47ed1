"""What the user should know of a completion: why something is missing, or not to be trusted."""

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count, some
from partlabel.judging.completion.assessment import Assessment, Scores, expected_share
from partlabel.labels import Names
from partlabel.metrics.guarantee import fewest
from partlabel.training.selection import Selection, by_humans

_APART, _TIMES, _SURE = 0.05, 1.5, 4.0  # differences between shares that are worth a warning


def why_nothing(chosen: Selection, reserve: float, precision: float) -> str:
    """Why no promise can be made at all, if so."""
    if len(chosen.reserved):
        return ""
    known = by_humans(chosen.table.subset(chosen.val)).counts()
    kinds = known.present.any(), known.absent.any()
    if not len(chosen.val):
        why = "there are no validation images to test promises on"
    elif reserve == 0:
        return (
            "nothing is filled in: all validation images were used to choose the epoch, and none "
            "was kept to test promises on. Train again without --reserve 0"
        )
    elif all(kinds):
        why = "there are too few validation images to keep some of them to test promises on"
    elif any(kinds):
        why = (
            f"of validation images only {'present' if kinds[0] else 'absent'} labels are known. "
            "These are no random sample, so no precision can be promised"
        )
    else:
        why = "no label of a validation image is known"
    return (
        f"nothing is filled in: {why}. Label some {4 * fewest(precision):,} images for all "
        "classes, in a split 'holdout', and train again"
    )


def silent_classes(assessment: Assessment, chosen: Selection) -> str:
    """Which classes get nothing, and why."""
    precision = assessment.precision
    both = zip(assessment.promises.present, assessment.promises.absent, strict=True)
    silent = [j for j, promises in enumerate(both) if not any(one.basis for one in promises)]
    if not silent:
        return ""
    absent = by_humans(chosen.table.subset(chosen.val)).counts().absent
    one_kind = [chosen.table.classes[j] for j in silent if not absent[j]]
    others = [chosen.table.classes[j] for j in silent if absent[j]]
    reasons = []
    if one_kind:
        reasons.append(
            f"{some(one_kind)}, of which no validation label is absent, so that known labels are "
            "no random sample"
        )
    if others:
        reasons.append(
            f"{some(others)}, for which {100 * precision:g}% cannot be shown with "
            f"{count(len(chosen.reserved), 'reserved image')}: that takes {fewest(precision)} "
            "labels of a class, all right, or more with some wrong. More validation images (--val, "
            "or a split 'holdout') or a lower --min-precision help"
        )
    number = count(len(silent), "class", "classes")
    return f"nothing is filled in for {number}: " + "; and ".join(reasons)


def ways_to_more(share: float, ways: dict[str, float]) -> str:
    """Which other ways to ask would fill in more; the share of unknown labels by way."""
    better = [f"{100 * found:.0f}% with {way}" for way, found in ways.items() if found > share]
    if not better:
        return ""
    return (
        f"more would be filled in otherwise: {', '.join(better)}. Whoever tries several ways and "
        "takes the one that fills in most makes a wrong promise a little more often than said"
    )


def unlike(assessment: Assessment, logits: Scores, cells: NDArray[np.bool_], names: Names) -> str:
    """Whether what is to be filled in looks unlike what was tested.

    Args:
        logits, cells: [n, C] of training images, calibrated, and which cells are unknown.
        names: of the classes.
    """
    here, there = expected_share(logits, cells), assessment.expected
    gap = np.abs(here.mean - there.mean)
    odd = (gap > _APART) & (gap > _SURE * np.hypot(here.noise, there.noise))
    odd &= np.maximum(here.mean, there.mean) > _TIMES * np.minimum(here.mean, there.mean)
    if not odd.any():
        return ""
    worst = int(np.nanargmax(np.where(odd, gap, np.nan)))
    number = int(odd.sum())
    return (
        f"{count(number, 'class', 'classes')} {'looks' if number == 1 else 'look'} different where "
        f"labels are to be filled in: of '{names[worst]}', {here.mean[worst]:.0%} of the unknown "
        "labels of training images should be present, by their scores, and "
        f"{there.mean[worst]:.0%} of the labels that promises were tested on. Either known labels "
        "are no random sample, or the model knows its training images by heart (fewer epochs or "
        "more weight decay help): what is promised may not hold there"
    )


def elsewhere(values: NDArray[np.int8]) -> str:
    """That images of other splits are filled in too; [m] what was decided for open cells there."""
    number = int(np.count_nonzero(values))
    if not number:
        return ""
    return (
        f"{count(number, 'label')} of images in splits that were neither trained nor validated on "
        "are filled in too; the promise holds for them if they are like the others, and as much "
        "of them is known"
    )
