"""The parts of a report that compare: a title, what to look for, a picture or a table."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partlabel.base.errors import count
from partlabel.images.batches import in_batches
from partlabel.judging.pseudo_label_rates import ratio, read_tally, rounds_before
from partlabel.judging.scoring import estimates, has_estimates
from partlabel.metrics import Evaluation, by_annotations, evaluate
from partlabel.metrics.pointing import Pointing
from partlabel.output.report import contrasts
from partlabel.output.report.analysis import (
    Kinds,
    Numbers,
    distances,
    kinds,
    most_common,
    shares,
)
from partlabel.output.report.landscape import Landscape, steps
from partlabel.output.report.round_table import round_table
from partlabel.output.report.sample import Sample

_CHUNK = 1 << 14  # images whose labels are looked at in one go
_GROUPED = 10  # classes from which on groups of them say something
_COMMON = 4  # classes with a density of their own


@dataclass(frozen=True)
class Part:
    """A card of the page; ``figure`` is SVG of our own making, all else is text to be escaped.

    Args:
        title, caption: what it is, and what to look for.
        figure: SVG.
        header, rows: a table, of numbers but for its first column.
        words: the last column of the table is text too.
    """

    title: str
    caption: str
    figure: str = ""
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    words: bool = False


def percent(share: float) -> str:
    """A share for people: 0.123 is 12.3."""
    return "-" if math.isnan(share) else f"{100 * share:.1f}"


def groups(sample: Sample, result: Evaluation) -> list[Part]:
    """mAP of classes with few and with many known training labels, if there are enough classes."""
    found = by_annotations(result, sample.training)
    if sum(int(group["classes"]) for group in found) < _GROUPED:
        return []
    rows = [
        [
            f"G{number}",
            f"{group['classes']}",
            f"{group['fewest']:,} to {group['most']:,}",
            percent(group["mAP"]),
        ]
        for number, group in enumerate(found, 1)
    ]
    caption = (
        "Classes by how many training labels of them are known, from few to many: mAP on "
        "validation labels."
    )
    header = ["group", "classes", "known labels each", "mAP"]
    return [Part("Few and many labels", caption, header=header, rows=rows)]


def known_positives(sample: Sample) -> list[Part]:
    """How fast known positives were learned."""
    histories = {seen.name: seen.run.history() for seen in sample.runs}
    logged = {n: h for n, h in histories.items() if any("positives" in line for line in h)}
    if not logged:
        return []
    caption = (
        "Mean of -log p over the training labels that are known to be present. A loss that stalls "
        "or rises early is busy with other labels, such as those it takes for absent."
    )
    return [Part("Learning what is known", caption, contrasts.positives_loss(logged))]


def gains(sample: Sample, result: Evaluation) -> list[Part]:
    """AP against the baseline's, class by class."""
    if sample.baseline is None:
        return []
    before = evaluate(sample.baseline.val, sample.val_labels)
    gain = 100 * (result.per_class.AP - before.per_class.AP)
    order = _best_first(gain)
    if not len(order):
        return []
    better = int((gain[order] > 0).sum())
    caption = (
        f"AP on validation labels, less that of {sample.baseline.name}: "
        f"{better} of {count(len(order), 'class', 'classes')} gain, "
        f"{np.mean(gain[order]):+.1f} points on average "
        f"(mAP {percent(result['mAP'])} against {percent(before['mAP'])})."
    )
    names = [sample.classes[j] for j in order]
    title = f"Gain over {sample.baseline.name}"
    return [Part(title, caption, contrasts.gain_bars(gain[order], names))]


def _best_first(values: Numbers) -> list[int]:
    """Classes by their values, without those that have none."""
    return [int(j) for j in np.argsort(-values, kind="stable") if not math.isnan(values[j])]


def unknown_labels(sample: Sample) -> list[Part]:
    """What the labels left unknown are in truth, and what the runs think of them."""
    if sample.truth is None:
        return []
    cells = kinds(sample.labels, sample.truth.dense(sample.rows))
    found = _shares(sample)
    if cells.positives.any() or cells.negatives.any():
        found.append(_means(sample, cells))
    shown = most_common(cells.positives, cells.negatives, _COMMON)
    if shown:
        found += [_densities(sample, cells, shown), _distances(sample, cells)]
    return found


def _shares(sample: Sample) -> list[Part]:
    assert sample.truth is not None
    totals = np.zeros((2, len(sample.classes)), dtype=np.int64)
    for rows in in_batches(np.arange(len(sample.training)), _CHUNK):
        cells = kinds(sample.training.dense(rows), sample.truth.dense(rows))
        totals += [cells.positives.sum(axis=0), cells.negatives.sum(axis=0)]
    share = shares(*totals)
    order = _best_first(share)
    if not order:
        return []
    overall = ratio(totals[0], totals)
    caption = (
        f"{percent(overall)}% of the {int(totals.sum()):,} training labels that were left unknown, "
        "and whose truth is known now, are present (green). Where that is little, taking an "
        "unlikely label for absent is safe, and taking a likely one for present is not."
    )
    figure = contrasts.share_bars(share[order], [sample.classes[j] for j in order])
    return [Part("What the unknown labels are", caption, figure)]


def _means(sample: Sample, cells: Kinds) -> Part:
    caption = (
        f"Over the cells of {count(len(sample.rows), 'training image')}. Unannotated positives "
        "should look like annotated ones: where they look like negatives, the model was taught to "
        "overlook them. Small logits on negatives mean that it stays open about them."
    )
    figure = contrasts.kind_means(sample.train_scores(), cells)
    return Part("How sure the model is", caption, figure)


