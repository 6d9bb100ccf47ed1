"""The state of a review: what to look at next, and when the scores of a new class are tested.

All methods can be called from several threads.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError, one_of
from partlabel.base.randomness import key, uniform
from partlabel.labels import PRESENT
from partlabel.output.review.cell_view import CellView
from partlabel.output.review.judged_labels import JudgedLabels
from partlabel.output.review.opinions import Opinions
from partlabel.output.review.orders import ORDERS, ClassLabels, OrderName, first
from partlabel.output.review.review_labels import Rows
from partlabel.output.review.useful import most_useful
from partlabel.output.review.verdict_journal import Journal
from partlabel.output.review.verdicts import Value

MOST_EXAMPLES = 50
_USEFUL = 30  # labels that are chosen at a time
_TO_TEST = 5  # present and absent verdicts that a new class needs before its scores are tested


class Desk(JudgedLabels):
    """The state of a review.

    Args:
        opinions: the labels, and what the run says about them.
        journal: where everything is kept.
        folder: for files of plans.
    """

    def __init__(self, opinions: Opinions, journal: Journal, folder: Path) -> None:
        super().__init__(opinions, journal, folder)
        self._useful: dict[str, tuple[NDArray[np.float32] | None, Rows]] = {}
        self._similar: dict[tuple[int, ...], NDArray[np.float32]] = {}

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
            left_out = [row for row in {*seen, *drawn} if 0 <= row < len(self.images)]
            priority[left_out] = -np.inf
            rows = first(priority, size - len(drawn)).tolist()
            # mixed in at places that depend on nothing but the images
            places = uniform(key(self.seed, "place", name), self.image_keys[drawn]).tolist()
            for row, where in zip(drawn, places, strict=True):
                rows.insert(int(where * (len(rows) + 1)), row)
            return [self.cell(name, row) for row in rows]

    def examples(self, name: str) -> list[int]:
        """Images that are known to have a class, those of reviewers first."""
        with self.lock:
            verdicts = {image: one.value for image, one in self.standings.of_class(name)}
            rows = [
                self.row_of[image] for image, value in verdicts.items() if value == Value.PRESENT
            ]
            known = [
                row
                for row in np.flatnonzero(self.known(name) == PRESENT).tolist()
                if self.images[row] not in verdicts
            ]
            return [*rows, *known][:MOST_EXAMPLES]

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
            f"{_TO_TEST - number} more {word} {'one' if _TO_TEST - number == 1 else 'ones'}"
            for number, word in ((present, "present"), (absent, "absent"))
            if number < _TO_TEST
        ]
        if lacks:
            return False, f"before its scores can be tested, '{name}' needs {' and '.join(lacks)}"
        if name not in self.learned:
            return False, f"'{name}' has no scores yet; they come after a few more verdicts"
        return True, ""
