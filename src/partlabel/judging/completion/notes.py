"""Messages about a completion: why labels are missing, and what may not hold."""

import math
from typing import NamedTuple

import numpy as np

from partlabel.base.errors import count, some
from partlabel.images.batches import Rows
from partlabel.judging.completion.assessment import Assessment, Share, expected_share
from partlabel.judging.completion.doubts import ShareWrong, Suspect, most_common
from partlabel.judging.completion.held_labels import Mask
from partlabel.judging.completion.layout import PARTS, TAGGED, Part
from partlabel.judging.completion.likeness import LEAST_EFFECTIVE, MOST_AUC, Comparison
from partlabel.judging.completion.origin_groups import LEAST
from partlabel.judging.image_scores import is_small
from partlabel.labels import ABSENT, PRESENT, LabelTable
from partlabel.metrics.bounds import fewest, needed_labels
from partlabel.training.out_of_fold import out_of_fold
from partlabel.training.reserving import evidence
from partlabel.training.run import Run
from partlabel.training.run_split import Selection

_MOST_NAMED = 5  # origins that a message names
_LOOKED_AT = 1 << 22  # cells that are looked at for a message, if there are very many
_FOUND = 0.35  # share of the present labels that is expected beyond a threshold

# A warning is given if two shares differ by all of these: a difference, a ratio, and a number of
# standard errors.
_GAP, _RATIO, _STANDARD_ERRORS = 0.05, 1.5, 4.0


def why_nothing(run: Run, precision: float) -> str:
    """Why nothing can be guaranteed at all; empty if something can."""
    selection = run.selection
    crossed = out_of_fold(run) is not None and evidence(selection.known).known
    if len(selection.reserved) or selection.tested.known or crossed:
        return ""
    if run.settings.reserve == 0:
        return (
            "nothing is filled in: no label was reserved to test a guarantee on. Train again "
            "without --reserve 0"
        )
    known = selection.known.counts()
    kinds = known.present.any(), known.absent.any()
    if not known.unknown.any():
        return ""
    if all(kinds) and evidence(selection.known).known:
        why = f"there are too few known labels to reserve {fewest(precision)} of them for testing"
    elif all(kinds):
        why = (
            "no origin noted both present and absent labels of a class. Such labels are not a "
            "random sample, so no precision can be guaranteed"
        )
    elif any(kinds):
        why = (
            f"the known labels are all {'present' if kinds[0] else 'absent'}. These are not a "
            "random sample, so no precision can be guaranteed"
        )
    else:
        why = "no label is known"
    return (
        f"nothing is filled in: {why}. Label some {4 * fewest(precision):,} images for all "
        "classes, in a split 'holdout', and train again. `partlabel complete RUN -o FILE --plan` "
        "draws images to label"
    )


def classes_without_labels(assessment: Assessment, selection: Selection) -> str:
    """Which classes get no present label, why, and how many labels would change that."""
    precision, names = assessment.precision, selection.classes
    material = assessment.material
    wanting = (material.fillable > 0) & (assessment.filled[PRESENT] == 0)
    if not wanting.any():
        return ""
    chosen, tested = material.choosing, material.tested
    counts = [
        np.bincount(chosen.columns[chosen.labels == value], minlength=len(names))
        for value in (PRESENT, ABSENT)
    ]
    both = (counts[0] > 0) & (counts[1] > 0)
    reasons = []
    one_kind = [names[j] for j in np.flatnonzero(wanting & ~both)]
    if one_kind:
        reasons.append(
            f"{some(one_kind)}: the known labels are not both present and absent, so they are no "
            "random sample"
        )
    others = np.flatnonzero(wanting & both).tolist()
    if others:
        is_present = tested.labels == PRESENT
        present = int((is_present & np.isin(tested.columns, others)).sum())
        needed = round(needed_labels(precision) / _FOUND)
        share = max(float(is_present.sum() / max(len(is_present), 1)), 0.01)
        who = some([names[j] for j in others])
        test = f"{who}: {present:,} of the labels that test are present"
        if present < needed:
            more = 100 * math.ceil(max(needed - present, fewest(precision)) / share / 100)
            reasons.append(
                f"{test}, and about {needed:,} are needed to show {100 * precision:g}% in most "
                f"cases. That takes about {more:,} more known labels of these classes, drawn at "
                "random (--plan)"
            )
        else:
            reasons.append(
                f"{test}, which is usually enough to show {100 * precision:g}%. But too few of "
                "those with the highest scores are right: a better classifier, or a lower "
                "--min-precision, may change that"
            )
    number = count(int(wanting.sum()), "class", "classes")
    return f"no present label is filled in for {number}. " + ". ".join(reasons)


