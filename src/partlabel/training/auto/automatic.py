"""Train candidates, compare them on held-out labels, and combine the best into one run."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from partlabel.base.errors import InputError, JobError, count, data_size
from partlabel.labels import LabelTable
from partlabel.metrics import evaluate, known_cells
from partlabel.models import Backbone, Classifier
from partlabel.models.backbones import own_classifier
from partlabel.models.features.embeddings import GivenFeatures
from partlabel.models.prediction import InputSource
from partlabel.training.auto.budget import trainings_of
from partlabel.training.auto.comparison import Comparison
from partlabel.training.auto.criterion import Criterion, fairly_known, mean
from partlabel.training.auto.folds import make_folds
from partlabel.training.auto.greedy import Logits, choose_weights, spread, without_own_labels
from partlabel.training.auto.leaderboard import (
    Line,
    as_text,
    command_for,
    ordered,
    write_leaderboard,
)
from partlabel.training.auto.material import Material, gather
from partlabel.training.auto.members import MemberRecord, combine
from partlabel.training.auto.memory_check import check_memory
from partlabel.training.auto.portfolio import Candidate, make_portfolio
from partlabel.training.auto.search import Search
from partlabel.training.auto.trials import Laboratory, Trial
from partlabel.training.checkpoint import load_state, save_state
from partlabel.training.monitor import Monitor
from partlabel.training.reserving import calibrating
from partlabel.training.run import Run
from partlabel.training.run_record import Record, decision_figures
from partlabel.training.run_split import Selection, by_humans
from partlabel.training.settings import Settings


def check_size(selection: Selection, settings: Settings, features: int) -> None:
    """Raise an error if there are too many images for the memory of this computer.

    Args:
        features: D, of an image.
    """
    images = len(selection.train) + len(selection.val)
    models = max(trainings_of(settings.budget) // settings.folds, 1)
    check_memory(images, len(selection.classes), features, models)


def check_contrast(selection: Selection) -> None:
    """Raise an error if every image has every class: there is nothing to tell apart."""
    training = selection.training
    if (training.counts().present == len(training)).all():
        raise InputError(
            "every training image has every class, so nothing shows what an image without them "
            "looks like. Add images with absent labels (0), or images whose labels are unknown, "
            "for example with `partlabel merge LABELS NAMES.txt -o NEW`: NAMES.txt has the name of "
            "an image per line"
        )


_MEMBERS = 8  # of an ensemble, at most
_OF_A_KIND = 2  # candidates of the same method and head to choose members from
_SCREENING = 2  # folds that candidates are compared on first, at least
_PRESENT = 10  # present labels of most classes that these folds should have
_CANDIDATES = 12  # to compare, at least, if more folds are used
_SECONDS = 6e-9  # of a training with a linear head, per image, feature and class


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
    classifier = _own_classifier(run.folder / "auto", model.backbone, record.settings)
    material = gather(inputs, selection, record.settings, classifier)
    folder, labels = run.folder / "auto", (material.training, material.evidence)
    laboratory = Laboratory(
        folder,
        record.settings,
        *labels,
        material.features,
        model.backbone,
        run.execution.device,
    )
    comparison = _comparison(laboratory, material, monitor)
    finished = _search(comparison, material)
    members, trials, held_out = _choose(
        comparison, finished, _as_trained(record.settings, selection)
    )
    heads = [laboratory.head_of(one, trial) for one, trial in trials.items()]
    model.head = combine(heads, members, material.reduction, material.own_classes)
    save_state(run.folder / "best.safetensors", model.trained_weights())
    if comparison.folds is not None:
        parts = {"rows": material.rows, "logits": held_out, "folds": comparison.folds}
        state = {name: torch.from_numpy(part) for name, part in parts.items()}
        save_state(run.folder / "out_of_fold.safetensors", state)
    shares = {one: member.share for one, member in zip(trials, members, strict=True)}
    write_leaderboard(run.folder, _leaderboard(comparison, shares))
    if comparison.folds is not None and not len(material.val):
        outcome = _outcome(held_out.astype(np.float64), by_humans(material.training))
    else:
        factors = [member.factor for member in members]
        logits = sum_of([trial.logits.numpy() for trial in trials.values()], factors)
        outcome = _outcome(logits, material.val)
    return record.model_copy(update={**outcome, "members": members, "finished": True})


def _own_classifier(folder: Path, backbone: Backbone, settings: Settings) -> nn.Linear | None:
    """The network's own classifier; kept in the folder, in case the weights are gone later."""
    if isinstance(backbone, GivenFeatures):
        return None
    path = folder / "own_classifier.safetensors"
    if not path.is_file():
        layer = own_classifier(backbone, settings.weights)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_state(path, {} if layer is None else layer.state_dict())
    state = load_state(path)
    if not state:
        return None
    layer = nn.Linear(*reversed(state["weight"].shape))
    layer.load_state_dict(state)
    return layer.eval()


