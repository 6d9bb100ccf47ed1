"""A label as the page shows it."""

from dataclasses import dataclass

from partlabel.labels import ABSENT, PRESENT
from partlabel.output.review.standing import Standing
from partlabel.output.review.verdicts import Asked, Value


@dataclass(frozen=True)
class Opinion:
    """What one reviewer says."""

    reviewer: str
    value: int


@dataclass(frozen=True)
class CellView:
    """A label, and all that is known about it.

    Args:
        row, image, name: the image and the class.
        known: the label in the file, 1, -1, or 0 for unknown.
        value: the label now, with verdicts; 2 if it was only skipped.
        blind: whether it was drawn at random and waits for an answer. Score and source are then
            left out, so that they cannot influence it.
        random: whether it was drawn at random.
        score: the calibrated score of the run.
        learned: the score of the head that learns on the page.
        decided: what the run fills in with a guarantee.
        source: where the value comes from: ``reviewer``, ``file``, ``model`` or nothing.
        guarantee: lower bound of the precision of labels that are filled in like this one.
        opinions: what each reviewer says.
        conflict: whether reviewers differ; the value is then unknown.
        suspect: whether the label in the file looks wrong.
    """

    row: int
    image: str
    name: str
    known: int
    value: int
    blind: bool
    random: bool
    score: float | None
    learned: float | None
    decided: int
    source: str
    guarantee: float | None
    opinions: list[Opinion]
    conflict: bool
    suspect: bool


def view(
    row: int,
    image: str,
    name: str,
    *,
    known: int,
    standing: Standing | None,
    blind: bool,
    score: float | None,
    learned: float | None,
    decided: int,
    bounds: dict[str, float],
    suspect: bool,
) -> CellView:
    """The view of a label; a blind one shows nothing that a model says."""
    if standing is not None:
        value = int(Value.UNKNOWN if standing.value is None else standing.value)
        source = "reviewer"
    elif known:
        value, source = known, "file"
    else:
        value, source = 0, "model" if decided else ""
    word = {PRESENT: "present", ABSENT: "absent"}.get(decided, "")
    opinions = [] if standing is None else standing.latest
    return CellView(
        row,
        image,
        name,
        known=known,
        value=value,
        blind=blind,
        random=blind or (standing is not None and standing.asked == Asked.RANDOM),
        score=None if blind else score,
        learned=None if blind else learned,
        decided=0 if blind else decided,
        source="" if blind else source,
        guarantee=None if blind else bounds.get(word),
        opinions=[Opinion(one.reviewer, int(one.verdict.value)) for one in opinions],
        conflict=standing is not None and standing.conflict,
        suspect=suspect and not blind,
    )
