"""What unknown labels are in truth, and how runs score them."""

import numpy as np

from partlabel.base.errors import count
from partlabel.images.batches import in_batches
from partlabel.judging.pseudo_label_rates import ratio
from partlabel.labels import ABSENT, PRESENT
from partlabel.output.report.analysis import (
    Kinds,
    best_first,
    distances,
    kinds,
    most_common,
    shares,
)
from partlabel.output.report.sample import Sample
from partlabel.output.report.score_charts import (
    densities,
    distance_bars,
    distance_scatter,
    kind_means,
    score_histogram,
    share_bars,
)
from partlabel.output.report.section import Section, percent

_CHUNK = 1 << 14  # images whose labels are in memory at a time
_COMMON = 4  # classes with densities of their own


def all_scores(sample: Sample) -> Section:
    """The scores of present, absent and unknown labels."""
    caption = (
        f"How many labels have which score, for {count(len(sample.drawn), 'training image')}. "
        "Present labels should lie on the right, absent labels on the left."
    )
    if len(sample.val_labels):
        caption += (
            f" Below: the same for {count(len(sample.val_labels), 'validation image')}. If scores "
            "separate training labels but not validation labels, the model has memorised its "
            "training labels."
        )
    figure = score_histogram(
        (sample.ours.train, sample.labels), (sample.ours.val, sample.val_labels)
    )
    return Section("Scores of present, absent and unknown labels", caption, figure)


def scores_per_class(sample: Sample) -> list[Section]:
    """Densities of the scores of held-out labels, for the classes with the most present ones."""
    present, absent = sample.held_labels == PRESENT, sample.held_labels == ABSENT
    columns = most_common(present, absent, 2 * _COMMON)
    if not columns:
        return []
    cells = Kinds(np.zeros_like(present), present, absent)
    scores = {one.name: one.held_out for one in sample.runs}
    rows = (columns[:_COMMON], columns[_COMMON:])
    figure = "".join(densities(scores, cells, row, sample.classes) for row in rows if row)
    caption = (
        f"Densities of the scores of {sample.held_kind} labels that are present (green) and absent "
        f"(amber), for the {count(len(columns), 'class', 'classes')} with the most present ones. "
        "The less the two overlap, the better. Densities above 8 are cut off."
    )
    return [Section("Scores per class", caption, figure)]


def unknown_label_sections(sample: Sample) -> list[Section]:
    """The sections that need true labels; none without them."""
    if sample.truth is None:
        return []
    cells = kinds(sample.labels, sample.truth.dense(sample.drawn))
    sections = _shares(sample)
    if cells.positives.any() or cells.negatives.any():
        sections.append(_means(sample, cells))
    columns = most_common(cells.positives, cells.negatives, _COMMON)
    if columns:
        sections += [_densities(sample, cells, columns), _distances(sample, cells)]
    return sections


def _shares(sample: Sample) -> list[Section]:
    assert sample.truth is not None
    totals = np.zeros((2, len(sample.classes)), dtype=np.int64)
    for rows in in_batches(np.arange(len(sample.training)), _CHUNK):
        cells = kinds(sample.training.dense(rows), sample.truth.dense(rows))
        totals += [cells.positives.sum(axis=0), cells.negatives.sum(axis=0)]
    share = shares(*totals)
    order = best_first(share)
    if not order:
        return []
    overall = ratio(totals[0], totals)
    caption = (
        f"{percent(overall)}% of the {int(totals.sum()):,} training labels that were unknown to "
        "the training, and whose truth is known, are present (green). The smaller this share, the "
        "less harm is done by counting unknown labels as absent."
    )
    figure = share_bars(share[order], [sample.classes[j] for j in order])
    return [Section("What the unknown labels are", caption, figure)]


def _means(sample: Sample, cells: Kinds) -> Section:
    caption = (
        f"Labels of {count(len(sample.drawn), 'training image')}: annotated ones were known to the "
        "training, unannotated ones were not. Unannotated positives should score like annotated "
        "ones. If they score like negatives, the training has taught the model to ignore them. A "
        "small absolute logit means that the model is undecided."
    )
    figure = kind_means(sample.train_scores(), cells)
    return Section("How sure the model is", caption, figure)


def _densities(sample: Sample, cells: Kinds, columns: list[int]) -> Section:
    caption = (
        "Densities of the scores of unknown training labels that are truly present (green) and "
        f"truly absent (amber), for the {count(len(columns), 'class', 'classes')} with the most "
        "present ones. The less the two overlap, the better. Densities above 8 are cut off."
    )
    figure = densities(sample.train_scores(), cells, columns, sample.classes)
    return Section("Scores of unknown labels", caption, figure)


def _distances(sample: Sample, cells: Kinds) -> Section:
    title = "How well unknown labels are separated"
    about = (
        "Wasserstein distance between the scores of unknown labels that are present and of those "
        "that are absent, for each class that has both. 0: the scores do not separate them. 1: the "
        "scores are all 1 and all 0."
    )
    ours = distances(sample.ours.train, cells.positives, cells.negatives)
    order = best_first(ours)
    if sample.baseline is None:
        names = [sample.classes[j] for j in order]
        return Section(title, about, distance_bars(ours[order], names))
    theirs = distances(sample.baseline.train, cells.positives, cells.negatives)
    above = int((ours[order] > theirs[order]).sum())
    caption = (
        f"{about} Each point is a class. {above} of {len(order)} ({percent(above / len(order))}%) "
        f"lie above the line, where {sample.ours.name} separates better than "
        f"{sample.baseline.name}."
    )
    axis_names = [sample.baseline.name, sample.ours.name]
    figure = distance_scatter(theirs[order], ours[order], axis_names)
    return Section(title, caption, figure)