def _comparison(laboratory: Laboratory, material: Material, monitor: Monitor) -> Comparison:
    """What candidates are compared on: the holdout, or folds of the training images."""
    settings, train = laboratory.settings, len(material.training)
    scored = train + np.arange(len(material.val))
    if material.on_holdout:
        criterion = Criterion(material.val.dense(), "the holdout split")
        return Comparison(laboratory, criterion, None, train, scored, monitor)
    if material.groups.units < settings.folds:
        grouped = f" in {count(material.groups.units, 'group')}" if material.groups.groups else ""
        raise InputError(
            f"{count(train, 'training image')}{grouped} cannot be cut into {settings.folds} folds; "
            "label more images, name a --method, or take fewer --folds"
        )
    folds = make_folds(material.training, settings.folds, settings.seed, material.groups)
    held_out = f"each of {settings.folds} folds of the training images"
    criterion = Criterion(fairly_known(by_humans(material.training)).dense(), held_out)
    return Comparison(laboratory, criterion, folds, train, scored, monitor)


def _search(comparison: Comparison, material: Material) -> list[Candidate]:
    """Train candidates within the budget; those that were trained on all folds."""
    laboratory, monitor = comparison.laboratory, comparison.monitor
    settings, criterion = laboratory.settings, comparison.criterion
    if np.isnan(criterion(np.zeros(criterion.labels.shape, dtype=np.float32))).all():
        raise InputError(
            f"candidates cannot be compared on the known labels of {criterion.held_out}: no class "
            "is present in one image, and absent or unknown in another. Label more images, or name "
            "a --method"
        )
    has_absent = bool((material.evidence.counts().absent > 0).mean() >= 0.5)
    recipes = make_portfolio(
        material.training,
        has_absent=has_absent,
        components=material.components,
        units=material.units,
        own_weights=material.own_weights,
    )
    parts = comparison.parts
    wanted = trainings_of(settings.budget)
    budget = max(wanted, parts)
    if wanted < parts:
        monitor.note(f"a candidate needs {parts} trainings, so the budget is {parts}, for one")
    monitor.note(criterion.describe())
    images, classes = laboratory.table.shape
    own = 0 if material.own_classes is None else len(material.own_classes.bias)
    work = images * classes * (laboratory.backbone.channels + own) * budget
    costs = [one.cost for r in recipes for one in (r, r.on_maps) if one is not None]
    minutes = max(1, round(_SECONDS * work * float(np.mean(costs)) / 60))
    kept = 4 * budget * classes * (images // parts + laboratory.backbone.channels + own)
    monitor.note(
        f"trying {count(len(recipes), 'recipe')} in at most {count(budget, 'training')}, about "
        f"{minutes:,} min, with {data_size(material.size)} of features in memory, and up to "
        f"{data_size(kept)} of results on disk until the end"
    )
    comparison.budget = budget
    screening = folds_to_screen(criterion.labels, parts, budget)
    search = Search(recipes, comparison.measure, parts, screening, budget, teach=has_absent)
    finished = search.run()
    if not finished:
        errors = {line.error for line in comparison.lines.values() if line.error}
        reason = next(iter(sorted(errors)), "the first folds have too few known labels")
        raise JobError(f"no candidate could be compared: {reason}")
    return finished


def _as_trained(settings: Settings, selection: Selection) -> Settings:
    """The settings with what a single method must be told to train on the same labels."""
    given: dict[str, float] = {}
    if not len(selection.val):
        given["val"] = 0.0
    if selection.hidden is None and not len(selection.reserved):
        given["reserve"] = 0.0
    return settings.model_copy(update=given)


def folds_to_screen(labels: NDArray[np.int8], folds: int, budget: int) -> int:
    """How many folds candidates are compared on first: more if they have few present labels each.

    >>> plenty, few = np.ones((500, 3), dtype=np.int8), np.ones((12, 3), dtype=np.int8)
    >>> folds_to_screen(plenty, 5, 120), folds_to_screen(few, 5, 120), folds_to_screen(few, 5, 24)
    (2, 5, 2)

    Args:
        labels: [n, C] the labels to compare on.
        folds: number of folds.
        budget: number of trainings. If it is small, more candidates are better than more folds.
    """
    least = min(_SCREENING, folds)
    if budget < _CANDIDATES * folds:
        return least
    present = float(np.median((labels > 0).sum(axis=0)))
    return min(folds, max(least, math.ceil(_PRESENT * folds / max(present, 1.0))))


def _choose(
    comparison: Comparison, finished: Sequence[Candidate], base: Settings
) -> tuple[list[MemberRecord], dict[Candidate, Trial], Logits]:
    """The members, their trainings on all training images, and their held-out logits together.

    Args:
        base: the settings of members, but for those that a candidate has of its own.
    """
    settings, all_finished = comparison.laboratory.settings, finished
    finished = _varied(comparison, finished)
    logits = [comparison.logits(candidate) for candidate in finished]
    most = 1 if settings.single else _MEMBERS
    weights = choose_weights(logits, comparison.criterion, most, settings.seed)
    spreads = [spread(part) for part in logits]
    scale = float(weights @ np.array(spreads))  # of the sum, as that of its members
    trials, members = {}, []
    for number, candidate in enumerate(finished):
        if not weights[number]:
            continue
        trials[candidate] = comparison.refit(candidate)
        if error := trials[candidate].error:
            comparison.leave_out(candidate, error)
            others = [one for one in all_finished if one != candidate]
            if not others:
                raise JobError(f"{candidate.label}: {error}")
            return _choose(comparison, others, base)
        share = float(weights[number])
        factor = share * scale / spreads[number]
        own = candidate.settings(base)
        members.append(MemberRecord(name=candidate.label, settings=own, share=share, factor=factor))
    used = np.flatnonzero(weights)
    total = np.sum([weights[n] * scale / spreads[n] * logits[n] for n in used], axis=0)
    _describe_choice(comparison, finished, base, len(members), total)
    if comparison.folds is not None:
        total = without_own_labels(
            logits, total, comparison.folds, comparison.criterion, most, settings.seed
        )
    return members, trials, total


def _varied(comparison: Comparison, finished: Sequence[Candidate]) -> list[Candidate]:
    """The best candidates of each kind: those that differ only a little add little to another."""
    ranked = sorted(finished, key=lambda one: -comparison.lines[one].score)
    kinds: dict[tuple[object, ...], list[Candidate]] = {}
    for one in ranked:
        kind = (one.recipe.method, one.recipe.head, one.recipe.features, bool(one.teachers))
        kinds.setdefault(kind, []).append(one)
    return [one for same in kinds.values() for one in same[:_OF_A_KIND]]


def _describe_choice(
    comparison: Comparison,
    finished: Sequence[Candidate],
    base: Settings,
    members: int,
    total: Logits,
) -> None:
    """Say what was chosen, and how to train the best single candidate again."""
    scores = {one: comparison.lines[one].score for one in finished}
    plain = [one for one in finished if not one.teachers]  # one command trains it
    best = max(plain, key=lambda one: scores[one])
    command = command_for(best.settings(base))
    name, together = comparison.criterion.name, mean(comparison.criterion(total))
    if members == 1:
        chosen = f"one candidate is used: {name} {100 * together:.2f}"
    else:
        chosen = (
            f"{members} candidates are combined: {name} {100 * together:.2f} on the labels that "
            f"they were chosen on. The best candidate alone: {100 * max(scores.values()):.2f}, "
            f"which is too good by chance, as the best of {len(finished)}"
        )
    comparison.monitor.note(
        f"{chosen}. To train the best one without a teacher again ({100 * scores[best]:.2f}):\n"
        f"  {command}"
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
    """mAP, thresholds and calibration on the validation images."""
    if not len(val):
        return {"best_val_mAP": None}
    scores = 1 / (1 + np.exp(-logits))
    score = evaluate(scores, val)["mAP"]
    return {
        "best_val_mAP": None if math.isnan(score) else score,
        **decision_figures(known_cells(scores, calibrating(val).dense())),
    }


def sweep_trials(folder: Path) -> None:
    """Remove the results of trainings, once the run is finished."""
    shutil.rmtree(folder / "auto", ignore_errors=True)