def better_alternatives(share: float, alternatives: dict[str, float]) -> str:
    """Which options would fill in more, from the share of unknown labels that each fills in."""
    better = [f"{100 * more:.0f}% with {way}" for way, more in alternatives.items() if more > share]
    if not better:
        return ""
    return (
        f"other options would fill in more: {', '.join(better)}. Trying several options and taking "
        "the one that fills in most breaks the guarantee a little more often than stated"
    )


def ways_to_present_labels(numbers: dict[str, int]) -> str:
    """Which options would fill in present labels, from the number that each fills in."""
    better = [f"{number:,} with {way}" for way, number in numbers.items() if number]
    if not better:
        return ""
    return (
        f"other options would fill in present labels: {', '.join(better)}. Trying several options "
        "and taking the one that fills in most breaks the guarantee a little more often than stated"
    )


class _Gap(NamedTuple):
    """Scores of a class that expect another share of present labels than those that test.

    Args:
        size: the difference of the two shares.
        unknown: the share among the unknown labels.
        tested: the share among the labels that test.
    """

    size: float
    unknown: float
    tested: float
    name: str
    origin: str


def shifted_classes(assessment: Assessment, train: Rows) -> str:
    """Which classes score differently on unknown labels than on the labels that were tested.

    The images of each origin are looked at on their own, if there are enough of them, and without
    labels that nothing tests.

    Args:
        train: the training images; of very many, some are looked at.
    """
    scores, groups = assessment.material.scores, assessment.material.likeness.groups
    rows = _looked_at(train, assessment)
    rows = rows[scores.readable[rows]]
    _, logits = assessment.decided(rows)
    tests = np.isin(assessment.material.layout.of(rows), [*PARTS["cell"], *PARTS["image"]])
    is_tested = tests & (scores.table.dense(rows) == 0)
    gaps: list[_Gap] = []
    for number, origin in enumerate(groups.names):
        here = groups.of_image[rows] == number
        if here.sum() < LEAST:
            continue
        unknown, tested = (
            expected_share(logits[here], is_tested[here]),
            assessment.expected_in(number),
        )
        gaps += [
            _Gap(abs(unknown.mean[j] - tested.mean[j]), unknown.mean[j], tested.mean[j],
                 scores.table.classes[j], origin)
            for j in np.flatnonzero(_differ(unknown, tested)).tolist()
        ]  # fmt: skip
    if not gaps:
        return ""
    worst = max(gaps)
    where = f" in images of origin '{worst.origin}'" if len(groups.names) > 1 else ""
    number = len({gap.name for gap in gaps})
    return (
        f"the guarantee may not hold for {count(number, 'class', 'classes')}. For example, the "
        f"scores expect {worst.unknown:.0%} of the unknown labels of '{worst.name}'{where} to be "
        f"present, but {worst.tested:.0%} of the labels that the guarantee was tested on. "
        "Either the known labels are not a random sample, or the model has memorised its training "
        "images (fewer epochs or more weight decay help)"
    )


def _differ(unknown: Share, tested: Share) -> Mask:
    """[C] whether two shares differ by more than chance and rounding explain."""
    gap = np.abs(unknown.mean - tested.mean)
    larger, smaller = np.maximum(unknown.mean, tested.mean), np.minimum(unknown.mean, tested.mean)
    clear = gap > _STANDARD_ERRORS * np.hypot(unknown.noise, tested.noise)
    return np.asarray((gap > _GAP) & (larger > _RATIO * smaller) & clear)


def _looked_at(rows: Rows, assessment: Assessment) -> Rows:
    """All rows, or an even selection of very many."""
    if is_small(assessment.material.scores.table):
        return rows
    most = max(_LOOKED_AT // max(assessment.material.classes, 1), 1)
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.int64))]


def other_splits(assessment: Assessment) -> str:
    """How many labels of images in other splits are filled in."""
    filled = assessment.filled_in((Part.BY_IMAGE_OUTSIDE, Part.TAGGED_OUTSIDE))
    number = sum(int(part.sum()) for part in filled.values())
    if not number:
        return ""
    return (
        f"{count(number, 'label')} of images in other splits are filled in too. The guarantee "
        "holds for them if these images are like the training images, and labelled alike"
    )


