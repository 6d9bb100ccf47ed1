"""The search for good candidates: which trainings to make, within a number of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from partlabel.training.auto.portfolio import DECAYS, Candidate, Recipe, nearest_decay

_ROUNDS = 3  # of teaching
_TAUGHT = 0.3  # share of the expected present labels that a teacher adds
_CLIMBERS = 3  # recipes, at least, whose weight decay is searched

Measure = Callable[[Candidate, int], float]  # a candidate, trained on so many folds, to its score


class SpentError(Exception):
    """The next training is beyond the budget."""


@dataclass
class Search:
    """Finds the weight decay of the best recipes.

    First, all recipes are compared on a few folds, at the weight decay that they start from. For
    the better half of them, the weight decay is searched on the same folds: larger and smaller ones
    are tried as long as they are better. The best candidate of each is then trained on all folds.
    At last, the best candidates with different heads teach each other, in rounds.

    Args:
        recipes: what to try; with a small budget, the first ones only.
        measure: trains a candidate on the first so many folds; returns its score, or NaN.
        folds: number of folds.
        screening: number of folds for the first comparisons.
        budget: number of trainings, at least ``folds``.
        teach: whether it is known how many labels are present, so that candidates can teach.
    """

    recipes: list[Recipe]
    measure: Measure
    folds: int
    screening: int
    budget: int
    teach: bool = False
    spent: int = 0
    scores: dict[tuple[Candidate, int], float] = field(default_factory=dict)

    def run(self) -> list[Candidate]:
        """All candidates that were trained on all folds."""
        left = self.folds - self.screening  # trainings that finish a candidate
        lessons = self._lessons()
        reserve = left * self._finalists(left) + lessons
        start = [self._first(recipe) for recipe in self.recipes]
        try:
            for candidate in start:
                self._score(candidate, self.screening, reserve)
        except SpentError:
            pass
        tried = [one for one in start if self._known(one) > -math.inf]
        ranked = sorted(tried, key=self._known, reverse=True)
        climbers = ranked[: max(_CLIMBERS, -(-len(ranked) // 2))]
        best = [self._climb(candidate, reserve) for candidate in climbers]
        finished = sorted(best, key=self._known, reverse=True)
        try:
            for candidate in finished:
                self._score(candidate, self.folds, 0 if len(self._finished()) < 2 else lessons)
            for _ in range(_ROUNDS if self.teach else 0):
                self._exchange()
        except SpentError:
            pass
        return self._finished()

    def _finished(self) -> list[Candidate]:
        return [
            candidate
            for (candidate, folds), score in self.scores.items()
            if folds == self.folds and score > -math.inf
        ]

    def _exchange(self) -> None:
        """Train the best candidate of each head again, taught by the best one with another head."""
        ranked = sorted(self._finished(), key=lambda c: -self.scores[c, self.folds])
        students = {c.recipe.head: c for c in reversed(ranked) if c.teacher is None}
        for head, student in students.items():
            teacher = next((c for c in ranked if c.recipe.head != head), None)
            if teacher is not None:
                taught = replace(student, teacher=teacher, share=_TAUGHT)
                self._score(taught, self.folds, 0)

    def _finalists(self, left: int) -> int:
        """How many candidates to finish: a third of the budget is for this, if it allows one."""
        return min(_CLIMBERS + 2, -(-self.budget // (3 * left))) if left else 0

    def _lessons(self) -> int:
        """How many trainings to keep for candidates that are taught; none in a small budget."""
        wanted = 2 * _ROUNDS * self.folds
        return min(wanted, self.budget // 4) if self.teach and self.budget >= 8 * self.folds else 0

    def _first(self, recipe: Recipe) -> Candidate:
        return Candidate(recipe, nearest_decay(recipe.decay))

    def _known(self, candidate: Candidate) -> float:
        score = self.scores.get((candidate, self.screening), -math.inf)
        return -math.inf if math.isnan(score) else score

    def _climb(self, candidate: Candidate, reserve: int) -> Candidate:
        """The candidate with the best weight decay that single steps on the grid lead to."""
        best, at = candidate, DECAYS.index(candidate.decay)
        try:
            for step in (1, -1):
                place = at + step
                while 0 <= place < len(DECAYS):
                    other = Candidate(candidate.recipe, DECAYS[place])
                    if self._score(other, self.screening, reserve) <= self._known(best):
                        break
                    best, place = other, place + step
                if best is not candidate:
                    break  # a larger one is better, so a smaller one is not tried
        except SpentError:
            pass
        return best

    def _score(self, candidate: Candidate, folds: int, reserve: int) -> float:
        """The score of a candidate, which is trained if the budget allows it."""
        place = candidate, folds
        if place not in self.scores:
            done = self.screening if (candidate, self.screening) in self.scores else 0
            needed = max(folds - done, 0)
            if self.spent + needed + reserve > self.budget:
                raise SpentError
            self.spent += needed
            score = self.measure(candidate, folds)
            self.scores[place] = -math.inf if math.isnan(score) else score
        return self.scores[place]
