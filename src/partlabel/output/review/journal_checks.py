"""Whether what a journal says can be what a page wrote; a damaged file may say anything."""

from partlabel.labels import Names
from partlabel.labels.names import check_names
from partlabel.output.review.audit import BANDS
from partlabel.output.review.review_labels import ReviewLabels
from partlabel.output.review.standing import Standings
from partlabel.output.review.verdict_journal import Journal
from partlabel.output.review.verdicts import Act, Draw

_LATEST = 250_000_000_000  # seconds since 1970, in the year 9892
_STRATA = 2 * len(BANDS)
_MOST_SEED = 2**62


def read_seed(text: str) -> int:
    """The seed of the draws."""
    if not text.isdecimal() or int(text) >= _MOST_SEED:
        raise ValueError(f"the seed is {text!r}")
    return int(text)


def read_classes(journal: Journal, labels: ReviewLabels) -> None:
    """Add the classes of reviewers to the labels."""
    for new in journal.classes():
        check_names("class", Names([new.name]))
        labels.know(new.name)


def check_draw(draw: Draw, labels: ReviewLabels) -> None:
    """Raise an error for a draw of a label that does not exist."""
    _check_label(draw.image, draw.name, labels)
    _require(draw.size >= 1 and draw.number >= 1, "the size of a stratum")
    _require(0 <= draw.stratum < _STRATA, "the number of a stratum")


def check_act(act: Act, labels: ReviewLabels, standings: Standings) -> None:
    """Raise an error for an act with impossible values, or that undoes nothing."""
    _require(0 <= act.time < _LATEST, "the time of an act")
    _require(bool(act.reviewer) and act.reviewer.isprintable(), "the name of a reviewer")
    if act.undoes is not None:
        undone = standings.act(act.undoes)
        _require(undone is not None and undone[1].undoes is None, "what an act undoes")
    for one in act.verdicts:
        _check_label(one.image, one.name, labels)
        _require(one.decided in (-1, 0, 1), "what a run has filled in")
        _require(one.stratum is None or 0 <= one.stratum < _STRATA, "the number of a stratum")


def _check_label(image: str, name: str, labels: ReviewLabels) -> None:
    _require(image in labels.row_of, "the name of an image")
    _require(name in labels.column_of, "the name of a class")


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"{what} cannot be right")
