"""A run as one self-contained HTML file, for people who would rather look than read."""

from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from partlabel.base.errors import count
from partlabel.base.files import atomic_file
from partlabel.images.folder import ImageFiles
from partlabel.judging.completion import Assessment, assess, check_precision
from partlabel.judging.completion.notes import why_nothing
from partlabel.labels import PRESENT, LabelTable
from partlabel.labels.formats.boxes import BoxFile
from partlabel.metrics import Evaluation, evaluate
from partlabel.output.report import parts
from partlabel.output.report.beliefs import beliefs
from partlabel.output.report.embedding import label_embeddings
from partlabel.output.report.figures import (
    learning_curves,
    precision_recall,
    score_histogram,
    thumbnail,
)
from partlabel.output.report.landscape import survey
from partlabel.output.report.learned_links import label_links
from partlabel.output.report.looking import about_looks, looks, pointing_game
from partlabel.output.report.parts import percent
from partlabel.output.report.sample import Sample, take_sample
from partlabel.output.report.trust import trust
from partlabel.training.run import Record, Run

_SAMPLES, _MOST_OPEN = 18, 4


def build_report(
    run: Run,
    *,
    truth: LabelTable | None = None,
    baseline: Run | None = None,
    boxes: BoxFile | None = None,
    landscape: bool = False,
    precision: float = 0.95,
) -> Path:
    """Write ``report.html`` into the folder of a run, and return its path.

    Args:
        run: a finished run.
        truth: true labels of the run's images, to show what became of unknown ones.
        baseline: a run on the same labels to compare with.
        boxes: where objects are, to see whether the highest places of class maps lie on them.
        landscape: also draw the loss around the trained weights.
        precision: that ``complete`` is to promise.
    """
    check_precision(precision)
    sample = take_sample(run, truth, baseline)
    artifacts = run.artifacts()
    settings, record = run.settings, run.record
    result = evaluate(sample.ours.val, sample.val_labels)
    assessment = _assess(sample, precision)
    games = {} if boxes is None else pointing_game(sample, boxes)
    surveyed = {s.name: survey(s.run, s.name) for s in sample.runs if landscape}
    page = _template().render(
        title=run.folder.resolve().name,
        subtitle=_subtitle(sample),
        figures=_figures(sample, result),
        about=_about_figures(record, result),
        curves=learning_curves(run.history()),
        after_curves=parts.known_positives(sample),
        classes=_class_rows(record.classes, result),
        precision_recall=precision_recall(
            sample.ours.val, sample.val_labels, record.classes, result.per_class.AP
        ),
        after_classes=[*parts.groups(sample, result), *parts.gains(sample, result)],
        histogram=score_histogram(
            (sample.ours.train, sample.labels), (sample.ours.val, sample.val_labels)
        ),
        histogram_about=_about_histogram(sample),
        after_scores=[
            *trust(assessment, sample.classes, _why_nothing(run, precision)),
            *parts.unknown_labels(sample),
            *parts.pseudo_labels(sample),
            *beliefs(sample, artifacts.diary),
            *label_links(sample, artifacts.label_graph),
            *parts.own_estimates(sample),
            *parts.landscapes(surveyed),
        ],
        looks=looks(sample, assessment),
        looks_about=about_looks(sample),
        after_looks=[*parts.pointing(games, sample.classes), *label_embeddings(sample)],
        samples=_samples(sample, assessment),
        settings=[(n, v) for n, v in settings.model_dump().items() if v is not None and v != {}],
    )
    path = run.folder / "report.html"
    with atomic_file(path) as stream:
        stream.write(page.encode())
    return path


def _assess(sample: Sample, precision: float) -> Assessment:
    validated = np.arange(len(sample.rows), len(sample.shown))
    return assess(
        sample.training,
        (sample.shown.subset(validated), sample.ours.val),
        (sample.reserved, sample.ours.reserved),
        precision,
        None,
        sample.ours.run.settings.seed,
    )


