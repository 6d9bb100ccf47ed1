"""Ways of asking for labels, in rounds, with heads that are solved exactly and kept in memory.

    python -m benchmarks.suggestions labels.csv features.npy -o results [--draws 0 1 2]

The questions are those of ``partlabel suggest``. The model is one logistic regression per class on
given features, so that a study of several ways takes minutes. ``benchmarks/specs/suggest.yaml`` is
the same study with whole trainings. With ``--half``, a random half of the training images is
labelled and the other half tests: settings are chosen on that.

Each draw is kept in a file of the folder, so draws can be run one by one.
"""

import argparse
import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from partlabel.base.randomness import key, keys, uniform
from partlabel.judging.scoring import Scored
from partlabel.judging.suggestion.asking import Askable
from partlabel.judging.suggestion.choosing import PRECISION, Goal, cell_questions
from partlabel.judging.suggestion.drawn import find_zone, guarantee_of
from partlabel.labels import PRESENT, RANDOM, LabelTable, simulate
from partlabel.labels.formats import read_labels
from partlabel.metrics import evaluate
from partlabel.models.features.vector_files import VectorFile
from partlabel.output.bench.results import Result, write_results
from partlabel.output.bench.round_tables import draw_rounds, tables_of_rounds
from partlabel.output.bench.rounds import answer

_DECAY = 0.045  # of squared weights, for features of mean length 1
_KNOWN = 0.02
_ANSWERS = [500, 500, 1000, 1000, 1000]
_PROMISES = [500, 500, 500, 500]
_WAYS: list[tuple[str, str, Goal]] = [
    ("random", "random", "map"),
    ("entropy", "entropy", "map"),
    ("margin", "margin", "map"),
    ("most-likely-present", "most-likely-present", "map"),
    ("information", "information", "map"),
    ("random for promises", "random", "promises"),
    ("information for promises", "information", "promises"),
]

Features = NDArray[np.float32]
Floats = NDArray[np.float64]


def solve(features: Features, present: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Weights and intercept of a logistic regression, by Newton's method on the kernel."""
    if present.all() or not present.any():
        share = (present.sum() + 0.5) / (len(present) + 1)
        return np.zeros(features.shape[1]), float(np.log(share / (1 - share)))
    kernel = (features.astype(np.float64) @ features.T.astype(np.float64) + 1.0) / _DECAY
    logits, dual = np.zeros(len(present)), np.zeros(len(present))
    for _ in range(50):
        shares = expit(logits)
        weights = np.maximum(shares * (1 - shares), 1e-6)
        root = np.sqrt(weights)
        target = weights * logits + present - shares
        inner = np.eye(len(root)) + root[:, None] * kernel * root
        dual = target - root * cho_solve(cho_factor(inner), root * (kernel @ target))
        before, logits = logits, kernel @ dual
        if np.abs(logits - before).max() < 1e-4:
            break
    return features.T @ dual / _DECAY, float(dual.sum() / _DECAY)


def heads(labels: LabelTable, features: Features) -> tuple[Floats, Floats]:
    """Weights [D, C] and intercepts [C], from the labels to train on."""
    cells = labels.cells
    used = (cells.values != 0) & (cells.asked_or_not() != RANDOM)
    solved = []
    for column in range(len(labels.classes)):
        own = used & (cells.columns == column)
        solved.append(solve(features[cells.rows[own]], cells.values[own] == PRESENT))
    return np.stack([weights for weights, _ in solved], axis=1), np.array([b for _, b in solved])


def campaign(
    way: tuple[str, str, Goal],
    start: LabelTable,
    truth: LabelTable,
    features: Features,
    test: tuple[LabelTable, Features],
    budgets: list[int],
) -> list[Result]:
    """The figures after each round of one way of asking."""
    name, strategy, goal = way
    labels, lines, answered = start, [], 0
    for questions in [*budgets, 0]:
        weights, intercepts = heads(labels, features)
        scores = expit(test[1] @ weights + intercepts)
        line = {"method": name, "answers": answered, "asked": questions, "seconds": 2 * answered}
        line |= {"mAP": evaluate(scores, test[0])["mAP"]}
        if questions:
            scored = Scored(labels, expit(features @ weights + intercepts), [])
            asked = cell_questions(
                Askable(scored), lambda rows: features[rows], questions, goal, strategy
            )
            labels = answer(labels, truth, asked)
        if questions and goal == "promises":
            zone = find_zone(scored).with_answers(labels)
            guarantee = guarantee_of(zone, PRECISION)
            filled = (zone.logits >= guarantee.threshold) & (zone.known == 0)
            right = truth.dense()[zone.rows[filled], zone.columns[filled]] == PRESENT
            line |= {"promised": guarantee.filled, "tested": guarantee.tested}
            line |= {"promised_right": float(right.mean()) if len(right) else None}
        lines.append(line)
        print(line, flush=True)
        answered += questions
    return lines


def load(labels: Path, features: Path) -> tuple[LabelTable, Features]:
    """All labels, and the features of their images."""
    table, file = read_labels(labels), VectorFile(features)
    return table, file.read(file.locate(table.ids)).numpy().astype(np.float32)


def parts(table: LabelTable, vectors: Features, *, half: bool) -> list[tuple[LabelTable, Features]]:
    """Labels and features of the images to label, and of those to test on."""
    training = np.flatnonzero(table.in_split("train"))
    tested = np.flatnonzero(table.in_split("val"))
    if half:
        first = uniform(key("half"), keys(table.ids.take(training))) < 0.5
        training, tested = training[first], training[~first]
    length = np.sqrt(np.mean(np.sum(vectors[training] ** 2, axis=1)))
    return [(table.subset(rows), vectors[rows] / length) for rows in (training, tested)]


def run_draw(table: LabelTable, vectors: Features, draw: int, *, half: bool) -> list[Result]:
    """The results of all ways from one draw of the first labels."""
    (truth, features), test = parts(table, vectors, half=half)
    scale = 2 if half else 1
    start = simulate.partial(truth, _KNOWN, seed=draw)
    lines = []
    for way in _WAYS:
        budgets = _PROMISES if way[2] == "promises" else _ANSWERS
        budgets = [budget // scale for budget in budgets]
        lines += campaign(way, start, truth, features, test, budgets)
    about = {"strategy": "partial", "proportion": _KNOWN, "seed": draw, "chosen": {}, "cell": ""}
    return [about | line for line in lines]


def main() -> None:
    """Run the draws that are not finished, and write the tables of all that are."""
    parser = argparse.ArgumentParser()
    parser.add_argument("labels", type=Path)
    parser.add_argument("features", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--half", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    table, vectors = load(options.labels, options.features)
    for draw in options.draws:
        path = options.out / f"draw-{draw}.json"
        if not path.is_file():
            path.write_text(json.dumps(run_draw(table, vectors, draw, half=options.half)))
    paths = sorted(options.out.glob("draw-*.json"))
    results = [line for path in paths for line in json.loads(path.read_text())]
    tables = tables_of_rounds(results, "random").markdown()
    (options.out / "table.md").write_text(tables)
    with mpl.rc_context({"svg.fonttype": "none"}):  # text as text: a small file
        (options.out / "curves.svg").write_text(draw_rounds(results))
    write_results(options.out / "results.csv", results)
    print(tables)


if __name__ == "__main__":
    main()
