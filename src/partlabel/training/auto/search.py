"""The search for good candidates: which trainings to make, within a number of them."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from partlabel.training.auto.portfolio import DECAYS, Candidate, Recipe, nearest_decay

_ROUNDS = 3  # of teaching
_STUDENTS = 3  # candidates that are taught
_SHARES = [0.25, 0.5]  # of the present labels that are expected, how many teachers may add
_ON_MAPS = 3  # methods that are tried with a head that looks at positions
_FINALISTS = 5  # candidates, at least, that are trained on all folds

Measure = Callable[[Candidate, int], float]  # a candidate, trained on so many folds, to its score


class SpentError(Exception):
    """The next training is beyond the budget."""


@dataclass
class Search:
    """Finds the weight decay of the best recipes.

    First, all recipes are compared on a few folds, at the weight decay that they start from. Then
    larger and smaller weight decays are tried as long as they are better, on the same folds. The
    same is done for the best of them with a head that looks at positions, which takes longer. The
    better half is then trained on all folds. At last, the best candidates of each head together
    teach the best ones, in rounds.

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
        candidates = self._explore(self.recipes, reserve + self._kept_for_maps())
        candidates += self._explore(self._on_maps(candidates), reserve)
        ranked = sorted(candidates, key=self._known, reverse=True)
        with suppress(SpentError):
            for candidate in ranked[: max(_FINALISTS, -(-len(ranked) // 2))]:
                self._score(candidate, self.folds, 0 if len(self._finished()) < 2 else lessons)
        if self.teach and self._finished():
            with suppress(SpentError):  # what the finalists could not have is kept for lessons
                self._teach()
        return self._finished()

    def _explore(self, recipes: list[Recipe], reserve: int) -> list[Candidate]:
        """Each recipe with the best weight decay that is found, for the best recipes first."""
        start = [Candidate(recipe, nearest_decay(recipe.decay)) for recipe in recipes]
        try:
            for candidate in start:
                self._score(candidate, self.screening, reserve)
        except SpentError:
            pass
        tried = [one for one in start if self._known(one) > -math.inf]
        ranked = sorted(tried, key=self._known, reverse=True)
        return [self._climb(candidate, reserve, self.screening) for candidate in ranked]

    def _on_maps(self, tried: list[Candidate]) -> list[Recipe]:
        """The best methods, each with a head that looks at positions, where they have one."""
        recipes: dict[str, Recipe] = {}
        for candidate in sorted(tried, key=self._known, reverse=True):
            recipe = candidate.recipe
            if recipe.on_maps is not None:
                decay = recipe.on_maps.decay * candidate.decay / nearest_decay(recipe.decay)
                recipes.setdefault(recipe.method, replace(recipe.on_maps, decay=decay))
        return list(recipes.values())[:_ON_MAPS]

    def _kept_for_maps(self) -> int:
        """How many trainings to keep for heads that look at positions; none in a small budget."""
        if self.budget < 2 * self.folds or not any(recipe.on_maps for recipe in self.recipes):
            return 0
        return min(3 * _ON_MAPS * self.screening, self.budget // 4)

    def _finished(self) -> list[Candidate]:
        return [
            candidate
            for (candidate, folds), score in self.scores.items()
            if folds == self.folds and score > -math.inf
        ]

    def _teach(self) -> None:
        """Train the best candidates again, taught by the best one of each head, in rounds.

        The first round finds out which share of the missing positives teachers should add, and the
        weight decay of their students. Further rounds end when the teachers stay the same.
        """
        students, shares = self._students(), _SHARES
        before: tuple[Candidate, ...] = ()
        for _ in range(_ROUNDS):
            teachers = self._teachers()
            if teachers == before:
                break
            taught = [
                replace(student, teachers=teachers, share=share)
                for share in shares
                for student in students
            ]
            for candidate in taught:
                self._score(candidate, self.folds, 0)
            best = max(taught, key=lambda c: self.scores[c, self.folds])
            if len(shares) > 1:
                same = [one for one in taught if one.share == best.share]
                students = [self._climb(one, 0, self.folds) for one in same]
                shares = [best.share]
            before = teachers

    def _teachers(self) -> tuple[Candidate, ...]:
        """The best candidate of each head."""
        best = {candidate.recipe.head: candidate for candidate in reversed(self._ranked())}
        return tuple(best[head] for head in sorted(best))

    def _ranked(self) -> list[Candidate]:
        return sorted(self._finished(), key=lambda c: -self.scores[c, self.folds])

    def _students(self) -> list[Candidate]:
        """The best candidates of different methods: of each head the best, and the next ones."""
        best: dict[tuple[str, str], Candidate] = {}
        for candidate in self._ranked():
            best.setdefault((candidate.recipe.head, candidate.recipe.method), candidate)
        heads = {candidate.recipe.head: candidate for candidate in reversed(best.values())}
        return list(dict.fromkeys([*heads.values(), *best.values()]))[:_STUDENTS]

    def _finalists(self, left: int) -> int:
        """How many candidates to finish: a third of the budget is for this, if it allows one."""
        return min(_FINALISTS, -(-self.budget // (3 * left))) if left else 0

    def _lessons(self) -> int:
        """How many trainings to keep for candidates that are taught; none in a small budget."""
        wanted = _STUDENTS * (_ROUNDS + len(_SHARES) + 1) * self.folds
        return min(wanted, self.budget // 4) if self.teach and self.budget >= 8 * self.folds else 0

    def _known(self, candidate: Candidate) -> float:
        return self.scores.get((candidate, self.screening), -math.inf)

    def _climb(self, candidate: Candidate, reserve: int, folds: int) -> Candidate:
        """The candidate with the best weight decay that single steps on the grid lead to."""
        best, at = candidate, DECAYS.index(candidate.decay)
        try:
            for step in (1, -1):
                position = at + step
                while 0 <= position < len(DECAYS):
                    other = replace(candidate, decay=DECAYS[position])
                    if self._score(other, folds, reserve) <= self.scores[best, folds]:
                        break
                    best, position = other, position + step
                if best is not candidate:
                    break  # a larger one is better, so a smaller one is not tried
        except SpentError:
            pass
        return best

    def _score(self, candidate: Candidate, folds: int, reserve: int) -> float:
        """The score of a candidate, which is trained if the budget allows it."""
        trial = candidate, folds
        if trial not in self.scores:
            done = self.screening if (candidate, self.screening) in self.scores else 0
            needed = max(folds - done, 0)
            if self.spent + needed + reserve > self.budget:
                raise SpentError
            self.spent += needed
            score = self.measure(candidate, folds)
            self.scores[trial] = -math.inf if math.isnan(score) else score
        return self.scores[trial]
