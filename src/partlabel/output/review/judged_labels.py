"""The labels under review with the verdicts on them, random labels and learned scores.

Acts of reviewers go to the journal first, and then to the state. All methods can be called from
several threads.
"""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError, InputError
from partlabel.base.randomness import key, uniform
from partlabel.labels import PRESENT, Names
from partlabel.labels.names import check_names
from partlabel.output.review.cell_view import CellView, view
from partlabel.output.review.journal_checks import check_act, check_draw, read_classes, read_seed
from partlabel.output.review.opinions import Opinions
from partlabel.output.review.random_labels import RandomLabels
from partlabel.output.review.review_labels import ReviewLabels, Rows
from partlabel.output.review.standing import Standings
from partlabel.output.review.verdict_journal import Journal
from partlabel.output.review.verdicts import Act, Asked, NewClass, Value, Verdict

_MOST_KNOWN = 4000  # labels of the file that a head of one class learns from


@dataclass(frozen=True)
class Judged:
    """What became of an act: its number in the journal, and the labels that it changed."""

    number: int
    repeated: bool
    cells: list[CellView]


@dataclass(frozen=True)
class Training:
    """What a head of a class learns from: rows [m], and whether the class is present [m]."""

    rows: Rows
    present: NDArray[np.bool_]


class JudgedLabels(ReviewLabels):
    """Labels, and what reviewers and heads that learn say about them.

    Args:
        opinions: the labels, and what the run says about them.
        journal: where everything is kept.
        folder: for files of plans.
    """

    def __init__(self, opinions: Opinions, journal: Journal, folder: Path) -> None:
        super().__init__(opinions)
        self.journal, self.folder = journal, folder
        self.lock = threading.RLock()
        self.learned: dict[str, NDArray[np.float32]] = {}
        self.changed = Counter[str]()
        """Chosen verdicts of each class since its head was fitted."""
        self.standings = Standings()
        try:
            self._read_journal()
        except FileError:
            raise
        except (KeyError, ValueError, TypeError) as error:
            raise FileError(journal.path, f"damaged ({error}); move it away") from error

    def _read_journal(self) -> None:
        journal = self.journal
        self.seed = read_seed(journal.note("seed", str(secrets.randbits(62))))
        read_classes(journal, self)
        self.random = RandomLabels(self, self.standings, journal, self.folder, self.seed)
        for draw in (draw for draws in self.random.draws.values() for draw in draws):
            check_draw(draw, self)
        for number, act in journal.acts():
            check_act(act, self, self.standings)
            self._apply(number, act)

    def add_class(self, name: str, reviewer: str) -> bool:
        """Add a class; False if there is one of this name already."""
        if name != name.strip():
            raise InputError("the name of a class must not start or end with a space")
        check_names("class", Names([name]))
        with self.lock:
            if name in self.column_of:
                return False
            self.journal.add_class(NewClass(name, reviewer, time.time()))
            self.know(name)
            return True

    def cell(self, name: str, row: int) -> CellView:
        """A label as the page shows it."""
        image, column = self.image(row), self.column(name)
        known, decided = self.known_cell(column, row), 0
        score = learned = None
        if column < len(self.opinions.scores):
            score = _plain(self.opinions.scores[column, row])
            decided = int(self.opinions.decided[column, row])
        if name in self.learned:
            learned = _plain(self.learned[name][row])
        return view(
            row,
            image,
            name,
            known=known,
            standing=self.standings.of(name, image),
            blind=self.random.waits(name, row),
            score=score,
            learned=learned,
            decided=decided,
            bounds=dict(self.opinions.guarantees.get(name, {})),
            suspect=row in self.suspects.get(column, {}),
        )

    def cells(self, name: str, rows: Sequence[int]) -> list[CellView]:
        """The labels of a class for these images."""
        with self.lock:
            return [self.cell(name, row) for row in rows]

    def judge(
        self,
        id: str,
        reviewer: str,
        verdicts: Sequence[tuple[int, str, Value]],
        scored: Collection[tuple[int, str]] = (),
    ) -> Judged:
        """Keep verdicts (row, class, value); they are on disk when this returns.

        Args:
            id: made by the page. Verdicts that come again under the same id count once.
            scored: labels (row, class) that the reviewer saw with their scores. A verdict on one of
                these is chosen; if the label was drawn at random, it still waits for an answer.
        """
        with self.lock:
            done = self.standings.act(id)
            if done is None:
                full = tuple(
                    self._verdict(row, name, value, blindly=(row, name) not in scored)
                    for row, name, value in verdicts
                )
                act = Act(id, reviewer, time.time(), full)
                number = self.journal.add(act)
                assert number is not None  # one server at a time has the journal
                self._apply(number, act)
                done = number, act
                repeated = False
            else:
                repeated = True
            number, act = done
            return Judged(number, repeated, self._cells_of(act))

    def undo(self, id: str, reviewer: str) -> Judged | None:
        """Take back the last act of a reviewer that was not taken back; None if there is none."""
        with self.lock:
            done = self.standings.act(id)
            if done is not None:
                number, act = done
                undone = self.standings.act(act.undoes or "")
                return Judged(number, True, [] if undone is None else self._cells_of(undone[1]))
            last = self.standings.last(reviewer)
            if last is None:
                return None
            act = Act(id, reviewer, time.time(), undoes=last.id)
            number_or_none = self.journal.add(act)
            assert number_or_none is not None
            self._apply(number_or_none, act)
            return Judged(number_or_none, False, self._cells_of(last))

    def changes(self, after: int) -> list[CellView]:
        """The labels that acts after a number have changed."""
        with self.lock:
            acts = [self._what(act) for act in self.standings.since(after)]
            pairs = dict.fromkeys((v.name, v.image) for act in acts for v in act.verdicts)
            return [self.cell(name, self.row_of[image]) for name, image in pairs]

    def _what(self, act: Act) -> Act:
        """The act whose verdicts changed: for an undo, the one that it takes back."""
        undone = None if act.undoes is None else self.standings.act(act.undoes)
        return act if undone is None else undone[1]

    def _cells_of(self, act: Act) -> list[CellView]:
        return [self.cell(one.name, self.row_of[one.image]) for one in act.verdicts]

    def _verdict(self, row: int, name: str, value: Value, *, blindly: bool) -> Verdict:
        """A verdict with what the model says; random if it is blind, on a label that waits."""
        image, column = self.image(row), self.column(name)
        in_run = column < len(self.opinions.scores)
        draw = self.random.draw_of(name, row) if blindly else None
        return Verdict(
            image,
            name,
            value,
            Asked.CHOSEN if draw is None else Asked.RANDOM,
            _plain(self.opinions.scores[column, row]) if in_run else None,
            int(self.opinions.decided[column, row]) if in_run else 0,
            _plain(self.learned[name][row]) if name in self.learned else None,
            None if draw is None else draw.plan,
            None if draw is None else draw.stratum,
            None if draw is None else draw.inclusion,
        )

    def _apply(self, number: int, act: Act) -> None:
        """Take in an act that is in the journal."""
        self.standings.apply(number, act)
        for one in self._what(act).verdicts:
            self.random.notice(one)
            if one.asked == Asked.CHOSEN:
                self.changed[one.name] += 1

    def scores(self, name: str) -> NDArray[np.float32]:
        """[n] the best scores there are: of the head that learns, or of the run; else NaN."""
        scores = self.learned.get(name)
        scores = self.run_scores(name) if scores is None else scores
        return np.full(len(self.images), np.nan, np.float32) if scores is None else scores

    def training(self, name: str) -> Training:
        """The labels that the head of a class learns from: of the file, and chosen verdicts.

        Random labels are left out, also if somebody chose them as well. Of the file, labels of
        training images count, but not more than a few thousand of them.
        """
        with self.lock:
            labels = self.known(name)
            used = np.zeros(len(labels), dtype=np.bool_)
            used[self.opinions.train] = labels[self.opinions.train] != 0
            if used.sum() > _MOST_KNOWN:
                rows = np.flatnonzero(used)
                order = np.argsort(uniform(key(self.seed, "learn", name), self.image_keys[rows]))
                used[rows[order[_MOST_KNOWN:]]] = False
            for image, one in self.standings.of_class(name):
                row = self.row_of[image]
                answers = one.value in (Value.PRESENT, Value.ABSENT)
                used[row] = answers and one.asked == Asked.CHOSEN
                labels[row] = int(one.value or 0) if answers else 0
            used[[self.row_of[draw.image] for draw in self.random.draws.get(name, [])]] = False
            rows = np.flatnonzero(used)
            return Training(rows, labels[rows] == PRESENT)


def _plain(score: np.float32 | float) -> float | None:
    """A number that JSON has; None for NaN."""
    return None if np.isnan(score) else round(float(score), 6)
