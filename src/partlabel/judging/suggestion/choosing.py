"""Which labels people should be asked for next."""

from typing import Literal, get_args

import numpy as np

from partlabel.base.errors import InputError, count, one_of, some
from partlabel.judging.scoring import Scored
from partlabel.judging.suggestion.asking import (
    Askable,
    Floats,
    Integers,
    Picked,
    by_information,
    by_ordering,
    suspicious,
    whole_images,
)
from partlabel.judging.suggestion.drawn import find_zone
from partlabel.judging.suggestion.information import FeaturesOf
from partlabel.judging.suggestion.mixed import Mixture, best_mixture
from partlabel.judging.suggestion.orderings import ORDERINGS
from partlabel.judging.suggestion.questions import Question, Suggestions
from partlabel.judging.suggestion.run_features import RunFeatures
from partlabel.judging.suggestion.scored_training import (
    score_training,
    unlearned,
    with_unlearned,
)
from partlabel.training.run import Run

Goal = Literal["map", "promises", "errors"]
Unit = Literal["cell", "image", "best"]
GOALS: tuple[Goal, ...] = get_args(Goal)
UNITS: tuple[Unit, ...] = get_args(Unit)
INFORMATION = "information"
STRATEGIES = (INFORMATION, *ORDERINGS)
SECONDS, IMAGE_SECONDS = 2.0, 10.0  # of work per cell, and per image with all its unknown labels
DRAWN = 0.3  # share of the questions for promises that are drawn at random
PRECISION = 0.95  # that promises are to have

_WHY_IMAGE = "the unknown labels of the image tell most"
_WHY = {
    INFORMATION: "tells most about the class",
    "random": "in random order",
    "entropy": "the score has the highest entropy",
    "margin": "next to the decision boundary of the class",
    "most-likely-present": "most likely present",
}


def suggest_run(
    run: Run,
    budget: int,
    *,
    per: Unit = "cell",
    goal: Goal = "map",
    strategy: str = INFORMATION,
    cost: float | None = None,
    image_cost: float | None = None,
) -> Suggestions:
    """The questions whose answers help a run most. See :func:`partlabel.suggest`."""
    _check(budget, per, goal, strategy, cost, image_cost)
    seconds = SECONDS if cost is None else cost
    of_image = IMAGE_SECONDS if image_cost is None else image_cost
    scored = score_training(run)
    if goal == "map":
        scored = with_unlearned(run, scored)
    table = scored.table
    askable, notes = Askable(scored), _notes(run, scored)
    _check_labels(run, askable, budget, per, goal)
    features = RunFeatures(run, table, np.flatnonzero(scored.readable))
    if goal == "errors":
        picked = suspicious(askable, features, budget)
        questions = _chosen(scored, picked, "the known label looks wrong")
    elif per == "image":
        rows, gains = whole_images(askable, features, budget)
        return Suggestions(image_questions(askable, rows, gains), of_image * len(rows), notes)
    elif per == "best":
        mixture = best_mixture(askable, features, budget, of_image / seconds)
        work = of_image * len(mixture.images) + seconds * len(mixture.cells.rows)
        return Suggestions(mixed_questions(askable, mixture), work, notes)
    else:
        questions = cell_questions(askable, features, budget, goal, strategy)
    return Suggestions(questions, seconds * len(questions), notes)


def cell_questions(
    askable: Askable, features: FeaturesOf, budget: int, goal: Goal, strategy: str
) -> list[Question]:
    """Questions about cells, some of them drawn at random if they are for promises."""
    scored, drawn = askable.scored, list[Question]()
    if goal == "promises":
        drawn = _drawn(scored, round(DRAWN * budget), anywhere=strategy == "random")
        columns = {name: column for column, name in enumerate(scored.table.classes)}
        rows = scored.table.ids.find([question.image for question in drawn])
        cells = [
            int(row) * len(columns) + columns[question.name]
            for row, question in zip(rows, drawn, strict=True)
        ]
        askable = Askable(scored, frozenset(cells))
    number = min(budget - len(drawn), int(askable.unknown.sum()))
    if not number:
        return drawn
    if strategy == INFORMATION:
        picked = by_information(askable, features, number, total=goal == "promises")
    else:
        picked = by_ordering(askable, strategy, number)
    return _mixed(_chosen(scored, picked, _WHY[strategy]), drawn)


