"""The search for good candidates: which trainings to make, within a number of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from partlabel.training.auto.portfolio import DECAYS, Candidate, Recipe, nearest_decay

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

    Args:
        recipes: what to try; with a small budget, the first ones only.
        measure: trains a candidate on the first so many folds; returns its score, or NaN.
        folds: number of folds.
        screening: number of folds for the first comparisons.
        budget: number of trainings, at least ``folds``.
    """

    recipes: list[Recipe]
    measure: Measure
    folds: int
    screening: int
    budget: int
    spent: int = 0
    scores: dict[tuple[Candidate, int], float] = field(default_factory=dict)

    def run(self) -> list[Candidate]:
        """All candidates that were trained on all folds."""
        left = self.folds - self.screening  # trainings that finish a candidate
        reserve = left * self._finalists(left)
        start = [self._first(recipe) for recipe in self.recipes]
        try:
            for candidate in start:
                self._score(candidate, self.screening, reserve)
        except SpentError:
            pass
        tried = [one for one in start if self._known(one) > -math.inf]
        ranked = sorted(tried, key=self._known, reverse=True)
        climbers = ranked[: max(_CLIMBERS, -(-len(ranked) // 2))]
        best = [
            self._climb(candidate, reserve * min(len(climbers), _CLIMBERS))
            for candidate in climbers
        ]
        finished = sorted(best, key=self._known, reverse=True)
        try:
            for candidate in finished:
                self._score(candidate, self.folds, 0)
        except SpentError:
            pass
        return [c for (c, folds), score in self.scores.items() if folds == self.folds and score > 0]

    def _finalists(self, left: int) -> int:
        """How many candidates to finish: a third of the budget is for this, if it allows one."""
        return min(_CLIMBERS + 2, -(-self.budget // (3 * left))) if left else 0

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
