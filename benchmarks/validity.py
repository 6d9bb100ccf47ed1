"""Check how often guarantees are wrong, on generated features and labels.

    python -m benchmarks.validity --draws 300

Each draw generates images, hides labels, trains a model, and fills labels in with the functions
that `complete` uses. Labels are missing in each of several ways. Models are good, or have learned
their training labels by heart, or are noise. Some classes are rare, and errors come by image. Two
classes are present, or absent, just a little less often than is guaranteed: noise would do there,
if tests were too lenient. A guarantee is broken if fewer of the labels that rest on it are right
than it states; of the tests one in twenty may end so.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from benchmarks.report import machine
from partlabel import LabelTable
from partlabel.judging.completion.held_labels import Choosing, Evidence, Kind, populations
from partlabel.labels import ABSENT, PRESENT
from partlabel.labels.cells import CHOSEN
from partlabel.metrics.calibration import calibrate
from partlabel.metrics.guarantee import Held, find_guarantees
from partlabel.metrics.sampling import Basis
from partlabel.output.bench.sheets import Sheet, markdown
from partlabel.training.reserving import evidence
from partlabel.training.selection import Selection, select
from partlabel.training.settings import Settings

PREVALENCES = (0.885, 0.5, 0.3, 0.2, 0.113, 0.06, 0.03, 0.015)
IMAGES, CLASSES, FEATURES, FOLDS = 1500, len(PREVALENCES), 16, 5
PRECISION = 0.9
BASES: tuple[Basis | None, ...] = (None, "class", "pooled")
Floats = NDArray[np.float64]
Learner = Callable[[Floats, NDArray[Any], Floats, Any], Floats]


class World(NamedTuple):
    """Features [n, d], and true labels [n, C] in {-1, 1}."""

    features: Floats
    truth: NDArray[np.int8]


def make_world(rng: Any) -> World:
    """Images of which some are hard for all classes at once; classes from common to rare."""
    features = rng.normal(size=(IMAGES, FEATURES))
    weights = rng.normal(size=(FEATURES, CLASSES)) / np.sqrt(FEATURES)
    evidence = features @ weights + 0.3 * rng.normal(size=(IMAGES, CLASSES))
    limits = [np.quantile(evidence[:, j], 1 - share) for j, share in enumerate(PREVALENCES)]
    truth = np.where(evidence > limits, PRESENT, ABSENT)
    hard = rng.random((IMAGES, 1)) < 0.1
    seen = features + hard * 1.5 * rng.normal(size=features.shape)
    return World(seen, truth.astype(np.int8))


def ridge(features: Floats, labels: NDArray[Any], new: Floats, rng: Any) -> Floats:
    """Scores of a linear model per class."""
    ones = np.ones((len(features), 1))
    x, z = np.hstack([features, ones]), np.hstack([new, np.ones((len(new), 1))])
    scores = np.zeros((len(new), labels.shape[1]))
    for j in range(labels.shape[1]):
        known = labels[:, j] != 0
        gram = x[known].T @ x[known] + 3 * np.eye(x.shape[1])
        scores[:, j] = z @ np.linalg.solve(gram, x[known].T @ labels[known, j])
    return np.asarray(expit(3 * scores))


def by_heart(features: Floats, labels: NDArray[Any], new: Floats, rng: Any) -> Floats:
    """Scores of a model that repeats the labels of the nearest training images of a class."""
    distance = ((new[:, None, :4] - features[None, :, :4]) ** 2).sum(axis=2)
    near = np.exp(-20 * distance)
    known = (labels != 0).astype(float)
    prior = labels.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    mean = (near @ labels + 1e-3 * prior) / (near @ known + 1e-3)
    return np.asarray(expit(3 * mean + 1e-3 * rng.normal(size=mean.shape)))


def noise(features: Floats, labels: NDArray[Any], new: Floats, rng: Any) -> Floats:
    """Scores that know nothing."""
    return np.asarray(rng.random((len(new), labels.shape[1])))


LEARNERS: dict[str, Learner] = {"linear": ridge, "by heart": by_heart, "noise": noise}


def partial(world: World, rng: Any) -> LabelTable:
    """Labels missing at random, with another share in each class."""
    shares = rng.permutation(np.linspace(0.15, 0.6, CLASSES))
    return _table(np.where(rng.random(world.truth.shape) < shares, world.truth, 0))


def origins(world: World, rng: Any) -> LabelTable:
    """Two origins, of which one has labelled more; one also answered questions of a model."""
    second = np.arange(IMAGES) % 2 == 1
    shares = np.where(second, 0.6, 0.3)[:, None]
    labels = np.where(rng.random(world.truth.shape) < shares, world.truth, 0)
    # questions about labels that are hard: their answers must not test
    strange = (ridge(world.features, world.truth, world.features, rng) > 0.5) != (world.truth > 0)
    asked = (labels == 0) & strange & (rng.random(labels.shape) < 0.5)
    table = _table(np.where(asked, world.truth, labels))
    cells = table.cells
    codes = (second[cells.rows] + 1).astype(np.uint8)
    marks = np.where(asked[cells.rows, cells.columns], CHOSEN, 0).astype(np.int8)
    cells = cells.with_details(origins=codes, asked=marks)
    return LabelTable.from_cells(table.ids, table.classes, cells, None, ["north", "south"])


def merged(world: World, rng: Any) -> LabelTable:
    """Two datasets, each labelled for half of the classes."""
    half = (np.arange(IMAGES) % 2)[:, None]
    labels = np.where(np.arange(CLASSES)[None, :] % 2 == half, world.truth, 0)
    table = _table(labels)
    codes = (half[table.cells.rows, 0] + 1).astype(np.uint8)
    cells = table.cells.with_details(origins=codes)
    return LabelTable.from_cells(table.ids, table.classes, cells, None, ["north", "south"])


def whole_images(world: World, rng: Any) -> LabelTable:
    """All labels of some images, and none of the others."""
    return _table(np.where(rng.random((IMAGES, 1)) < 0.4, world.truth, 0))


def tags(world: World, rng: Any) -> LabelTable:
    """All labels of some images, one present label of others, and none of the rest."""
    kind = rng.integers(3, size=IMAGES)
    draws = np.where(world.truth == PRESENT, rng.random(world.truth.shape), 2.0)
    tag = (draws == draws.min(axis=1, keepdims=True)) & (world.truth == PRESENT)
    keep = (kind == 0)[:, None] | ((kind == 1)[:, None] & tag)
    table = _table(np.where(keep, world.truth, 0))
    cells = table.cells.with_details(origins=(kind[table.cells.rows] + 1).astype(np.uint8))
    return LabelTable.from_cells(table.ids, table.classes, cells, None, ["team", "tags", "-"])


MISSING = {
    "at random": partial,
    "at random, by origin": origins,
    "merged": merged,
    "whole images": whole_images,
    "team, tags, nothing": tags,
}


def _table(labels: NDArray[Any]) -> LabelTable:
    names = [f"c{j}" for j in range(CLASSES)]
    return LabelTable([f"i{i}" for i in range(IMAGES)], names, labels.astype(np.int8))


@dataclass
class Tally:
    """Tests and broken guarantees, of present and of absent labels, and labels found."""

    made: dict[int, int] = field(default_factory=lambda: {PRESENT: 0, ABSENT: 0})
    broken: dict[int, int] = field(default_factory=lambda: {PRESENT: 0, ABSENT: 0})
    found: int = 0
    present: int = 0

    def row(self) -> list[str]:
        """The cells of one row of the table."""
        shares = [
            f"{self.broken[value]} of {self.made[value]} (at most {most(self.made[value])})"
            for value in (PRESENT, ABSENT)
        ]
        return [*shares, f"{self.found / max(self.present, 1):.1%}"]


def most(guarantees: int) -> int:
    """The broken guarantees that chance exceeds once in a hundred times, if 5% are broken."""
    return int(binom.ppf(0.99, guarantees, 0.05))


def run_draw(missing: str, learner: str, kind: Kind, seed: int, tally: Tally) -> None:
    """Generate, train, fill in, and compare with the truth."""
    rng = np.random.default_rng([seed, *learner.encode(), *missing.encode()])
    world = make_world(rng)
    table = MISSING[missing](world, rng)
    crossed = kind == "cross"
    val, reserve = (0.0, 0.0) if crossed else (0.2, None)
    settings = Settings(method="bce", val=val, reserve=reserve, seed=seed, drop_empty=True)
    selection = select(table, settings)
    truth = world.truth[:, [int(name[1:]) for name in selection.classes]]
    make = crossed_evidence if crossed else exact_evidence
    found, first = make(world, selection, learner, rng), None
    if not crossed:
        first = Held(found.calibration.logits(found.choosing.scores), found.choosing.labels)
    hidden, basis = selection.known.dense() == 0, BASES[seed % len(BASES)]
    tally.present += int((hidden & (truth == PRESENT)).sum())
    for population in populations(selection, found, seed):
        guarantees = find_guarantees(first, population, PRECISION, basis)
        decided = np.where(population.unknown, guarantees.decide(population.scores), 0)
        tally.found += int(((decided == PRESENT) & (truth == PRESENT)).sum())
        for value in (PRESENT, ABSENT):
            ours = guarantees.of(value)
            failed = sum(one.basis is None for one in ours)
            tally.made[value] += failed if basis == "class" else min(failed, 1)
            for pool in dict.fromkeys(one.pool for one in ours if one.basis):
                cells = decided[:, list(pool)] == value
                tally.made[value] += 1
                if cells.any():
                    right = (truth[:, list(pool)] == value)[cells].mean()
                    tally.broken[value] += bool(right < PRECISION)


def exact_evidence(world: World, selection: Selection, learner: str, rng: Any) -> Evidence:
    """Labels that were reserved, with the scores of a model that was trained on the others."""
    labels = selection.table.dense()
    train, val = selection.train, selection.val
    scores = LEARNERS[learner](world.features[train], labels[train], world.features, rng)
    choosing = Choosing(scores[val], evidence(selection.table.subset(val)).dense())
    calibration = calibrate(*choosing)
    tested = selection.tested.dense()
    return _evidence("exact", selection, choosing, calibration, calibration.logits(scores), tested)


def crossed_evidence(world: World, selection: Selection, learner: str, rng: Any) -> Evidence:
    """All known labels, with the scores of models that were not trained on their images."""
    labels, folds = selection.table.dense(), rng.integers(FOLDS, size=IMAGES)
    judges = evidence(selection.table).dense()
    scores = np.zeros(labels.shape)
    for fold in range(FOLDS):
        held = folds == fold
        scores[held] = LEARNERS[learner](
            world.features[~held], labels[~held], world.features[held], rng
        )
    logits = np.zeros(labels.shape)
    for fold in range(FOLDS):
        held = folds == fold
        logits[held] = calibrate(scores[~held], judges[~held]).logits(scores[held])
    calibration = calibrate(scores, judges)
    return _evidence("cross", selection, Choosing(scores, judges), calibration, logits, judges)


def _evidence(
    kind: Kind,
    selection: Selection,
    choosing: Choosing,
    calibration: Any,
    logits: Floats,
    tested: Any,
) -> Evidence:
    known = selection.known
    cells = known.cells
    tagged = np.zeros(len(known), dtype=np.bool_)
    if "tags" in known.origins:
        code = list(known.origins).index("tags") + 1
        tagged[cells.rows[cells.origins_or_none() == code]] = True
    return Evidence(kind, choosing, calibration, logits, tested, known.dense() == 0, tagged)


def main() -> None:
    """Print how many guarantees are broken, by the way in which labels are missing."""
    parser = argparse.ArgumentParser(description="How often are guarantees wrong?")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--kinds", nargs="*", default=["exact", "cross"])
    args = parser.parse_args()
    rows = []
    for kind in args.kinds:
        for missing in MISSING:
            for learner in LEARNERS:
                tally = Tally()
                for seed in range(args.draws // len(LEARNERS)):
                    run_draw(missing, learner, kind, seed, tally)
                rows.append([kind, missing, learner, *tally.row()])
                print(" | ".join(rows[-1]), flush=True)
    header = [
        "test",
        "labels missing",
        "model",
        "broken: present",
        "broken: absent",
        "present found",
    ]
    print(f"\n{machine()}; {args.draws} draws per row of labels; precision {PRECISION:.0%}\n")
    print(markdown(Sheet(header, rows)))


if __name__ == "__main__":
    main()