def _drawn(scored: Scored, number: int, *, anywhere: bool) -> list[Question]:
    """Questions drawn at random: from the cells that the run is confident are present, or all."""
    zone = find_zone(scored, anywhere=anywhere)
    positions, probability = zone.next_draws(number)
    ids, names = scored.table.ids, scored.table.classes
    why = "drawn at random, to test the labels that are filled in"
    return [
        Question(ids[row], names[column], None, "random", probability, 0.0, why)
        for row, column in zip(
            zone.rows[positions].tolist(), zone.columns[positions].tolist(), strict=True
        )
    ]


def _chosen(scored: Scored, picked: Picked, why: str) -> list[Question]:
    ids, names = scored.table.ids, scored.table.classes
    return [
        Question(
            ids[row], names[column], float(scored.scores[row, column]), "chosen", None, gain, why
        )
        for row, column, gain in zip(
            picked.rows.tolist(), picked.columns.tolist(), picked.gains.tolist(), strict=True
        )
    ]


def image_questions(askable: Askable, rows: Integers, gains: Floats) -> list[Question]:
    """All unknown labels of images; each has its image's gain."""
    scored = askable.scored
    known = scored.table.dense(rows)
    cells = [
        (row, column, gain)
        for row, labels, gain in zip(rows.tolist(), known, gains.tolist(), strict=True)
        for column in np.flatnonzero(labels == 0).tolist()
    ]
    images, columns, values = (np.array(part) for part in zip(*cells, strict=True))
    return _chosen(scored, Picked(images, columns, values), _WHY_IMAGE)


def mixed_questions(askable: Askable, mixture: Mixture) -> list[Question]:
    """Questions about cells and images together, those with the highest gain per second first."""
    cells = _chosen(askable.scored, mixture.cells, _WHY[INFORMATION])
    images = image_questions(askable, mixture.images, mixture.gains) if len(mixture.images) else []
    return sorted([*images, *cells], key=lambda question: -question.gain)


def _mixed(chosen: list[Question], drawn: list[Question]) -> list[Question]:
    """Both kinds, evenly mixed, each in its own order."""
    places = [
        ((i + 0.5) / len(part), one) for part in (chosen, drawn) for i, one in enumerate(part)
    ]
    return [one for _, one in sorted(places, key=lambda pair: pair[0])]


def _check(
    budget: int,
    per: str,
    goal: str,
    strategy: str,
    cost: float | None,
    image_cost: float | None,
) -> None:
    """Raise an error for options that cannot be used, or not together."""
    one_of("unit", per, UNITS)
    one_of("goal", goal, GOALS)
    one_of("strategy", strategy, STRATEGIES)
    if budget < 1:
        raise InputError(f"a budget of {budget:,} questions: ask at least one")
    for seconds in (cost, image_cost):
        if seconds is not None and not seconds > 0:
            raise InputError(f"a cost of {seconds:g} seconds: must be above 0")
    if per != "cell" and goal != "map":
        raise InputError(f"--per {per} has no effect with --for {goal}: its questions are cells")
    if strategy != INFORMATION and (per != "cell" or goal == "errors"):
        raise InputError("--strategy has no effect with --per image, --per best or --for errors")
    if per == "image" and cost is not None:
        raise InputError("--cost is per cell; --image-cost has the seconds per image")
    if per == "cell" and image_cost is not None:
        raise InputError("--image-cost has no effect with --per cell")


def _check_labels(run: Run, askable: Askable, budget: int, per: Unit, goal: Goal) -> None:
    """Raise an error if the run has too few cells to ask about, or nothing to learn from."""
    table = askable.scored.table
    if not askable.present.any():
        raise InputError(
            f"{run.folder}: no training label is known to be present, so there is nothing to go "
            "by; label a few images first"
        )
    if goal == "errors":
        available, what = int(np.count_nonzero(table.cells.values)), "known label"
    elif per == "image":
        available, what = int(askable.open_images.sum()), "image"
    else:
        available, what = int(askable.unknown.sum()), "unknown label"
    if not available:
        raise InputError(f"{run.folder}: all labels of the training images are known")
    if budget > available:
        raise InputError(
            f"a budget of {budget:,}: the run has only {count(available, what)} to ask about"
        )


def _notes(run: Run, scored: Scored) -> list[str]:
    """What the questions leave out, or do not know."""
    missing = unlearned(run)
    notes = [f"left out: {message}" for message in scored.broken]
    if missing:
        asked = len(scored.table.classes) > len(run.selection.classes)
        how = "asked about without scores" if asked else "not asked about"
        notes.append(
            f"{count(len(missing), 'class', 'classes')} that the run has not learned are {how} "
            f"({some(missing)}): no label is known to be present. Images that have them would help"
        )
    return notes
