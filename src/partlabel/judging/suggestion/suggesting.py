"""Which labels people should be asked for next."""

from typing import Literal, get_args

import numpy as np

from partlabel.base.errors import InputError, count, one_of, some
from partlabel.judging.scoring import Scored
from partlabel.judging.suggestion.asking import (
    Askable,
    Picked,
    by_information,
    by_ordering,
    suspicious,
    whole_images,
)
from partlabel.judging.suggestion.drawn import find_zone
from partlabel.judging.suggestion.information import FeaturesOf
from partlabel.judging.suggestion.orderings import ORDERINGS
from partlabel.judging.suggestion.questions import Question, Suggestions
from partlabel.judging.suggestion.run_features import RunFeatures
from partlabel.judging.suggestion.scored_training import score_training
from partlabel.training.run import Run

Goal = Literal["map", "promises", "errors"]
Unit = Literal["cell", "image"]
GOALS: tuple[Goal, ...] = get_args(Goal)
UNITS: tuple[Unit, ...] = get_args(Unit)
INFORMATION = "information"
STRATEGIES = (INFORMATION, *ORDERINGS)
SECONDS: dict[Unit, float] = {"cell": 2.0, "image": 10.0}  # of work per question
DRAWN = 0.3  # share of the questions for promises that are drawn at random
PRECISION = 0.95  # that promises are to have

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
) -> Suggestions:
    """The questions whose answers help a run most. See :func:`partlabel.suggest`."""
    _check(budget, per, goal, strategy, cost)
    scored = score_training(run)
    table = scored.table
    askable, notes = Askable(scored), _notes(run, scored)
    _check_labels(run, askable, budget, per, goal)
    features = RunFeatures(run, table, np.flatnonzero(scored.readable))
    if goal == "errors":
        picked = suspicious(askable, features, budget)
        questions = _chosen(scored, picked, "the known label looks wrong")
    elif per == "image":
        questions = _about_images(askable, features, budget)
    else:
        questions = cell_questions(askable, features, budget, goal, strategy)
    seconds = SECONDS[per] if cost is None else cost
    asked = len({question.image for question in questions}) if per == "image" else len(questions)
    return Suggestions(questions, seconds * asked, notes)


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


def _about_images(askable: Askable, features: RunFeatures, budget: int) -> list[Question]:
    """All unknown labels of the images that tell most; each has its image's gain."""
    scored = askable.scored
    rows, gains = whole_images(askable, features, budget)
    known = scored.table.dense(rows)
    cells = [
        (row, column, gain)
        for row, labels, gain in zip(rows.tolist(), known, gains.tolist(), strict=True)
        for column in np.flatnonzero(labels == 0).tolist()
    ]
    images, columns, values = (np.array(part) for part in zip(*cells, strict=True))
    why = "the unknown labels of the image tell most"
    return _chosen(scored, Picked(images, columns, values), why)


def _mixed(chosen: list[Question], drawn: list[Question]) -> list[Question]:
    """Both kinds, evenly mixed, each in its own order."""
    places = [
        ((i + 0.5) / len(part), one) for part in (chosen, drawn) for i, one in enumerate(part)
    ]
    return [one for _, one in sorted(places, key=lambda pair: pair[0])]


def _check(budget: int, per: str, goal: str, strategy: str, cost: float | None) -> None:
    """Raise an error for options that cannot be used, or not together."""
    one_of("unit", per, UNITS)
    one_of("goal", goal, GOALS)
    one_of("strategy", strategy, STRATEGIES)
    if budget < 1:
        raise InputError(f"a budget of {budget:,} questions: ask at least one")
    if cost is not None and not cost > 0:
        raise InputError(f"a cost of {cost:g} seconds: must be above 0")
    if per == "image" and goal != "map":
        raise InputError(f"--per image has no effect with --for {goal}: its questions are cells")
    if strategy != INFORMATION and (per == "image" or goal == "errors"):
        raise InputError("--strategy has no effect with --per image or --for errors")


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
        open_images = np.bincount(
            table.cells.rows[table.cells.values != 0], minlength=len(table)
        ) < len(table.classes)
        available, what = int((open_images & askable.scored.readable).sum()), "image"
    else:
        available, what = int(askable.unknown.sum()), "unknown label"
    if not available:
        raise InputError(f"{run.folder}: all labels of the training images are known")
    if budget > available:
        raise InputError(
            f"a budget of {budget:,}: the run has only {count(available, what)} to ask about"
        )


def _notes(run: Run, scored: Scored) -> list[str]:
    """What the questions leave out."""
    labels, classes = run.selection.labels, set(run.selection.classes)
    side = set(run.selection.side or [])
    missing = [name for name in labels.classes if name not in classes | side]
    notes = [f"left out: {message}" for message in scored.broken]
    if missing:
        notes.append(
            f"{count(len(missing), 'class', 'classes')} that the run has not learned are not asked "
            f"about ({some(missing)}); label some images that have them"
        )
    return notes
