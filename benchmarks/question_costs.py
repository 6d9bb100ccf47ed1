"""Single labels, whole images, or whichever tells more per second: what a second of work brings.

    python -m benchmarks.question_costs labels.csv features.npy [--image-costs 4 10] [--draws 0 1 2]

From 2% known labels, in rounds of equal work. A label takes 2 seconds, an image with all its
unknown labels takes ``--image-costs``. The questions are those of ``partlabel suggest --per``, the
model is that of ``benchmarks.suggestions``. With ``--half``, a random half of the training images
is labelled and the other half tests.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import expit

from benchmarks.report import machine
from benchmarks.suggestions import Features, heads, load, parts
from partlabel.judging.scoring import Scored
from partlabel.judging.suggestion.asking import Askable, whole_images
from partlabel.judging.suggestion.choosing import cell_questions, image_questions, mixed_questions
from partlabel.judging.suggestion.mixed import best_mixture
from partlabel.judging.suggestion.questions import Question
from partlabel.labels import LabelTable, simulate
from partlabel.metrics import evaluate
from partlabel.output.bench.rounds import answer
from partlabel.output.bench.sheets import Sheet, markdown

SECONDS, ROUNDS = 2.0, 4  # per label, and rounds

Way = Callable[[Askable, Features, float], tuple[list[Question], int]]


def cells(askable: Askable, features: Features, work: float) -> tuple[list[Question], int]:
    """Questions about labels for so many seconds."""
    number = int(work / SECONDS)
    return cell_questions(askable, lambda rows: features[rows], number, "map", "information"), 0


def images_at(cost: float) -> Way:
    """Questions about images, at so many seconds each."""

    def ask(askable: Askable, features: Features, work: float) -> tuple[list[Question], int]:
        number = int(work / cost)
        chosen = whole_images(askable, lambda rows: features[rows], number)
        return image_questions(askable, *chosen), number

    return ask


def best_at(cost: float) -> Way:
    """Questions about labels and images."""

    def ask(askable: Askable, features: Features, work: float) -> tuple[list[Question], int]:
        number = int(work / SECONDS)
        found = best_mixture(askable, lambda rows: features[rows], number, cost / SECONDS)
        return mixed_questions(askable, found), len(found.images)

    return ask


def campaign(
    way: Way,
    start: LabelTable,
    truth: LabelTable,
    features: Features,
    test: tuple[LabelTable, Features],
    work: float,
) -> tuple[list[float], int]:
    """The mAP before and after each round, and the number of images that were asked about."""
    labels, figures, images = start, [], 0
    for number in range(ROUNDS + 1):
        weights, intercepts = heads(labels, features)
        figures.append(evaluate(expit(test[1] @ weights + intercepts), test[0])["mAP"])
        if number < ROUNDS:
            scored = Scored(labels, expit(features @ weights + intercepts), [])
            questions, more = way(Askable(scored), features, work)
            labels, images = answer(labels, truth, questions), images + more
    return figures, images


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("labels", type=Path)
    parser.add_argument("features", type=Path)
    parser.add_argument("--draws", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--image-costs", type=float, nargs="*", default=[4.0, 10.0])
    parser.add_argument("--work", type=float, default=1000.0, help="seconds per round")
    parser.add_argument("--half", action="store_true")
    options = parser.parse_args()
    table, vectors = load(options.labels, options.features)
    ways: dict[str, Way] = {"labels": cells}
    for cost in options.image_costs:
        ways |= {f"images, {cost:g} s": images_at(cost), f"best, {cost:g} s": best_at(cost)}
    training, test = parts(table, vectors, half=options.half)
    rows = []
    for name, way in ways.items():
        curves, shares = [], []
        for draw in options.draws:
            start = simulate.partial(training[0], 0.02, seed=draw)
            figures, images = campaign(way, start, *training, test, options.work)
            curves.append(figures)
            shares.append(images)
            print(name, draw, [f"{100 * one:.2f}" for one in figures], images, flush=True)
        means, spread = 100 * np.mean(curves, axis=0), 100 * np.std(curves, axis=0, ddof=1)
        figures_text = [f"{m:.2f} ± {s:.2f}" for m, s in zip(means, spread, strict=True)]
        rows.append([name, *figures_text, f"{np.mean(shares):.0f}"])
    header = ["asking about", *(f"after {n * options.work:g} s" for n in range(ROUNDS + 1))]
    print(machine())
    print(markdown(Sheet([*header, "images asked about"], rows)))


if __name__ == "__main__":
    main()
