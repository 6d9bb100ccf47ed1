"""Labelling in rounds: train, ask, answer from the true labels, and train again.

All ways of asking start from the same labels, and from the same first model. Test labels are only
used to measure.
"""

import json
import os
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from partlabel.base.errors import StoppedError, count
from partlabel.base.files import atomic_file
from partlabel.base.processes import take_turns
from partlabel.judging.scoring import evaluate_run
from partlabel.judging.suggestion.choosing import PRECISION, suggest_run
from partlabel.judging.suggestion.drawn import find_zone, guarantee_of
from partlabel.judging.suggestion.questions import Question
from partlabel.judging.suggestion.scored_training import score_training
from partlabel.labels import CHOSEN, PRESENT, RANDOM, Details, LabelTable, simulate
from partlabel.labels.cells import from_triples
from partlabel.output.bench.jobs import Setup, end_with, use_threads
from partlabel.output.bench.results import Result
from partlabel.output.bench.spec import Spec, Strategy, Way
from partlabel.output.bench.spec_labels import read_table
from partlabel.training.run import Run
from partlabel.training.train import train

_ASKED = {"chosen": CHOSEN, "random": RANDOM}


@dataclass(frozen=True)
class Campaign:
    """One way of asking, from one draw of the first labels.

    Args:
        way: how questions are asked.
        strategy, proportion, seed: how the first labels are drawn.
    """

    way: Way
    strategy: Strategy
    proportion: float | None
    seed: int

    @property
    def start(self) -> str:
        """The name of the folder of the first model, which all ways share."""
        share = "" if self.proportion is None else f"-{self.proportion:g}"
        return f"start-{self.strategy.title}{share}-seed{self.seed}"

    @property
    def name(self) -> str:
        """The name of its folder."""
        plain = "".join(c if c.isalnum() or c in "+.-" else "_" for c in self.way.name)
        return self.start.replace("start", plain, 1)


def run_rounds(setup: Setup, say: Callable[[str], object]) -> list[Result]:
    """The figures after each round of all campaigns, in the order of the spec."""
    rounds = setup.spec.rounds
    assert rounds is not None
    campaigns = [
        Campaign(way, strategy, proportion, seed)
        for strategy in setup.spec.strategies
        for proportion in strategy.proportions
        for seed in setup.spec.seeds
        for way in rounds.ways
    ]
    starts = {campaign.start: campaign for campaign in campaigns}
    say(f"labelling in rounds: {count(len(campaigns), 'campaign')}")
    for _ in _in_processes(setup, _first_model, list(starts.values())):
        pass
    results: dict[str, list[Result]] = {}
    for number, (name, lines) in enumerate(_in_processes(setup, _run_campaign, campaigns), start=1):
        results[name] = lines
        say(f"  {number}/{len(campaigns)} {name}: {_outcome(lines)}")
    return [line for campaign in campaigns for line in results[campaign.name]]


def _in_processes(
    setup: Setup,
    work: Callable[[Setup, Campaign], list[Result]],
    campaigns: list[Campaign],
) -> Iterator[tuple[str, list[Result]]]:
    """The results of campaigns as they are finished, in this process or in several."""
    if setup.jobs == 1:
        turns = take_turns(lambda n: work(setup, campaigns[n]), len(campaigns))
        for number, lines in turns:
            yield campaigns[number].name, lines
        return
    with ProcessPoolExecutor(setup.jobs, get_context("spawn"), end_with, (os.getpid(),)) as pool:
        futures = {pool.submit(work, setup, campaign): campaign for campaign in campaigns}
        for future in as_completed(futures):
            yield futures[future].name, future.result()


def _outcome(lines: list[Result]) -> str:
    if "error" in lines[-1]:
        return f"failed, {lines[-1]['error']}"
    figures = [line["mAP"] for line in lines if line.get("mAP") is not None]
    text = f"test mAP {100 * figures[0]:.2f} to {100 * figures[-1]:.2f}" if figures else "no mAP"
    promised = [line["promised"] for line in lines if line.get("promised") is not None]
    return text + (f", {promised[-1]:,} guaranteed present labels" if promised else "")


def _first_model(setup: Setup, campaign: Campaign) -> list[Result]:
    """Train what all ways start from."""
    use_threads(setup.jobs)
    spec, strategy = setup.spec, campaign.strategy
    table = read_table(spec, campaign.seed)
    options: dict[str, Any] = {"per_image": campaign.strategy.per_image, **strategy.options}
    labels = simulate.hide(
        table, strategy.strategy, campaign.proportion, campaign.seed, spec.split, **options
    )
    _train(setup, labels.split(spec.split), setup.out / campaign.start, campaign.seed)
    return []


def _train(setup: Setup, labels: LabelTable, folder: Path, seed: int) -> Run:
    spec = setup.spec
    entry = spec.methods[0]
    settings: dict[str, Any] = {"seed": seed, "split": spec.split, "drop_empty": True}
    settings["reserve"] = 0  # answers to questions drawn at random test
    settings["quiet"] = True
    settings |= spec.settings | entry.settings
    return train(
        labels,
        spec.images or None,
        folder,
        features=spec.features or None,
        feature_ids=spec.feature_ids or None,
        resume=True,
        cache=setup.cache,
        method=entry.method,
        options=entry.options,
        **settings,
    )


