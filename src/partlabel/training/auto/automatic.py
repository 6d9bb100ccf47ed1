"""Train candidates, compare them on held-out labels, and combine the best into one run."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from partlabel.base.errors import InputError, JobError, count
from partlabel.images.batches import Rows, in_batches
from partlabel.labels import LabelTable
from partlabel.labels.simulate import HOLDOUT
from partlabel.metrics import evaluate
from partlabel.metrics.calibration import balanced_thresholds
from partlabel.models import Classifier, Reduction
from partlabel.models.prediction import InputSource
from partlabel.training.auto.comparison import Comparison
from partlabel.training.auto.criterion import Criterion, mean
from partlabel.training.auto.folds import make_folds
from partlabel.training.auto.greedy import Logits, choose_weights, spread
from partlabel.training.auto.held_features import HeldFeatures, hold
from partlabel.training.auto.leaderboard import (
    Line,
    as_text,
    command_for,
    ordered,
    write_leaderboard,
)
from partlabel.training.auto.members import MemberRecord, combine
from partlabel.training.auto.portfolio import COMPONENTS, Candidate, make_portfolio
from partlabel.training.auto.search import Search
from partlabel.training.auto.trials import Laboratory, Trial
from partlabel.training.checkpoint import save_state
from partlabel.training.inputs import fits
from partlabel.training.monitor import Monitor
from partlabel.training.run import Record, Run
from partlabel.training.selection import Selection, by_humans, has_both_kinds
from partlabel.training.settings import Settings

BUDGETS = {"small": 20, "medium": 80, "large": 200}  # trainings
_FULLY = 0.9  # share of known labels from which on a holdout counts as fully labelled
_MEMBERS = 5  # of an ensemble, at most
_SCREENING = 2  # folds that candidates are compared on first
_FITTED = 2000  # images that the reduction of features is fitted on
_SECONDS = 4e-8  # of a training, per image, feature and class


def fit_members(
    run: Run,
    record: Record,
    model: Classifier,
    selection: Selection,
    inputs: InputSource,
    monitor: Monitor,
) -> Record:
    """Choose and train the members of a run, write their model, and return the outcome.

    Args:
        model: the backbone, with any head.
        inputs: whole feature maps of training images, then of validation images.
    """
    settings, number = record.settings, len(selection.train) + len(selection.val)
    pooled = hold(inputs, number, lambda maps: maps.mean(dim=(2, 3), keepdim=True))
    readable = np.flatnonzero(pooled.readable)
    train = int((readable < len(selection.train)).sum())
    if not train:
        raise JobError("no training image could be read")
    table = selection.table.subset(np.concatenate([selection.train, selection.val])[readable])
    training = table.subset(np.arange(train))
    val = by_humans(table.subset(np.arange(train, len(table))))
    reduction = _reduction(model, inputs, readable, train)
    features: dict[int | None, HeldFeatures] = {None: pooled.part(readable)}
    if reduction is not None:
        kept = len(reduction.basis)
        features[kept] = hold(inputs, number, partial(_reduced, reduction)).part(readable)
    on_holdout = chooses_on_holdout(settings, selection, by_humans(training), val)
    laboratory = Laboratory(
        run.folder / "auto",
        settings,
        training,
        val if on_holdout or not has_both_kinds(by_humans(training)) else by_humans(training),
        features,
        model.backbone,
    )
    comparison = _comparison(laboratory, val, monitor, on_holdout=on_holdout)
    finished = _search(comparison, None if reduction is None else len(reduction.basis))
    members, trials, held_out = _choose(comparison, finished)
    heads = [laboratory.head_of(c, trial) for c, trial in trials.items()]
    reductions = {} if reduction is None else {len(reduction.basis): reduction}
    model.head = combine(heads, members, reductions)
    save_state(run.folder / "best.safetensors", model.trained_weights())
    if comparison.folds is not None:
        rows = selection.train[readable[:train]]
        state = {"rows": torch.from_numpy(rows), "logits": torch.from_numpy(held_out)}
        save_state(run.folder / "out_of_fold.safetensors", state)
    shares = {one: member.share for one, member in zip(trials, members, strict=True)}
    write_leaderboard(run.folder, _leaderboard(comparison, shares))
    factors = [member.factor for member in members]
    outcome = _outcome(sum_of([t.logits.numpy() for t in trials.values()], factors), val)
    return record.model_copy(update={**outcome, "members": members, "finished": True})


def _reduction(
    model: Classifier, inputs: InputSource, readable: Rows, train: int
) -> Reduction | None:
    """Principal components of the maps of training images; None if they cannot be used."""
    first = next(iter(inputs.batches([readable[:1]], ("clean",)))).views["clean"]
    components = min(COMPONENTS, first.shape[1])
    positions = math.prod(first.shape[2:])
    if positions == 1 or not fits(len(readable) * components * positions * 2):
        return None
    sample = readable[np.unique(np.linspace(0, train - 1, min(train, _FITTED)).astype(np.int64))]
    reduction = Reduction(first.shape[1], components)
    reduction.fit(
        part.views["clean"] for part in inputs.batches(in_batches(sample, 64), ("clean",))
    )
    return reduction.eval()


def _reduced(reduction: Reduction, maps: torch.Tensor) -> torch.Tensor:
    reduced: torch.Tensor = reduction(maps)
    return reduced.half()


def _comparison(
    laboratory: Laboratory, val: LabelTable, monitor: Monitor, *, on_holdout: bool
) -> Comparison:
    """What candidates are compared on: the holdout, or folds of the training images."""
    settings, training = laboratory.settings, laboratory.table
    train = len(training)
    scored = train + np.arange(len(val))
    if on_holdout:
        criterion = Criterion(val.dense(), "the holdout split")
        return Comparison(laboratory, criterion, None, train, scored, monitor)
    if train < settings.folds:
        raise InputError(
            f"{count(train, 'training image')} cannot be cut into {settings.folds} folds; label "
            "more images, or name a --method"
        )
    folds = make_folds(training, settings.folds, settings.seed)
    held_out = f"each of {settings.folds} folds of the training images"
    criterion = Criterion(by_humans(training).dense(), held_out)
    return Comparison(laboratory, criterion, folds, train, scored, monitor)


def chooses_on_holdout(
    settings: Settings, selection: Selection, training: LabelTable, val: LabelTable
) -> bool:
    """Whether validation images are a split of their own, with labels that can choose.

    Nearly all labels must be known, or more kinds of labels than of the training images: known
    labels of the training images are more otherwise.
    """
    splits = selection.labels.splits
    names = set() if splits is None or not len(selection.val) else set(splits.take(selection.val))
    if names != {settings.val_split or HOLDOUT} or not has_both_kinds(val):
        return False
    return val.known >= _FULLY or not has_both_kinds(training)


def _search(comparison: Comparison, components: int | None) -> list[Candidate]:
    """Train candidates within the budget; those that were trained on all folds."""
    laboratory, settings, monitor = (
        comparison.laboratory,
        comparison.laboratory.settings,
        comparison.monitor,
    )
    has_absent = bool((laboratory.evidence.counts().absent > 0).mean() >= 0.5)
    recipes = make_portfolio(laboratory.table, has_absent=has_absent, components=components)
    parts = comparison.parts
    wanted = BUDGETS.get(settings.budget) or int(settings.budget)
    budget = max(wanted, parts)
    if wanted < parts:
        monitor.note(f"a candidate needs {parts} trainings, so the budget is {parts}, for one")
    monitor.note(comparison.criterion.describe())
    images, classes = laboratory.table.shape
    work = images * classes * laboratory.backbone.channels * budget
    minutes = max(1, round(_SECONDS * work * float(np.mean([r.cost for r in recipes])) / 60))
    monitor.note(
        f"trying {count(len(recipes), 'recipe')} in at most {count(budget, 'training')}, about "
        f"{minutes:,} min"
    )
    comparison.budget, screening = budget, min(_SCREENING, parts)
    search = Search(recipes, comparison.measure, parts, screening, budget, teach=has_absent)
    finished = search.run()
    if not finished:
        errors = {line.error for line in comparison.lines.values() if line.error}
        reason = next(iter(sorted(errors)), "no known label of any class can be compared on")
        raise JobError(f"no candidate could be compared: {reason}")
    return finished


def _choose(
    comparison: Comparison, finished: Sequence[Candidate]
) -> tuple[list[MemberRecord], dict[Candidate, Trial], Logits]:
    """The members, their trainings on all training images, and their held-out logits together."""
    settings = comparison.laboratory.settings
    logits = [comparison.logits(candidate) for candidate in finished]
    most = 1 if settings.single else _MEMBERS
    weights = choose_weights(logits, comparison.criterion, most)
    spreads = [spread(part) for part in logits]
    scale = float(weights @ np.array(spreads))  # of the sum, as that of its members
    trials, members = {}, []
    for number, candidate in enumerate(finished):
        if not weights[number]:
            continue
        trials[candidate] = comparison.refit(candidate)
        if error := trials[candidate].error:
            raise JobError(f"{candidate.label}: {error}")
        share = float(weights[number])
        factor = share * scale / spreads[number]
        own = candidate.settings(settings)
        members.append(MemberRecord(name=candidate.label, settings=own, share=share, factor=factor))
    used = np.flatnonzero(weights)
    total = np.sum([weights[n] * scale / spreads[n] * logits[n] for n in used], axis=0)
    _describe_choice(comparison, finished, len(members), total)
    return members, trials, total


def _describe_choice(
    comparison: Comparison, finished: Sequence[Candidate], members: int, total: Logits
) -> None:
    """Say what was chosen, and how to train the best single candidate again."""
    scores = {one: comparison.lines[one].score for one in finished}
    plain = [one for one in finished if one.teacher is None]  # one command trains it
    best = max(plain, key=lambda one: scores[one])
    command = command_for(best.settings(comparison.laboratory.settings))
    comparison.monitor.note(
        f"{count(members, 'member')}: {comparison.criterion.name} "
        f"{100 * mean(comparison.criterion(total)):.2f}, the best single candidate "
        f"{100 * max(scores.values()):.2f}. To train the best one without a teacher again "
        f"({100 * scores[best]:.2f}):\n  {command}"
    )


def _leaderboard(comparison: Comparison, shares: dict[Candidate, float]) -> list[Line]:
    """All candidates, with their shares of the ensemble; also printed."""
    lines = ordered(
        [replace(line, weight=shares.get(one, 0.0)) for one, line in comparison.lines.items()]
    )
    comparison.monitor.note(as_text(lines))
    return lines


def sum_of(logits: Sequence[Logits], factors: Sequence[float]) -> NDArray[np.float64]:
    """The weighted sum of logits."""
    parts = [factor * part.astype(np.float64) for part, factor in zip(logits, factors, strict=True)]
    return np.asarray(np.sum(parts, axis=0))


def _outcome(logits: NDArray[np.float64], val: LabelTable) -> dict[str, object]:
    """Thresholds and mAP on the validation images."""
    if not len(val):
        return {"best_val_mAP": None, "thresholds": []}
    scores = 1 / (1 + np.exp(-logits))
    score = evaluate(scores, val)["mAP"]
    thresholds = balanced_thresholds(scores, val.dense()).tolist()
    return {
        "best_val_mAP": None if math.isnan(score) else score,
        "thresholds": [None if math.isnan(value) else value for value in thresholds],
    }


def sweep_trials(folder: Path) -> None:
    """Remove the results of trainings, once the run is finished."""
    shutil.rmtree(folder / "auto", ignore_errors=True)
