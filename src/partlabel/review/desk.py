"""The state of a review: labels, opinions of the run, verdicts, random labels, learned scores.

All methods can be called from several threads.
"""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError, InputError, one_of
from partlabel.base.randomness import key, uniform
from partlabel.labels import PRESENT, Names
from partlabel.labels.names import check_names
from partlabel.review.cell_view import CellView, view
from partlabel.review.journal_checks import check_act, check_draw, read_classes, read_seed
from partlabel.review.opinions import Opinions
from partlabel.review.orders import ORDERS, ClassLabels, OrderName, first
from partlabel.review.random_labels import RandomLabels
from partlabel.review.review_labels import ReviewLabels, Rows
from partlabel.review.standing import Standings
from partlabel.review.verdict_journal import Journal
from partlabel.review.verdicts import Act, Asked, NewClass, Value, Verdict

MOST_EXAMPLES = 50
_MOST_KNOWN = 4000  # labels of the file that a head of one class learns from
_USEFUL = 30  # labels that are chosen at a time
_TO_TEST = 5  # present and absent verdicts that a new class needs before its scores are tested


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


class Desk(ReviewLabels):
    """The state of a review.

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
        self._useful: dict[str, tuple[NDArray[np.float32] | None, Rows]] = {}
        self._similar: dict[tuple[int, ...], NDArray[np.float32]] = {}
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

    def scores(self, name: str) -> NDArray[np.float32]:
        """[n] the best scores there are: of the head that learns, or of the run; else NaN."""
        scores = self.learned.get(name)
        scores = self.run_scores(name) if scores is None else scores
        return np.full(len(self.images), np.nan, np.float32) if scores is None else scores

    def _class_labels(self, name: str, examples: Sequence[int]) -> ClassLabels:
        answered = np.zeros(len(self.images), dtype=np.bool_)
        rows = [self.row_of[image] for image in self.standings.images(name)]
        audit = self.random.audit(name)
        answered[rows + ([] if audit is None else audit.open)] = True
        suspect = np.zeros(len(self.images), dtype=np.int64)
        for row, rank in self.suspects.get(self.column(name), {}).items():
            suspect[row] = rank
        return ClassLabels(
            self.known(name),
            answered,
            self.scores(name),
            self.decided(name),
            suspect,
            self._similarity(tuple(sorted(set(examples))[:MOST_EXAMPLES])) if examples else None,
            None if self.opinions.features is None else partial(self._useful_rows, name),
        )

    def _useful_rows(self, name: str) -> Rows:
        """The rows that tell most about a class, chosen anew after a fit, or if all have one."""
        scores, features = self.scores(name), self.opinions.features
        assert features is not None
        fitted, rows = self._useful.get(name, (None, np.empty(0, dtype=np.int64)))
        answered = set(self.standings.images(name))
        is_done = all(self.images[row] in answered for row in rows)
        if is_done or fitted is not self.learned.get(name):
            from partlabel.review.useful import most_useful

            training = self.training(name)
            open_rows = np.flatnonzero((self.known(name) == 0) & ~np.isnan(scores))
            open_rows = np.setdiff1d(open_rows, training.rows)
            known = training.rows, training.present
            rows = most_useful(features, scores, known, open_rows, self.image_keys, _USEFUL)
            self._useful[name] = self.learned.get(name), rows
        return self._useful[name][1]

    def _similarity(self, examples: tuple[int, ...]) -> Callable[[], NDArray[np.float32]]:
        def compute() -> NDArray[np.float32]:
            features = self.opinions.features
            if features is None:
                raise InputError(self.opinions.learns or "this run has no features to compare")
            if examples not in self._similar:
                self._similar.clear()
                self._similar[examples] = features.similarity(np.array(examples))
            return self._similar[examples]

        return compute

    def open_suspects(self) -> list[tuple[int, str]]:
        """Row and class of suspects without a verdict, the least likely first."""
        pairs = [(row, self.classes[column]) for row, column in self.opinions.suspects.tolist()]
        return [(row, n) for row, n in pairs if self.standings.of(n, self.images[row]) is None]

    def picture_order(self, row: int, text: str) -> list[str]:
        """The classes whose name has a text in it, likely ones first, blind ones last."""
        self.image(row)
        with self.lock:
            scores = np.full(len(self.classes), -1.0)
            of_run = np.asarray(self.opinions.scores[:, row])
            scores[: len(of_run)] = np.nan_to_num(of_run, nan=-1.0)
            for name, learned in self.learned.items():
                scores[self.column(name)] = learned[row]
            for name in self.random.draws:
                if self.random.waits(name, row):
                    scores[self.column(name)] = -2.0
            names = [self.classes[column] for column in np.argsort(-scores, kind="stable")]
            return [name for name in names if text in name.lower()]

    # ---- boards

    def cells(self, name: str, rows: Sequence[int]) -> list[CellView]:
        """The labels of a class for these images."""
        with self.lock:
            return [self.cell(name, row) for row in rows]

    def examples(self, name: str) -> list[int]:
        """Images that are known to have a class, those of reviewers first."""
        with self.lock:
            said = {image: one.value for image, one in self.standings.of_class(name)}
            rows = [self.row_of[image] for image, value in said.items() if value == Value.PRESENT]
            known = [
                row
                for row in np.flatnonzero(self.known(name) == PRESENT).tolist()
                if self.images[row] not in said
            ]
            return [*rows, *known][:MOST_EXAMPLES]

    def board(
        self,
        name: str,
        order: str,
        size: int,
        seen: Sequence[int] = (),
        random: int = 0,
        examples: Sequence[int] = (),
    ) -> list[CellView]:
        """The next labels of a class to look at, with some that are drawn at random.

        Args:
            name: the class.
            order: one of ``ORDERS``.
            size: labels on the board.
            seen: rows that were shown already.
            random: how many of the labels are drawn at random.
            examples: images to be similar to; by default those that are known to have the class.
        """
        one_of("order", order, ORDERS)
        for row in examples:
            self.image(row)
        with self.lock:
            drawn = self.random.next(name, min(random, size))
            if order == OrderName.SIMILAR and not examples:
                examples = self.examples(name)
            priority = ORDERS[order](self._class_labels(name, examples))
            shown = [row for row in {*seen, *drawn} if 0 <= row < len(self.images)]
            priority[shown] = -np.inf
            rows = first(priority, size - len(drawn)).tolist()
            # mixed in at places that depend on nothing but the images
            places = uniform(key(self.seed, "place", name), self.image_keys[drawn]).tolist()
            for row, where in zip(drawn, places, strict=True):
                rows.insert(int(where * (len(rows) + 1)), row)
            return [self.cell(name, row) for row in rows]

    def start_test(self, name: str) -> None:
        """Fix the scores of a new class as they are now, so that random labels can test them.

        Answers to random labels of an earlier test stay labels, but do not test the new scores.
        """
        with self.lock:
            if self.run_scores(name) is not None:
                raise InputError(f"'{name}' is a class of the run; its scores are fixed already")
            ready, why = self.test_readiness(name)
            if not ready:
                raise InputError(why)
            scores = self.learned[name].copy()
            answered = [self.row_of[image] for image in self.standings.images(name)]
            scores[answered] = np.nan  # the test is about the labels that nobody has answered
            self.random.start(name, scores)

    def test_readiness(self, name: str) -> tuple[bool, str]:
        """Whether the scores of a new class can be tested, and if not, what is missing."""
        labels = self.training(name)
        present, absent = int(labels.present.sum()), int((~labels.present).sum())
        lacks = [
            f"{_TO_TEST - number} more {word} ones"
            for number, word in ((present, "present"), (absent, "absent"))
            if number < _TO_TEST
        ]
        if lacks:
            return False, f"before its scores can be tested, '{name}' needs {' and '.join(lacks)}"
        if name not in self.learned:
            return False, f"'{name}' has no scores yet; they come after a few more verdicts"
        return True, ""

    # ---- verdicts

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

    def judge(self, id: str, reviewer: str, verdicts: Sequence[tuple[int, str, Value]]) -> Judged:
        """Keep verdicts (row, class, value); they are on disk when this returns.

        Args:
            id: made by the page. Verdicts that come again under the same id count once.
        """
        with self.lock:
            done = self.standings.act(id)
            if done is None:
                full = tuple(self._verdict(*verdict) for verdict in verdicts)
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

    def _verdict(self, row: int, name: str, value: Value) -> Verdict:
        """A verdict with what the model says; it is random if the label waits as such."""
        image, column = self.image(row), self.column(name)
        in_run = column < len(self.opinions.scores)
        draw = self.random.draw_of(name, row)
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

    # ---- learning

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