def tagged_images(assessment: Assessment) -> str:
    """How many images have tags, and unknown labels that only other images can test."""
    number = int(assessment.material.layout.open_images(TAGGED).sum())
    if not number:
        return ""
    return (
        f"{count(number, 'image')} have a known present label that tests nothing: a tag of an "
        "origin that noted presences only, an answer, or a label of a model. Where only "
        "other images can test their unknown labels, none is filled in as present: these labels "
        "are present less often than in the images that test. Fully labelled images in a split "
        "'holdout' change that"
    )


def unlike_images(assessment: Assessment) -> list[str]:
    """How unlike images are to those whose labels test them: what is left out, and what is not."""
    likeness, notes = assessment.material.likeness, []
    unlike = likeness.unlike
    left_out = int(assessment.material.layout.unknown[Part.LEFT_OUT].sum())
    limits = f"an AUC above {MOST_AUC}, or less than {LEAST_EFFECTIVE:.0%} of the images that test"
    if unlike and left_out:
        notes.append(
            f"{count(left_out, 'unknown label')} are left out, because their "
            f"images are unlike those that test: {_described(unlike)}. The limit is {limits}. "
            "Label some of these images for all classes, or use --despite-shift"
        )
    elif unlike:
        notes.append(
            f"the guarantee does not hold for images that are unlike those that test: "
            f"{_described(unlike)}"
        )
    alike = [one for one in likeness.comparisons if one.is_alike and _is_filled_in(assessment, one)]
    if alike:
        notes.append(
            "labels of other images test these, as far as they are alike (an AUC of 0.5 means no "
            f"difference): {_described(alike)}"
        )
    return notes


def _is_filled_in(assessment: Assessment, one: Comparison) -> bool:
    """Whether some label of images that are compared is filled in."""
    values, _ = assessment.decided(_looked_at(one.rows, assessment))
    return bool(values[:, one.classes].any())


def _described(comparisons: list[Comparison]) -> str:
    texts = [one.describe() for one in comparisons[:_MOST_NAMED]]
    more = len(comparisons) - len(texts)
    return "; ".join(texts) + (f"; and {more:,} more" if more else "")


def more_images(assessment: Assessment, own: int) -> str:
    """How many images the label file does not mention; ``own`` is the number of those it does."""
    layout = assessment.material.layout
    number = len(layout.kind) - own
    if not number:
        return ""
    fillable = layout.open_images([part for part in Part if part is not Part.LEFT_OUT])[own:]
    unknown = layout.open_images(list(Part))[own:]
    verb = "is" if number == 1 else "are"
    done = "not completed"
    if fillable.any() or not unknown.any():
        done = "completed too; --only-labelled leaves such images out"
    return f"{count(number, 'image')} that the label file does not mention {verb} {done}"


def about_suspects(
    suspects: list[Suspect], known: LabelTable, wrong: ShareWrong | None = None
) -> str:
    """How many suspects are probably wrong, and where most of them come from.

    Args:
        wrong: an estimate of how many are wrong; None if it cannot be told.
    """
    if not suspects:
        return ""
    classes = known.classes.find([one.name for one in suspects])
    counts = np.bincount(classes, minlength=len(known.classes))
    totals = np.bincount(known.cells.columns, minlength=len(known.classes))
    looks = "looks" if len(suspects) == 1 else "look"
    text = f"{count(len(suspects), 'known label')} {looks} wrong. {_how_many(suspects, wrong)}"
    worst = most_common(counts, totals)
    if worst >= 0:
        text += f". Most of them per label are in the class '{known.classes[worst]}'"
    if len(known.origins) > 1:
        rows = known.ids.find([one.image for one in suspects])
        width, size = len(known.classes), len(known.origins) + 1
        stored = known.cells.rows * width + known.cells.columns
        position = np.searchsorted(stored, rows * width + classes)
        codes = known.cells.origins_or_none()[position]
        by_origin = np.bincount(codes, minlength=size)[1:]
        all_labels = np.bincount(known.cells.origins_or_none(), minlength=size)[1:]
        worst = most_common(by_origin, all_labels)
        text += f", and in the origin '{known.origins[worst]}'" if worst >= 0 else ""
    return text


def _how_many(suspects: list[Suspect], wrong: ShareWrong | None) -> str:
    if wrong is None:
        return (
            "Scores cannot tell how many of them are: the model may make as many errors. "
            "The least likely ones come first"
        )
    estimate = f"{wrong.share:.0%} are (an estimate, for mistakes at random)"
    if wrong.suspects < len(suspects):
        return f"Of {wrong.suspects:,} of them, about {estimate}"
    return f"Of these, about {estimate}"
