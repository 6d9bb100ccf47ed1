"""When a deployed model says present, absent, or that it does not know.

The only place in which an export meets the test of guarantees. A guarantee holds for the model that
was tested, so the final model of the run is tested here, on labels that were reserved for that.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partlabel.judging.completion import check_precision
from partlabel.judging.completion.assessment import assess_new_images
from partlabel.judging.completion.notes import why_nothing
from partlabel.judging.image_scores import scores_of
from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.calibration import Calibration, logits
from partlabel.metrics.guarantee import Guarantee
from partlabel.training.out_of_fold import out_of_fold
from partlabel.training.run import Run

Floats = NDArray[np.float64]
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Tested:
    """The test of the present or of the absent answers of one class.

    Args:
        answers: number of reserved labels for which the model gives this answer.
        right: number of these that are right.
        alone: whether they are labels of this class alone, not of several classes together.
    """

    answers: int
    right: int
    alone: bool


@dataclass(frozen=True)
class Decisions:
    """The logits of the network from which on, and up to which, it gives an answer.

    Args:
        precision: the share of the answers that must be right.
        present: [C] present from this logit on; infinite if the model never says so.
        absent: [C] absent up to this logit; minus infinite if the model never says so.
        tests: per class the test of its present and of its absent answers; None without one.
        without: why there is no guarantee; empty if there is one.
        on_new_images: whether the labels that test lie in images that were not trained on.
    """

    precision: float
    present: Floats
    absent: Floats
    tests: list[dict[int, Tested | None]]
    without: str
    on_new_images: bool = True

    @property
    def guaranteed(self) -> bool:
        """Whether all answers were tested. If not, none was."""
        return not self.without

    def decide(self, scores: Floats) -> NDArray[np.int8]:
        """[n, C] present, absent, or 0 for "don't know", from scores [n, C] of the network."""
        raw = logits(scores)
        return (raw >= self.present).astype(np.int8) - (raw <= self.absent).astype(np.int8)

    def describe(self) -> str:
        """What is guaranteed of the answers, or why nothing is."""
        share = f"{100 * self.precision:g}%"
        if self.without:
            return (
                f"no guarantee: {self.without}. Answers have a calibrated probability of at least "
                f"{share}"
            )
        alike = "new images" if self.on_new_images else "images of the training"
        return (
            f"of the answers at least {share} are right, present and absent ones apart, for images "
            f"like those of the test ({alike}), with a confidence of 95% per test"
        )


def final_decisions(run: Run, min_precision: float = 0.95, *, tested: bool = True) -> Decisions:
    """The decisions of the final model of a run, tested on its reserved labels if possible.

    Args:
        run: a finished run.
        min_precision: share of the answers that must be right.
        tested: whether to test them. It needs the images or features of the run.
    """
    check_precision(min_precision)
    if not tested:
        return untested(run, min_precision, "it was not tested, as asked for")
    reason = why_nothing(run, min_precision)
    if not reason and not len(run.selection.reserved) and run.selection.hidden is None:
        reason = _nothing_reserved(run)
    if reason:
        return untested(run, min_precision, reason.removeprefix("nothing is filled in: "))
    scores = scores_of(run, run.selection.known)
    guarantees, line = assess_new_images(run, scores, min_precision)
    present, absent = (_tests(guarantees.of(value)) for value in (PRESENT, ABSENT))
    if not any(present) and not any(absent):
        return untested(
            run, min_precision, "too few reserved labels show that enough answers are right"
        )
    high, low = (
        np.array([value * one.limit.threshold for one in guarantees.of(value)])
        for value in (PRESENT, ABSENT)
    )
    pairs = zip(present, absent, strict=True)
    return Decisions(
        min_precision,
        _raw(line, high, PRESENT),
        _raw(line, low, ABSENT),
        [{PRESENT: one, ABSENT: other} for one, other in pairs],
        "",
        bool(len(run.selection.reserved)),
    )


def _nothing_reserved(run: Run) -> str:
    """Why the final model has no test, and what gives it one."""
    why = "no label was reserved to test this model"
    if out_of_fold(run) is not None:
        why += ": `complete` tests the models of the folds of `auto`, not this one"
    return (
        f"{why}. For a guarantee, give some hundred labelled images the split 'holdout' before the "
        "training, or train with --reserve 0.2"
    )


def untested(run: Run, min_precision: float, reason: str) -> Decisions:
    """Decisions by calibrated probability alone: from ``min_precision`` on, or up to 1 minus it."""
    record, classes = run.record.calibration, len(run.record.classes)
    own = np.ones(classes, dtype=np.bool_)
    line = (
        Calibration(np.ones(classes), np.zeros(classes), own) if record is None else record.open()
    )
    limit = np.full(classes, max(math.log(min_precision / (1 - min_precision)), 0.0))
    nothing: list[dict[int, Tested | None]] = [{PRESENT: None, ABSENT: None}] * classes
    high, low = _raw(line, limit, PRESENT), _raw(line, -limit, ABSENT)
    return Decisions(min_precision, high, low, nothing, reason)


def _raw(line: Calibration, calibrated: Floats, side: int) -> Floats:
    """The logits of the network for calibrated logits [C].

    A limit is the score of a label that was tested. It is moved by less than single precision can
    tell, so that the same score passes it again.
    """
    raw = (calibrated - line.intercepts) / line.slopes
    with np.errstate(invalid="ignore"):  # infinite limits stay as they are
        moved = raw - side * _ROUNDING * np.maximum(np.abs(raw), 1)
    return np.asarray(np.where(np.isfinite(raw), moved, raw))


def _tests(guarantees: list[Guarantee]) -> list[Tested | None]:
    return [
        None
        if one.basis is None
        else Tested(one.limit.tested, one.limit.right, one.basis == "class")
        for one in guarantees
    ]