def _densities(sample: Sample, cells: Kinds, shown: list[int]) -> Part:
    caption = (
        "How the scores of unknown training labels are spread that are truly present (green) and "
        "absent (amber), in the classes with the most of the former. The less they overlap, the "
        "better. Peaks above 8 are cut off."
    )
    figure = contrasts.densities(sample.train_scores(), cells, shown, sample.classes)
    return Part("Scores of unknown labels", caption, figure)


def _distances(sample: Sample, cells: Kinds) -> Part:
    title = "How well unknown labels are told apart"
    about = (
        "Wasserstein distance between the scores of unknown labels that are present and that are "
        "absent, for each class that has both: 0 if scores do not tell them apart, 1 if they do "
        "so without a doubt. "
    )
    mine = distances(sample.run.train, cells.positives, cells.negatives)
    order = _best_first(mine)
    if sample.baseline is None:
        names = [sample.classes[j] for j in order]
        return Part(title, about.strip(), contrasts.distance_bars(mine[order], names))
    theirs = distances(sample.baseline.train, cells.positives, cells.negatives)
    above = int((mine[order] > theirs[order]).sum())
    caption = (
        f"{about}A point is a class; {above} of {len(order)} ({percent(above / len(order))}%) lie "
        f"above the line, where {sample.run.name} does better than {sample.baseline.name}."
    )
    axis_names = [sample.baseline.name, sample.run.name]
    figure = contrasts.distance_scatter(theirs[order], mine[order], axis_names)
    return Part(title, caption, figure)


def pseudo_labels(sample: Sample) -> list[Part]:
    """What was given in each round, if the method gives labels."""
    tally = read_tally(sample.run.run, sample.training, sample.truth)
    if tally is None or not len(tally.given):
        return []
    unknown = int(sample.training.counts().unknown.sum())
    header, rows = round_table(tally, unknown, sample.classes, percent)
    caption = (
        "Labels that the method itself gave to unknown cells, and the share of these that have one "
        f"so far, in percent. The epoch that was kept had seen {rounds_before(sample.run.run)} of "
        f"{count(len(tally.given), 'round')}. "
    )
    if tally.judged.any():
        caption += (
            f"{percent(ratio(tally.right, tally.judged))}% of those whose truth is known are right."
            " Look at whether later rounds get worse, and whether the errors are all of one class."
        )
        if "TP" in header:
            caption += " TP and TN: the same among cells that are truly present and truly absent."
    else:
        caption += "With --truth, this also shows how many of them are right."
    return [Part("Pseudo-labels", caption, "", header, rows, bool(tally.judged.any()))]


def own_estimates(sample: Sample) -> list[Part]:
    """The method's own estimates against its classifier's scores, if it has any."""
    if sample.truth is None or not has_estimates(sample.run.run):
        return []
    _, found = estimates(sample.run.run)
    truth = sample.truth.dense(sample.rows)
    unknown = np.where(sample.labels == 0, truth, 0).astype(np.int8)
    both: list[tuple[str, Any]] = [
        ("the classifier", sample.run.train),
        ("the method's own estimates", found[sample.rows]),
    ]
    rows = [
        [name, *(percent(evaluate(said, labels)["mAP"]) for labels in (truth, unknown))]
        for name, said in both
    ]
    caption = (
        f"mAP in percent against the truth, on the same {count(len(sample.rows), 'training image')}"
        ": over all labels, and over those that were left unknown. The estimates are those at the "
        "end of the training, the classifier that of the best epoch."
    )
    header = ["", "all labels", "unannotated labels"]
    return [Part("The method's own estimates", caption, "", header, rows)]


def pointing(games: dict[str, Pointing], classes: list[str]) -> list[Part]:
    """Whether the highest places lie on objects, a row a class that has boxes."""
    if not games:
        return []
    one = next(iter(games.values()))
    totals = int(one.targets.sum())
    if not totals:
        return []
    shown: list[tuple[str, Any]] = [
        (classes[j], slice(j, j + 1)) for j in np.flatnonzero(one.targets).tolist()
    ]
    rows = [
        [
            name,
            f"{one.targets[here].sum():,}",
            percent(ratio(one.covered[here], one.targets[here])),
            *(percent(ratio(game.hits[here], game.targets[here])) for game in games.values()),
        ]
        for name, here in [("all", slice(None)), *shown]
    ]
    caption = (
        f"Of {count(totals, 'pair')} of an image and a class with boxes in it, the share (in "
        "percent) in which the highest place of the class map lies in a box of the class. Chance "
        "is the share of the images that these boxes cover: a model that does no better knows its "
        "classes by what is around them."
    )
    header = ["class", "images", "chance", *games]
    return [Part("Does it look at the object?", caption, "", header, rows)]


def landscapes(surveyed: dict[str, Landscape]) -> list[Part]:
    """The loss around the weights, of runs that have one."""
    surveyed = {n: s for n, s in surveyed.items() if np.isfinite(s.at_weights)}
    if not surveyed:
        return []
    lines = {name: found.line for name, found in surveyed.items()}
    surfaces = {name: found.surface for name, found in surveyed.items()}
    line_steps, side_steps = (steps(len(next(iter(p.values())))) for p in (lines, surfaces))
    caption = (
        "The method's own training loss on a few training images, when the weights at the end of "
        "the training are moved along one random direction, as far as they are long (filter by "
        "filter), less the loss where they are. A wide valley promises to generalise better than "
        "a narrow one; losses of different methods compare in shape only."
    )
    plane = "The same in the plane of two random directions" + (
        ", on one scale." if len(surfaces) > 1 else "."
    )
    return [
        Part("The loss around the weights", caption, contrasts.loss_lines(line_steps, lines)),
        Part("In two directions", plane, contrasts.loss_surfaces(side_steps, surfaces)),
    ]
