"""What a reviewer says about labels, and what the model had said."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Value(IntEnum):
    """A verdict on one label; the first three are the values of a label table."""

    ABSENT = -1
    UNKNOWN = 0
    PRESENT = 1
    SKIPPED = 2


class Asked(StrEnum):
    """Why a label was shown: drawn at random, or chosen by a model or a person."""

    RANDOM = "random"
    CHOSEN = "chosen"


@dataclass(frozen=True)
class Verdict:
    """A reviewer's word on one label.

    Args:
        image, name: the image and the class.
        value: what the reviewer says.
        asked: why the label was shown.
        score: the calibrated score of the run at this time; None if it has none.
        decided: what the run fills in here with a guarantee: 1, -1, or 0 for nothing.
        learned: the score of the head that learns on the page; None if it has none.
        plan, stratum, inclusion: of a random label: the plan it was drawn for, its stratum, and the
            share of the stratum that was drawn so far.
    """

    image: str
    name: str
    value: Value
    asked: Asked = Asked.CHOSEN
    score: float | None = None
    decided: int = 0
    learned: float | None = None
    plan: str | None = None
    stratum: int | None = None
    inclusion: float | None = None


@dataclass(frozen=True)
class Act:
    """One thing that a reviewer did: verdicts that are kept, and undone, together.

    Args:
        id: made by the page, so that an act that is sent twice counts once.
        reviewer: a name.
        time: seconds since 1970.
        verdicts: empty for an undo.
        undoes: the id of the act that this one takes back.
    """

    id: str
    reviewer: str
    time: float
    verdicts: tuple[Verdict, ...] = ()
    undoes: str | None = None


@dataclass(frozen=True)
class Draw:
    """A label that was drawn at random.

    Args:
        plan: the plan whose strata it was drawn from.
        name, image: the class and the image.
        stratum: the number of its stratum.
        number: how many labels of the stratum were drawn, with this one.
        size: the number of labels in the stratum.
        time: seconds since 1970.
    """

    plan: str
    name: str
    image: str
    stratum: int
    number: int
    size: int
    time: float

    @property
    def inclusion(self) -> float:
        """The share of the stratum that was drawn so far."""
        return self.number / self.size


@dataclass(frozen=True)
class NewClass:
    """A class that a reviewer added."""

    name: str
    reviewer: str
    time: float
