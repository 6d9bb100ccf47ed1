"""What the page sends and gets: the bodies of requests and answers."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from partlabel.base.terminal import printable
from partlabel.output.review.cell_view import CellView
from partlabel.output.review.orders import OrderName
from partlabel.output.review.review_progress import ClassProgress, Speed
from partlabel.output.review.verdicts import Value

MOST_CELLS = 500


def _valid_text(text: str) -> str:
    """Text that can be the name of a class; these may have invisible characters in them."""
    surrogates = any("\ud800" <= character <= "\udfff" for character in text)
    if surrogates or printable(text) != text or "\n" in text or "\t" in text:
        raise ValueError("must be text without control characters")
    return text


def _valid_reviewer(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be text without control characters")
    return text


Text = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_valid_text)]
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=10_000), AfterValidator(_valid_text)
]
Reviewer = Annotated[
    str, StringConstraints(min_length=1, max_length=80), AfterValidator(_valid_reviewer)
]
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{8,64}$")]
Row = Annotated[int, Field(ge=0, lt=2**31)]


class Request(BaseModel):
    """A body that the page sends."""

    model_config = ConfigDict(extra="forbid")


class AskedCell(Request):
    """A verdict on one label: 1 present, -1 absent, 0 unknown, 2 skipped.

    Args:
        scored: whether the page showed it with its score. It is then no random verdict, also if
            the label was drawn at random meanwhile.
    """

    row: Row
    name: Name
    value: Value
    scored: bool = False


class ActRequest(Request):
    """Verdicts that are given, and can be undone, together."""

    id: Id
    reviewer: Reviewer
    verdicts: Annotated[list[AskedCell], Field(min_length=1, max_length=MOST_CELLS)]


class UndoRequest(Request):
    """Takes back the last act of a reviewer."""

    id: Id
    reviewer: Reviewer


class BoardRequest(Request):
    """Asks for the next labels of a class, or for those of given images."""

    name: Name
    order: Text = OrderName.USEFUL
    size: Annotated[int, Field(ge=1, le=200)] = 24
    seen: Annotated[list[Row], Field(max_length=20_000)] = []
    random: Annotated[int, Field(ge=0, le=200)] = 0
    examples: Annotated[list[Row], Field(max_length=50)] = []
    rows: Annotated[list[Row] | None, Field(max_length=200)] = None


class ClassRequest(Request):
    """A new class."""

    name: Name
    reviewer: Reviewer


class TestRequest(Request):
    """Fixes the scores of a new class, so that they can be tested."""

    name: Name


class Status(BaseModel):
    """Where the review stands."""

    ready: bool
    step: str
    error: str
    run: str
    journal: str
    reviewer: str
    images: int = 0
    classes: int = 0
    number: int = 0
    fits: int = 0
    learning: str = ""
    not_learning: str = ""
    precision: float = 0.95
    notes: list[str] = []
    formats: list[str] = []
    orders: list[str] = []


class ActAnswer(BaseModel):
    """The labels that an act changed; they are on disk."""

    number: int
    repeated: bool
    cells: list[CellView]


class UndoAnswer(BaseModel):
    """The labels that an undo changed; none if there was nothing to undo."""

    number: int
    undone: bool
    cells: list[CellView]


class BoardAnswer(BaseModel):
    """The labels of a board, and what is left."""

    cells: list[CellView]
    fits: int
    until_learned: int | None


class Changes(BaseModel):
    """The labels that changed since an act, and the number of the last act."""

    number: int
    fits: int
    learning: str
    not_learning: str
    cells: list[CellView]


class ClassLine(BaseModel):
    """A class in the list: how many labels are unknown, and how many verdicts it has."""

    name: str
    new: bool
    unknown: int
    verdicts: int
    suspects: int


class ClassList(BaseModel):
    """Some of the classes, and how many there are."""

    total: int
    classes: list[ClassLine]


class Picture(BaseModel):
    """An image with its labels, likely ones first."""

    row: int
    image: str
    total: int
    cells: list[CellView]


class Found(BaseModel):
    """An image."""

    row: int
    image: str


class FoundImages(BaseModel):
    """Some images, and how many there are."""

    total: int
    images: list[Found]


class SuspectList(BaseModel):
    """Known labels that look wrong, and labels that reviewers differ on."""

    total: int
    conflicts: list[CellView]
    suspects: list[CellView]


class ProgressAnswer(BaseModel):
    """How the review goes, for some of the classes."""

    total: int
    precision: float
    classes: list[ClassProgress]
    speeds: list[Speed]
    conflicts: int
    verdicts: int


class Problem(BaseModel):
    """What is wrong with a request, or why it failed."""

    message: str
