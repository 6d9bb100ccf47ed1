"""The test of a run's scores on reserved labels: calibration and guarantees."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.base.randomness import key, keys, uniform
from partlabel.judging.completion.held_labels import Evidence, Kind, Scores, gather, populations
from partlabel.judging.completion.likeness import Likeness, compare_images
from partlabel.judging.scoring import Scored
from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.calibration import Bins, Calibration, reliability
from partlabel.metrics.guarantee import Guarantees, Held, find_guarantees
from partlabel.metrics.sampling import Basis, Population
from partlabel.training.run import Run


class Share(NamedTuple):
    """A share of cells per class [C] and its standard error; NaN for a class without cells."""

    mean: Scores
    noise: Scores


class Scope(NamedTuple):
    """Labels to fill in that are tested in the same way, and what is guaranteed of them."""

    population: Population
    guarantees: Guarantees

    def decide(self) -> NDArray[np.int8]:
        """[n, C] the values that are filled in; 0 for all other cells."""
        values = self.guarantees.decide(self.population.scores)
        return np.where(self.population.unknown, values, 0).astype(np.int8)


@dataclass(frozen=True)
class Assessment:
    """The scores of a run, tested on reserved labels.

    Args:
        precision: the precision that is guaranteed.
        evidence: the labels that it rests on, and calibrated scores.
        scopes: the labels to fill in, by how they are tested.
        likeness: how unlike images are to those whose labels test them.
        before, after: reliability on reserved labels, of raw and of calibrated scores.
        filled: share of the reserved labels that would have been filled in as present, as absent.
        expected: share of the reserved labels that calibrated scores expect to be present.
    """

    precision: float
    evidence: Evidence
    scopes: list[Scope]
    likeness: Likeness
    before: Bins
    after: Bins
    filled: dict[int, float]
    expected: Share

    @property
    def logits(self) -> Scores:
        """[n, C] calibrated, of all images of the run; 0 for those that cannot be read."""
        return self.evidence.logits

    @property
    def calibration(self) -> Calibration:
        """Turns scores into probabilities."""
        return self.evidence.calibration

    @property
    def fillable(self) -> NDArray[np.bool_]:
        """[n, C] the unknown cells, but for those of images that are unlike those that test."""
        return self.evidence.unknown & ~self.likeness.left_out

    def decide(self) -> NDArray[np.int8]:
        """[n, C] the values of the unknown cells that are filled in; 0 for all other cells."""
        values = np.zeros(self.logits.shape, dtype=np.int8)
        for scope in self.scopes:
            values += self.decide_in(scope)
        return values

    def decide_in(self, scope: Scope) -> NDArray[np.int8]:
        """[n, C] the values that are filled in because of the tests of a scope; 0 elsewhere."""
        values = scope.decide()
        if scope.guarantees.unit == "image":
            # fewer of the unknown labels are present where some presences are known already, so
            # what was tested on other images holds for absent labels only
            tagged = self.fillable & self.evidence.tagged[:, None]
            absent = scope.guarantees.decide(self.logits) == ABSENT
            values[tagged & absent] = ABSENT
        return values


def assess(
    run: Run,
    scored: Scored,
    precision: float,
    basis: Basis | None = None,
    kind: Kind | None = None,
    *,
    folder: Path | None = None,
    despite_shift: bool = False,
    likeness: Likeness | None = None,
) -> Assessment:
    """Calibrate the scores of a run, and test thresholds on labels that no training saw.

    Args:
        run: a finished run.
        scored: the scores of all images of the run, and of others after them.
        precision, basis: see :func:`guarantee.find_guarantees`.
        kind: see :func:`held_labels.gather`.
        folder: of the images that the run was not given.
        despite_shift: fill in labels of images that are unlike those that test.
        likeness: of an earlier assessment of these scores; None to compare the images.
    """
    evidence = gather(run, scored, kind)
    first = None
    if evidence.kind == "exact":
        first = Held(
            evidence.calibration.logits(evidence.choosing.scores), evidence.choosing.labels
        )
    parts = populations(run.selection, evidence, run.settings.seed, scored.table)
    if likeness is None:
        unknown, tests = _tested_by_image(evidence, parts)
        likeness = compare_images(run, scored, unknown, tests, folder, despite_shift=despite_shift)
    left = ~likeness.left_out
    scopes = [
        Scope(part, find_guarantees(first, part, precision, basis))
        for part in (replace(part, unknown=part.unknown & left) for part in parts)
    ]
    known = evidence.tested != 0
    present = evidence.tested[known] == PRESENT
    decided = (
        scopes[0].guarantees.decide(evidence.logits)[known] if scopes else np.zeros(known.sum())
    )
    return Assessment(
        precision,
        evidence,
        scopes,
        likeness,
        reliability(scored.scores[known], present),
        reliability(expit(evidence.logits[known]), present),
        {
            value: float(np.mean(decided == value)) if len(decided) else 0.0
            for value in (PRESENT, ABSENT)
        },
        expected_share(evidence.logits, known),
    )


def _tested_by_image(
    evidence: Evidence, parts: list[Population]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """[n, C] cells that labels of other images test, and where these labels are."""
    nothing = np.zeros(evidence.unknown.shape, dtype=np.bool_)
    for part in parts:
        if part.unit == "image":
            # absent labels of tagged images are filled in by the same tests
            tagged = evidence.unknown & evidence.tagged[:, None]
            return part.unknown | tagged, part.labels != 0
    return nothing, nothing


def assess_new_images(run: Run, scored: Scored, precision: float) -> tuple[Guarantees, Calibration]:
    """What can be guaranteed of the final model's answers for images that it was not given.

    Args:
        run: a finished run with reserved labels.
        scored: the scores of all images of the run.
        precision: share of the answers that must be right.
    """
    evidence = gather(run, scored, "exact")
    tests = evidence.tested != 0
    names = keys(scored.table.ids)[:, None], keys(scored.table.classes)
    draws = uniform(key(run.settings.seed, "equal ratios"), *names)
    groups = np.zeros(len(tests), dtype=np.int64)
    together = run.selection.groups.first
    population = Population(
        evidence.logits, evidence.tested, ~tests, draws, groups, "image", together
    )
    first = Held(evidence.calibration.logits(evidence.choosing.scores), evidence.choosing.labels)
    return find_guarantees(first, population, precision), evidence.calibration


def expected_share(logits: Scores, cells: NDArray[np.bool_]) -> Share:
    """The share of the cells of each class that calibrated logits [n, C] expect to be present."""
    number = np.maximum(cells.sum(axis=0), 1)
    probabilities = np.where(cells, expit(logits), 0.0)
    mean = np.where(cells.any(axis=0), probabilities.sum(axis=0) / number, np.nan)
    spread = np.where(cells, (probabilities - mean) ** 2, 0.0).sum(axis=0) / number
    return Share(mean, np.sqrt(spread / number))