def _why_nothing(run: Run, precision: float) -> str:
    return why_nothing(run.selection, run.settings.reserve, precision)


def _template() -> jinja2.Template:
    text = (resources.files("partlabel.output.report") / "page.html.j2").read_text("utf-8")
    return jinja2.Environment(autoescape=True).from_string(text)


def _subtitle(sample: Sample) -> str:
    settings = sample.ours.run.settings
    text = f"{settings.method} on {settings.backbone}, frozen: {settings.frozen}"
    if sample.baseline is None:
        return text
    other = sample.baseline
    return f"{text}; beside {other.name} ({other.run.settings.method})"


def _figures(sample: Sample, result: Evaluation) -> list[tuple[str, str]]:
    shown = [(name, percent(result[name])) for name in ("mAP", "CF1", "OF1", "exact_match")]
    images, known = f"{len(sample.training):,}", f"{sample.training.known:.1%}"
    return [*shown, ("training images", images), ("of their labels known", known)]


def _about_figures(record: Record, result: Evaluation) -> str:
    text = (
        f"Figures are in percent, over {result['evaluated_classes']} of "
        f"{count(len(record.classes), 'class', 'classes')}, on the known labels of "
        f"{count(record.val_rows, 'validation image')}. Epoch {record.best_epoch} was kept. "
    )
    return text + (
        f"{count(len(record.broken), 'image')} could not be read." if record.broken else ""
    )


def _class_rows(classes: list[str], result: Evaluation) -> list[dict[str, Any]]:
    rows = []
    for name, row in zip(classes, result.per_class, strict=True):
        figures = {field: percent(row[field]) for field in ("AP", "precision", "recall", "F1")}
        counts = {"present": f"{row.present:,}", "absent": f"{row.absent:,}"}
        rows.append({"name": name, "width": 100 * np.nan_to_num(row.AP), **figures, **counts})
    return rows


def _about_histogram(sample: Sample) -> str:
    text = f"Labels of {count(len(sample.rows), 'training image')}"
    if len(sample.val_labels):
        text += (
            f", and below of {count(len(sample.val_labels), 'validation image')}. Where training "
            "labels are told apart and validation labels are not, the model knows its labels by "
            "heart"
        )
    return text + "."


def _samples(sample: Sample, assessment: Assessment) -> list[dict[str, Any]]:
    """Training images with what is known of them and what the model would fill in."""
    number = len(sample.rows)
    at = np.linspace(0, number - 1, min(_SAMPLES, number)).astype(int)
    names = list(sample.training.ids.take(sample.rows[at]))
    files = ImageFiles(sample.ours.run.images).locate(names)
    logits = assessment.calibration.logits(sample.ours.train)
    samples, decided = [], assessment.guarantees.decide(logits)
    for row, name, path in zip(at.tolist(), names, files, strict=True):
        if path is not None:
            said = expit(logits[row])
            labels = _labels(sample.classes, sample.labels[row], said, decided[row])
            samples.append({"name": name, "image": thumbnail(path), "labels": labels})
    return samples


def _labels(
    classes: list[str], known: NDArray[Any], scores: NDArray[Any], decided: NDArray[Any]
) -> list[dict[str, str]]:
    """What is known of an image, and what the model says of it; all are [C]."""
    labels, absent = [], []
    for j, name in enumerate(classes):
        if known[j] == PRESENT:
            labels.append({"kind": "known", "text": f"● {name}"})
        elif known[j] != 0:
            absent.append(name)
    likely = np.argsort(-scores, kind="stable").tolist()
    for j in [j for j in likely if known[j] == 0][:_MOST_OPEN]:
        shown = f"{classes[j]} {100 * scores[j]:.0f}%"
        if decided[j] == PRESENT:
            labels.append({"kind": "filled", "text": f"+ {shown}"})
        elif decided[j] == 0:
            labels.append({"kind": "open", "text": f"? {shown}"})
    few = [{"kind": "absent", "text": name} for name in absent[:2]]
    return labels + few
