"""The questions that a run asks, and the files that they are written to."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from partlabel.base.errors import count, one_of
from partlabel.base.files import atomic_file
from partlabel.labels.formats.delimited import write_delimited
from partlabel.labels.formats.formulas import quoted

CSV, LABEL_STUDIO = "csv", "label-studio"
FORMATS = (CSV, LABEL_STUDIO)
_COLUMNS = ["image", "class", "value", "score", "asked", "probability", "gain", "why"]


class Question(NamedTuple):
    """A cell that somebody should label.

    Args:
        image, name: the cell: an image and a class.
        score: of the model; None for a cell drawn at random, so that it sways nobody.
        asked: ``chosen`` by a model, or drawn at ``random``.
        probability: for a cell drawn at random, the probability that a cell like it is drawn.
        gain: what the answer is expected to be worth, see :class:`Suggestions`.
        why: the reason, in words.
    """

    image: str
    name: str
    score: float | None
    asked: str
    probability: float | None
    gain: float
    why: str


@dataclass(frozen=True, repr=False)
class Suggestions:
    """Questions in the order in which they should be asked.

    Args:
        questions: the cells. Gains are in nats of information about the heads of the classes; for
            ``errors``, the probability that a known label is wrong.
        seconds: of work that the answers are expected to take.
        notes: messages for the user.
    """

    questions: list[Question]
    seconds: float
    notes: list[str]

    def __len__(self) -> int:
        return len(self.questions)

    def __repr__(self) -> str:
        return f"<Suggestions: {self.headline()}>"

    def headline(self) -> str:
        """How many questions there are, and how much work they are."""
        images = len({question.image for question in self.questions})
        drawn = sum(question.asked == "random" for question in self.questions)
        text = f"{count(len(self), 'question')} about {count(images, 'image')}"
        text += f", {drawn:,} of them drawn at random" if drawn else ""
        return f"{text}, about {max(1, round(self.seconds / 60)):,} min of work"

    def save(
        self, path: str | os.PathLike[str], format: str | None = None, *, excel_safe: bool = False
    ) -> Path:
        """Write the questions, and return the path.

        Args:
            path: the file to write.
            format: ``csv`` or ``label-studio``; by default ``label-studio`` for ``.json``.
            excel_safe: whether names in a CSV file that a spreadsheet would run as formulas get an
                apostrophe.
        """
        target = Path(path)
        if format is None:
            format = LABEL_STUDIO if target.suffix.lower() == ".json" else CSV
        if one_of("format of questions", format, FORMATS) == CSV:
            _write_csv(target, self.questions, excel_safe)
        else:
            _write_tasks(target, self.questions)
        return target


def _write_csv(path: Path, questions: Sequence[Question], excel_safe: bool) -> None:
    """A file of the format ``cells`` with an empty value per question, and columns about it."""
    lines = [
        (
            quoted(question.image, excel_safe=excel_safe),
            quoted(question.name, excel_safe=excel_safe),
            "",
            "" if question.score is None else f"{question.score:.6g}",
            question.asked,
            "" if question.probability is None else f"{question.probability:.6g}",
            f"{question.gain:.4g}",
            question.why,
        )
        for question in questions
    ]
    write_delimited(path, _COLUMNS, lines)


def _write_tasks(path: Path, questions: Sequence[Question]) -> None:
    """One task per image. Its data name the classes to ask about, and how each was drawn."""
    by_image: dict[str, list[Question]] = {}
    for question in questions:
        by_image.setdefault(question.image, []).append(question)
    tasks = [
        {
            "data": {
                "image": image,
                "questions": ", ".join(question.name for question in asked),
                "asked": {question.name: question.asked for question in asked},
            },
            "annotations": [],
        }
        for image, asked in by_image.items()
    ]
    with atomic_file(path) as stream:
        stream.write(json.dumps(tasks, ensure_ascii=False, indent=1).encode())
