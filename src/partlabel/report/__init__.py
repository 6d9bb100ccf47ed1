"""A run as one self-contained HTML file, for people who would rather look than read."""

import math
import os
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

from partlabel.calibrate import choose_thresholds
from partlabel.errors import count
from partlabel.files import atomic_file
from partlabel.images import ImageFiles
from partlabel.labels import PRESENT
from partlabel.metrics import Evaluation, evaluate
from partlabel.randomness import key, keys, uniform
from partlabel.report.figures import (
    learning_curves,
    precision_recall,
    score_histogram,
    thumbnail,
)
from partlabel.run import Run
from partlabel.scoring import Scored, score
from partlabel.training import choose_rows

_MOST_TRAINING = 2000  # images of the training split that are scored for the report
_PRECISION = 0.95  # at which labels count as filled in
_SAMPLES, _MOST_OPEN = 18, 4


def build(run: Run, cache: str | os.PathLike[str] | None = None) -> Path:
    """Write ``report.html`` into the folder of a run, and return its path."""
    table, settings, record = run.labels, run.settings, run.record
    table, train_rows, val_rows = choose_rows(table, settings)
    draw = uniform(key("report"), keys(table.ids.take(train_rows)))
    some_rows = np.sort(train_rows[np.argsort(draw, kind="stable")[:_MOST_TRAINING]])
    rows = np.concatenate([some_rows, val_rows])
    scored = score(run, table.subset(rows), record.images, cache)
    middle, labels = len(some_rows), scored.table.dense()
    good = scored.readable[middle:]
    val_scores, val_labels = scored.scores[middle:][good], labels[middle:][good]
    result = evaluate(val_scores, val_labels)
    trained = scored.readable[:middle]
    page = _template().render(
        title=run.folder.resolve().name,
        subtitle=f"{settings.method} on {settings.backbone}, frozen: {settings.frozen}",
        figures=_figures(run, result),
        about=(
            f"Figures are in percent, over {result['evaluated_classes']} of "
            f"{count(len(record.classes), 'class', 'classes')}, on the known labels of "
            f"{count(len(val_rows), 'validation image')}. Epoch {record.best_epoch} was kept. "
            + (f"{count(len(record.broken), 'image')} could not be read." if record.broken else "")
        ),
        curves=learning_curves(run.history()),
        classes=_class_rows(record.classes, result),
        precision_recall=precision_recall(
            val_scores, val_labels, record.classes, result.per_class.AP
        ),
        histogram=score_histogram(scored.scores[:middle][trained], labels[:middle][trained]),
        histogram_about=f"Cells of {count(int(trained.sum()), 'training image')}.",
        samples=_samples(run, scored, middle, val_scores, val_labels),
        settings=[(n, v) for n, v in settings.model_dump().items() if v is not None and v != {}],
    )
    path = run.folder / "report.html"
    with atomic_file(path) as stream:
        stream.write(page.encode())
    return path


def _template() -> jinja2.Template:
    text = (resources.files("partlabel.report") / "page.html.j2").read_text("utf-8")
    return jinja2.Environment(autoescape=True).from_string(text)


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}"


def _figures(run: Run, result: Evaluation) -> list[tuple[str, str]]:
    record = run.record
    table, rows, _ = choose_rows(run.labels, run.settings)
    known = f"{table.subset(rows).known:.1%}"
    shown = [(name, _percent(result[name])) for name in ("mAP", "CF1", "OF1", "exact_match")]
    return [*shown, ("training images", f"{record.train_rows:,}"), ("of their labels known", known)]


def _class_rows(classes: list[str], result: Evaluation) -> list[dict[str, Any]]:
    rows = []
    for name, row in zip(classes, result.per_class, strict=True):
        figures = {field: _percent(row[field]) for field in ("AP", "precision", "recall", "F1")}
        counts = {"present": f"{row.present:,}", "absent": f"{row.absent:,}"}
        rows.append({"name": name, "width": 100 * np.nan_to_num(row.AP), **figures, **counts})
    return rows


def _samples(
    run: Run, scored: Scored, middle: int, val_scores: NDArray[Any], val_labels: NDArray[Any]
) -> list[dict[str, Any]]:
    """Training images with what is known of them and what the model would fill in."""
    thresholds = choose_thresholds(val_scores, val_labels, _PRECISION)
    rows = np.flatnonzero(scored.readable[:middle])
    rows = rows[np.linspace(0, len(rows) - 1, min(_SAMPLES, len(rows))).astype(int)]
    names = list(scored.table.ids.take(rows))
    files = ImageFiles(run.record.images).locate(names)
    samples, decided = [], thresholds.decide(scored.scores)
    for row, name, path in zip(rows, names, files, strict=True):
        if path is not None:
            labels = _labels(run.record.classes, scored, int(row), decided)
            samples.append({"name": name, "image": thumbnail(path), "labels": labels})
    return samples


def _labels(
    classes: list[str], scored: Scored, row: int, decided: NDArray[np.int8]
) -> list[dict[str, str]]:
    known = scored.table.dense([row])[0]
    labels, absent = [], []
    for j, name in enumerate(classes):
        if known[j] == PRESENT:
            labels.append({"kind": "known", "text": f"● {name}"})
        elif known[j] != 0:
            absent.append(name)
    likely = np.argsort(-scored.scores[row], kind="stable").tolist()
    for j in [j for j in likely if known[j] == 0][:_MOST_OPEN]:
        shown = f"{classes[j]} {100 * scored.scores[row, j]:.0f}%"
        if decided[row, j] == PRESENT:
            labels.append({"kind": "filled", "text": f"+ {shown}"})
        elif decided[row, j] == 0:
            labels.append({"kind": "open", "text": f"? {shown}"})
    few = [{"kind": "absent", "text": name} for name in absent[:2]]
    return labels + few
