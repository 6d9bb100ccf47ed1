"""Check how often guarantees are wrong, on generated features and labels.

    python -m benchmarks.validity --draws 300

Each draw generates images, hides labels, trains a model, and fills labels in with the functions
that `complete` uses. Labels are missing in each of several ways. Models are good, or have learned
their training labels by heart, or are noise. Some classes are rare, and errors come by image. Two
classes are present, or absent, just a little less often than is guaranteed: noise would do there,
if tests were too lenient. A guarantee by label is broken if fewer of the labels that rest on it
are right than it states. One by image is about images in general, so it is broken if fewer labels
of 1,500 other images are right, which no test has seen. Of the tests one in twenty may end so,
counted are those that could: some threshold with enough labels is in truth not good enough. Of
the guarantees that were made, more may be broken, since noise that passes at all passes wrongly.
Both are counted.

Two tests are wrong on purpose. One has no margin for chance, one looks at labels that were trained
on. If these are not caught, the experiment is too weak to say anything about the others.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from benchmarks.report import machine
from benchmarks.worlds import IMAGES, LEARNERS, MISSING, Floats, World, make_world
from partlabel.judging.completion.held_labels import HeldLabels, Judges, Kind, Mask, judges_of
from partlabel.judging.completion.layout import (
    PARTS,
    Part,
    lay_out,
    populations,
    reserved_labels,
)
from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.bounds import fewest
from partlabel.metrics.calibration import calibrate
from partlabel.metrics.guarantee import (
    Guarantee,
    Guarantees,
    find_guarantees,
    nothing_guaranteed,
)
from partlabel.metrics.guarantee_thresholds import Limit
from partlabel.metrics.known_cells import KnownCells, known_cells
from partlabel.metrics.sampling import Basis, Population, draw_sample
from partlabel.metrics.spread import spread_of
from partlabel.output.bench.sheets import Sheet, markdown
from partlabel.training.reserving import evidence, tagged_images
from partlabel.training.run_split import Selection, select
from partlabel.training.settings import Settings

FOLDS = 5
_CHOOSING = 0.2  # share of a half that chooses
PRECISION = 0.9
BASES: tuple[Basis | None, ...] = (None, "class", "pooled")


@dataclass
class Tally:
    """Tests that could go wrong, guarantees made and broken, by value, and labels found."""

    tests: dict[int, int] = field(default_factory=lambda: {PRESENT: 0, ABSENT: 0})
    made: dict[int, int] = field(default_factory=lambda: {PRESENT: 0, ABSENT: 0})
    broken: dict[int, int] = field(default_factory=lambda: {PRESENT: 0, ABSENT: 0})
    found: int = 0
    present: int = 0

    def row(self) -> list[str]:
        """The cells of one row of the table."""
        shares = [
            text
            for value in (PRESENT, ABSENT)
            for text in (
                f"{self.broken[value]} of {self.tests[value]} (at most {most(self.tests[value])})",
                f"{self.broken[value]} of {self.made[value]}",
            )
        ]
        return [*shares, f"{self.found / max(self.present, 1):.1%}"]

    @property
    def holds(self) -> bool:
        """Whether no more guarantees are broken than chance allows."""
        return all(self.broken[value] <= most(self.tests[value]) for value in (PRESENT, ABSENT))


def most(tests: int) -> int:
    """The broken guarantees that chance exceeds once in a hundred times, if 5% are broken."""
    return int(binom.ppf(0.99, tests, 0.05))


def run_draw(missing: str, learner: str, test: str, seed: int, tally: Tally) -> None:
    """Generate, train, fill in, and compare with the truth."""
    kind, make, find, _ = TESTS[test]
    rng = np.random.default_rng([seed, *learner.encode(), *missing.encode()])
    world = make_world(rng)
    table = MISSING[missing](world, rng)
    val, reserve = (0.0, 0.0) if kind == "cross" else (0.2, None)
    settings = Settings(method="bce", val=val, reserve=reserve, seed=seed, drop_empty=True)
    selection = select(table, settings)
    columns = [int(name[1:]) for name in selection.classes]
    truth = world.truth[:, columns]
    hidden, basis = selection.known.dense() == 0, BASES[seed % len(BASES)]
    tally.present += int((hidden & (truth == PRESENT)).sum())
    for found in make(world, selection, learner, rng):
        for population, unknown in found.populations(selection, seed):
            guarantees = find(found.first, population, PRECISION, basis)
            others = found.other_logits, world.other_truth[:, columns]
            cells = Cells(population, unknown, found.logits, truth, *others)
            count_broken(cells, guarantees, basis, tally)


def count_broken(cells: "Cells", guarantees: Guarantees, basis: Basis | None, tally: Tally) -> None:
    """Count the guarantees for some cells, and how many of them are broken."""
    decided, truth = np.where(cells.unknown, guarantees.decide(cells.logits), 0), cells.truth
    tally.found += int(((decided == PRESENT) & (truth == PRESENT)).sum())
    for value in (PRESENT, ABSENT):
        ours = guarantees.of(value)
        pools = [list(pool) for pool in dict.fromkeys(one.pool for one in ours if one.basis)]
        without = [j for j, one in enumerate(ours) if one.basis is None]
        failed = [[j] for j in without] if basis == "class" else [without]
        for pool in failed:
            tally.tests[value] += could_break(cells, pool, value)
        for pool in pools:
            made = bool((decided[:, pool] == value).any())
            broken = made and share_right(cells, guarantees, pool, value) < PRECISION
            tally.made[value] += made
            tally.broken[value] += broken
            tally.tests[value] += broken or could_break(cells, pool, value)


class Cells(NamedTuple):
    """A population, and arrays [n, C]: its unknown cells, calibrated logits, and the truth.

    The last two are those of other images.
    """

    population: Population
    unknown: Mask
    logits: Floats
    truth: Any
    other_logits: Floats
    other_truth: Any


def share_right(cells: Cells, guarantees: Guarantees, pool: list[int], value: int) -> float:
    """The share of right labels that a guarantee states something about.

    By image, it is that of other images, each with the same weight, and with as much weight for a
    class as it has unknown labels.
    """
    if cells.population.unit == "cell":
        filled = (cells.unknown & (guarantees.decide(cells.logits) == value))[:, pool]
        return float((cells.truth[:, pool] == value)[filled].mean())
    filled = guarantees.decide(cells.other_logits)[:, pool] == value
    weights = filled * cells.population.unknown[:, pool].sum(axis=0)
    right = (weights * (cells.other_truth[:, pool] == value)).sum(axis=1)
    total = weights.sum(axis=1)
    return float((right[total > 0] / total[total > 0]).mean()) if total.any() else 1.0


def could_break(cells: Cells, classes: list[int], value: int) -> bool:
    """Whether some threshold with enough labels beyond it is in truth not good enough."""
    ratios = cells.population.ratios[classes]
    if not (ratios > 0).any():
        return False
    if cells.population.unit == "cell":
        logits, truth, inside = cells.logits, cells.truth, cells.unknown[:, classes]
        least = fewest(PRECISION) / ratios[ratios > 0].min()
    else:
        logits, truth = cells.other_logits, cells.other_truth
        inside = np.ones((len(logits), len(classes)), dtype=np.bool_)
        tests = int(np.isin(cells.population.tests.columns, classes).sum())
        least = fewest(PRECISION) * inside.size / max(tests, 1)
    confidence = value * logits[:, classes]
    chosen = inside & (confidence > 0)
    order = np.argsort(-confidence[chosen], kind="stable")
    wrong = np.cumsum((truth[:, classes] != value)[chosen][order])
    number = np.arange(len(wrong)) + 1
    return bool(((number >= least) & (wrong > (1 - PRECISION) * number)).any())


def no_margin(
    first: KnownCells | None, population: Population, precision: float, basis: Basis | None
) -> Guarantees:
    """Guarantees without a margin: of all thresholds the lowest at which enough labels are right.

    Wrong on purpose: it has no confidence, and tries all thresholds.
    """
    guarantees = nothing_guaranteed(population.classes, population.unit)
    usable = np.flatnonzero(population.ratios).tolist()
    for classes in [[j] for j in usable] if basis == "class" else [usable] if usable else []:
        for value in (PRESENT, ABSENT):
            sample = draw_sample(population, classes, value)
            tested, wrong = np.cumsum(sample.reserved), np.cumsum(sample.wrong)
            passes = (wrong <= (1 - precision) * tested) & (tested > 0) & (sample.confidence > 0)
            if passes.any():
                limit = Limit(float(sample.confidence[np.flatnonzero(passes)[-1]]))
                for j in classes:
                    pool = tuple(classes)
                    guarantees.of(value)[j] = Guarantee(limit, basis or "pooled", pool)
    return guarantees


@dataclass(frozen=True)
class Evidence:
    """What guarantees rest on.

    Args:
        kind: how they are tested.
        first: labels that choose, with calibrated logits; None if they test too.
        logits: [n, C] calibrated.
        other_logits: [m, C] those of other images.
        tested: labels that test.
        images: [n] those to fill in; None for all.
    """

    kind: Kind
    first: KnownCells | None
    logits: Floats
    other_logits: Floats
    tested: Judges
    images: Mask | None = None

    def populations(self, selection: Selection, seed: int) -> list[tuple[Population, Mask]]:
        """Labels to fill in with those that test them, and where [n, C] they are unknown."""
        known = selection.known
        tagged = tagged_images(known)
        readable = np.ones(len(known), dtype=np.bool_) if self.images is None else self.images
        nothing = np.zeros(0, dtype=np.int64)
        chosen = Judges(nothing, nothing, nothing.astype(np.int8))
        held = HeldLabels(self.kind, chosen, None, self.tested, tagged, readable)
        layout = lay_out(selection, held, seed)
        unknown = (known.dense() == 0) & readable[:, None]
        parts = np.where(unknown, layout.of(np.arange(len(known))), -1)
        spreads = {part: spread_of(self.logits, parts == part) for part in Part}
        scores = self.logits[self.tested.rows, self.tested.columns]
        tested = self.tested.with_scores(scores, len(known.classes))
        tests = reserved_labels(layout, tested, (scores, scores), seed, known)
        found = populations(layout, tests, spreads)
        return [(one, np.isin(parts, list(PARTS[one.unit]))) for one in found]


def trained_evidence(world: World, selection: Selection, learner: str, rng: Any) -> list[Evidence]:
    """Labels that were trained on calibrate, choose and test. Wrong on purpose."""
    labels, train = selection.table.dense(), selection.train
    scores = _scores(world, train, labels, learner, rng)
    choosing = scores[train], evidence(selection.table.subset(train)).dense()
    return [_exact(choosing, scores, _judges(evidence(selection.known).dense()))]


def exact_evidence(world: World, selection: Selection, learner: str, rng: Any) -> list[Evidence]:
    """Labels that were reserved, with the scores of a model that was trained on the others."""
    labels = selection.table.dense()
    train, val = selection.train, selection.val
    scores = _scores(world, train, labels, learner, rng)
    choosing = scores[val], evidence(selection.table.subset(val)).dense()
    return [_exact(choosing, scores, judges_of(selection.tested, np.arange(len(labels))))]


def _scores(world: World, train: Any, labels: Any, learner: str, rng: Any) -> Floats:
    """[n + m, C] the scores of all images and of the other ones, by a model of some images."""
    everything = np.concatenate([world.features, world.other_features])
    return LEARNERS[learner](world.features[train], labels[train], everything, rng)


def _exact(choosing: tuple[Floats, Any], scores: Floats, tested: Judges) -> Evidence:
    calibration = calibrate(*choosing)
    first = known_cells(calibration.logits(choosing[0]), choosing[1])
    logits = calibration.logits(scores)
    return Evidence("exact", first, logits[:IMAGES], logits[IMAGES:], tested)


def _judges(labels: Any) -> Judges:
    """The known labels of an array [n, C]."""
    rows, columns = np.nonzero(labels)
    return Judges(rows, columns, labels[rows, columns])


def crossed_evidence(world: World, selection: Selection, learner: str, rng: Any) -> list[Evidence]:
    """All known labels, with the scores of models that were not trained on their images."""
    labels, judges = selection.table.dense(), evidence(selection.table).dense()
    folds = rng.integers(FOLDS, size=2 * IMAGES)  # the other images are dealt to the folds too
    scores = np.zeros((2 * IMAGES, labels.shape[1]))
    for fold in range(FOLDS):
        held = folds == fold
        scores[held] = _scores(world, ~held[:IMAGES], labels, learner, rng)[held]
    logits = np.zeros(scores.shape)
    for fold in range(FOLDS):
        held = folds == fold
        rest = np.flatnonzero(~held[:IMAGES])
        logits[held] = calibrate(scores[rest], judges[rest]).logits(scores[held])
    return [Evidence("cross", None, logits[:IMAGES], logits[IMAGES:], _judges(judges))]


def halved_evidence(world: World, selection: Selection, learner: str, rng: Any) -> list[Evidence]:
    """Two halves of the images: a model of each, and the labels of the other half that test it.

    The half that trains a model also calibrates it and chooses what is tested, with a fifth of its
    images. Each half has a guarantee of its own, at the full level of confidence: a statement about
    both together would need a stricter test, and find less.
    """
    labels, judges = selection.table.dense(), evidence(selection.table).dense()
    first, found = rng.random(IMAGES) < 0.5, []
    for own in (first, ~first):
        chooses = own & (rng.random(IMAGES) < _CHOOSING)
        train = own & ~chooses
        scores = _scores(world, train, labels, learner, rng)
        tested = _judges(np.where(own[:, None], 0, judges))
        one = _exact((scores[:IMAGES][chooses], judges[chooses]), scores, tested)
        found.append(replace(one, images=~own))
    return found


class Test(NamedTuple):
    """A way to test guarantees: its kind, the labels that it rests on, and what it makes of them.

    Args:
        planted: whether it is wrong on purpose.
    """

    kind: Kind
    evidence: Callable[[World, Selection, str, Any], list[Evidence]]
    find: Callable[[KnownCells | None, Population, float, Basis | None], Guarantees]
    planted: bool = False


TESTS = {
    "exact": Test("exact", exact_evidence, find_guarantees),
    "halves": Test("cross", halved_evidence, find_guarantees),
    "cross": Test("cross", crossed_evidence, find_guarantees),
    "wrong: no margin": Test("exact", exact_evidence, no_margin, planted=True),
    "wrong: on trained labels": Test("exact", trained_evidence, find_guarantees, planted=True),
}
PLANTED = {"wrong: no margin": "linear", "wrong: on trained labels": "by heart"}  # and its model
HEADER = [
    *("test", "labels missing", "model"),
    *("broken: present", "of made", "broken: absent", "of made"),
    "present found",
]


def main() -> int:
    """Print how many guarantees are broken, by the way in which labels are missing."""
    parser = argparse.ArgumentParser(description="How often are guarantees wrong?")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--tests", nargs="*", default=list(TESTS), choices=list(TESTS))
    parser.add_argument("--missing", nargs="*", default=list(MISSING), choices=list(MISSING))
    args = parser.parse_args()
    rows, surprises = [], 0
    for test in args.tests:
        planted = TESTS[test].planted
        for missing in args.missing:
            for learner in [PLANTED[test]] if planted else LEARNERS:
                tally = Tally()
                for seed in range(args.draws // len(LEARNERS)):
                    run_draw(missing, learner, test, seed, tally)
                verdict = (" (caught)", " (MISSED)") if planted else (" (TOO MANY)", "")
                surprises += tally.holds == planted
                rows.append([test + verdict[tally.holds], missing, learner, *tally.row()])
                print(" | ".join(rows[-1]), flush=True)
    print(f"\n{machine()}; {args.draws} draws per row of labels; precision {PRECISION:.0%}\n")
    print(markdown(Sheet(HEADER, rows)))
    return int(surprises > 0)


if __name__ == "__main__":
    sys.exit(main())
