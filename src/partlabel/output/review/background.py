"""The thread that learns from verdicts while people work."""

import threading
from collections.abc import Callable

import numpy as np

from partlabel.output.review.desk import Desk
from partlabel.output.review.learner import Learner

EVERY = 20
"""Verdicts of a class after which its head is fitted again."""

_EVERY_NEW = 4  # the same for a class that the run does not know


class Background:
    """Fits the heads of classes with new verdicts, one after the other, in a thread.

    Args:
        desk: the state of the review; it must have features.
        failed: called with an exception that nobody expected.
    """

    def __init__(self, desk: Desk, failed: Callable[[Exception], object]) -> None:
        features = desk.opinions.features
        assert features is not None
        self.desk, self.learner, self.failed = desk, Learner(features), failed
        self.fits = 0
        """Number of fits so far, so that a page sees when the order may be new."""
        self.now = ""
        """The class that is being fitted."""
        self._wake, self._stop = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()

    def notice(self) -> None:
        """Look for classes with new verdicts."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread."""
        self._stop = True
        self._wake.set()
        self._thread.join(timeout=10)

    def until_next(self, name: str) -> int:
        """Verdicts of a class until its head is fitted again."""
        return max(self._every(name) - self.desk.changed[name], 0)

    def _every(self, name: str) -> int:
        known = self.desk.run_scores(name) is not None
        return EVERY if known else _EVERY_NEW

    def _run(self) -> None:
        while not self._stop:
            try:
                fitted = [self._fit(name) for name in self._due()]
            except Exception as error:
                self.failed(error)
                return
            if not any(fitted):
                self._wake.wait()
                self._wake.clear()

    def _due(self) -> list[str]:
        with self.desk.lock:
            changed = list(self.desk.changed.items())
        return [name for name, number in changed if number >= self._every(name)]

    def _fit(self, name: str) -> bool:
        """Fit the head of a class; False if it has not both kinds of labels."""
        desk = self.desk
        with desk.lock:
            desk.changed[name] = 0
            labels = desk.training(name)
        if len(np.unique(labels.present)) < 2:
            return False
        self.now = name
        scores = self.learner.learn(name, labels.rows, labels.present, desk.run_scores(name))
        with desk.lock:
            desk.learned[name] = scores
        self.fits += 1
        self.now = ""
        return True