def _run_campaign(setup: Setup, campaign: Campaign) -> list[Result]:
    """The figures after each round; a failure is the last of them."""
    use_threads(setup.jobs)
    lines: list[Result] = []
    try:
        lines.extend(_rounds(setup, campaign))
    except StoppedError:
        raise
    except Exception as error:  # the other campaigns continue
        folder = setup.out / campaign.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "error.txt").write_text(traceback.format_exc())
        lines.append(_line(campaign) | {"error": f"{type(error).__name__}: {error}"})
    return lines


def _line(campaign: Campaign) -> Result:
    return {
        "cell": campaign.name,
        "method": campaign.way.name,
        "strategy": campaign.strategy.title,
        "proportion": campaign.proportion,
        "seed": campaign.seed,
        "chosen": {},
    }


def _rounds(setup: Setup, campaign: Campaign) -> Iterator[Result]:
    """Train, measure, ask and answer, round by round; finished rounds are read."""
    spec, way = setup.spec, campaign.way
    rounds, truth = spec.rounds, read_table(spec, campaign.seed)
    assert rounds is not None
    folder, answered = setup.out / campaign.name, 0
    labels, run = None, Run(setup.out / campaign.start)
    for number, questions in enumerate([*(way.answers or rounds.answers), 0]):
        labels_file, file = folder / f"{number}.labels.arrow", folder / f"{number}.json"
        if not file.is_file():
            if labels is not None:
                run = _train(setup, labels, folder / f"{number}.run", campaign.seed)
            labels, figures = _round(run, truth, spec, way, questions)
            folder.mkdir(parents=True, exist_ok=True)
            labels.save(labels_file)
            with atomic_file(file) as stream:
                stream.write(json.dumps(figures).encode())
        labels, figures = LabelTable.open(labels_file), json.loads(file.read_text())
        yield _line(campaign) | {
            **figures,
            "answers": answered,
            "asked": questions,
            "seconds": rounds.cost * answered,
        }
        answered += questions


def _round(
    run: Run, truth: LabelTable, spec: Spec, way: Way, questions: int
) -> tuple[LabelTable, dict[str, Any]]:
    """The labels after the answers to a run's questions, and the figures of the run."""
    labels, figures = run.selection.labels, {"mAP": mean_precision(run, truth, spec)}
    cells = labels.cells
    figures["known"] = int(np.count_nonzero(cells.values))
    figures["known_present"] = int(np.count_nonzero(cells.values == PRESENT))
    if questions:
        asked = suggest_run(run, questions, goal=way.goal, strategy=way.strategy).questions
        labels = answer(labels, truth, asked)
        if way.goal == "promises":
            figures |= _promised(run, labels, truth)
    return labels, figures


def mean_precision(run: Run, truth: LabelTable, spec: Spec) -> float:
    """Test mAP over all classes; one that the run has not learned is ranked at random."""
    test = truth.split(spec.test_split)
    evaluation = evaluate_run(run, test)
    counts = test.counts()
    shares = counts.present / np.maximum(counts.present + counts.absent, 1)
    precision = dict(zip(test.classes, np.where(counts.present > 0, shares, np.nan), strict=True))
    names = evaluation.classes or []
    precision |= dict(zip(names, evaluation.per_class["AP"].tolist(), strict=True))
    return float(np.nanmean(list(precision.values())))


def _promised(run: Run, labels: LabelTable, truth: LabelTable) -> dict[str, Any]:
    """The present labels that the answers guarantee, and how many of them are right."""
    scored = score_training(run)
    table = labels.with_classes(scored.table.classes).subset(run.selection.train)
    zone = find_zone(scored).with_answers(table)
    guarantee = guarantee_of(zone, PRECISION)
    filled = (zone.logits >= guarantee.threshold) & (zone.known == 0)
    dense = truth.with_classes(table.classes).subset(truth.ids.find(table.ids)).dense()
    right = dense[zone.rows[filled], zone.columns[filled]] == PRESENT
    return {
        "promised": guarantee.filled,
        "promised_right": float(right.mean()) if len(right) else None,
        "tested": guarantee.tested,
        "present": int(np.count_nonzero(dense == PRESENT)),
    }


def answer(labels: LabelTable, truth: LabelTable, questions: list[Question]) -> LabelTable:
    """Labels with the true answers to questions; one whose answer is unknown stays open."""
    rows = labels.ids.find([question.image for question in questions])
    columns = labels.classes.find([question.name for question in questions])
    true_rows = truth.ids.find([question.image for question in questions])
    true_columns = truth.classes.find([question.name for question in questions])
    values = truth.dense(true_rows)[np.arange(len(rows)), true_columns]
    asked = np.array([_ASKED[question.asked] for question in questions], dtype=np.int8)
    cells = from_triples(rows, columns, values, labels.shape, Details(asked=asked)).tidy()
    return labels.merge(labels.with_cells(cells), conflict="theirs")
