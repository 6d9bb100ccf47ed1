"""A run as one self-contained HTML file."""

from importlib import resources
from pathlib import Path

import jinja2

from partlabel.base.files import atomic_file
from partlabel.judging.completion import Assessment, assess, check_precision, prepare
from partlabel.judging.completion.notes import why_nothing
from partlabel.judging.image_scores import scores_of
from partlabel.judging.scoring import thresholds_or_half
from partlabel.labels import LabelTable
from partlabel.labels.formats.boxes import BoxFile
from partlabel.metrics import Evaluation
from partlabel.output.report.class_results import (
    about_classes,
    class_rows,
    gains,
    groups,
    precision_recall,
)
from partlabel.output.report.diary_pages import treated_as_present
from partlabel.output.report.embedding import label_embeddings
from partlabel.output.report.guarantee_table import (
    by_origin,
    guarantees,
    recall_and_prevalence,
)
from partlabel.output.report.headline import about_headline, headline_figures, measure
from partlabel.output.report.heat_map_strips import about_heat_maps, make_strips
from partlabel.output.report.landscape import survey
from partlabel.output.report.landscape_charts import landscapes
from partlabel.output.report.learned_links import label_links
from partlabel.output.report.learning_curves import known_positives, training_curves
from partlabel.output.report.method_labels import own_estimates, pseudo_labels
from partlabel.output.report.pointing_game import play_games, pointing
from partlabel.output.report.reliability import reliability_diagrams
from partlabel.output.report.sample import Sample, take_sample
from partlabel.output.report.sample_images import example_images
from partlabel.output.report.section import Section
from partlabel.output.report.similar_images import similar_images
from partlabel.output.report.single_images import single_images
from partlabel.output.report.suspects import suspect_tiles
from partlabel.output.report.teacher_gains import teacher_gains
from partlabel.output.report.tried_candidates import tried_candidates
from partlabel.output.report.unknown_labels import (
    all_scores,
    scores_per_class,
    unknown_label_sections,
)
from partlabel.training.arguments import effective
from partlabel.training.run import Run


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
        truth: true labels of the run's images, to compare unknown labels with.
        baseline: a run on the same labels to compare with.
        boxes: boxes around objects, to check whether class maps have their maximum inside.
        landscape: also draw the loss around the trained weights.
        precision: the precision that ``complete`` is to guarantee.
    """
    check_precision(precision)
    sample = take_sample(run, truth, baseline)
    thresholds, settings = thresholds_or_half(run), run.settings
    result = measure(sample, thresholds)
    assessment = assess(prepare(run, scores_of(run, run.selection.known)), precision)
    tiles, tiles_about = suspect_tiles(sample, assessment)
    page = _template().render(
        title=run.folder.resolve().name,
        subtitle=_subtitle(sample),
        figures=headline_figures(sample, result),
        about=about_headline(sample, result),
        training=[
            *([] if run.record.members else [training_curves(run)]),
            *known_positives(sample),
        ],
        classes=class_rows(sample.classes, result.evaluation, thresholds),
        classes_about=about_classes(sample),
        after_classes=_after_classes(sample, result.evaluation, assessment, landscape),
        strips=make_strips(sample, assessment, thresholds),
        strips_about=about_heat_maps(sample.runs),
        after_strips=_after_heat_maps(sample, boxes),
        suspects=tiles,
        suspects_about=tiles_about,
        examples=example_images(sample, assessment),
        tried=[tried_candidates(run)] if run.record.members else [],
        settings=list(effective(settings).items()),
    )
    path = run.folder / "report.html"
    with atomic_file(path) as stream:
        stream.write(page.encode())
    return path


def _curves(run: Run) -> list[Section]:
    """The curves of a training; a run of ``auto`` has many, and says further down what it tried."""
    return [] if run.record.members else [training_curves(run)]


def _after_classes(
    sample: Sample, result: Evaluation, assessment: Assessment, landscape: bool
) -> list[Section]:
    """The sections between the table of the classes and the heat maps."""
    run, artifacts = sample.ours.run, sample.ours.run.artifacts()
    reason = why_nothing(run, assessment.precision)
    surveyed = {s.name: survey(s.run, s.name) for s in sample.runs if landscape}
    return [
        *precision_recall(sample, result),
        *groups(sample, result),
        *gains(sample, result),
        all_scores(sample),
        *scores_per_class(sample),
        *reliability_diagrams(assessment, sample.classes),
        *guarantees(assessment, sample.classes, reason),
        *recall_and_prevalence(assessment, sample.classes),
        *by_origin(assessment),
        *unknown_label_sections(sample),
        *pseudo_labels(sample),
        *treated_as_present(sample, artifacts.diary),
        *label_links(sample, artifacts.label_graph),
        *similar_images(sample, artifacts.find_similar),
        *own_estimates(sample),
        *teacher_gains(sample),
        *landscapes(surveyed),
    ]


def _after_heat_maps(sample: Sample, boxes: BoxFile | None) -> list[Section]:
    """The sections between the heat maps and the suspects."""
    games = {} if boxes is None else play_games(sample, boxes)
    return [
        *pointing(games, sample.classes),
        *label_embeddings(sample),
        *single_images(sample),
    ]


def _subtitle(sample: Sample) -> str:
    settings = sample.ours.run.settings
    features = sample.ours.run.record.features
    text = f"Method {settings.method}, backbone {settings.backbone}, frozen: {settings.frozen}."
    if features is not None:
        text = (
            f"Method {settings.method}, on given features with {features.dimension:,} dimensions."
        )
    if sample.baseline is None:
        return text
    other = sample.baseline
    return f"{text} Compared with {other.name} (method {other.run.settings.method})."


def _template() -> jinja2.Template:
    text = (resources.files("partlabel.output.report") / "page.html.j2").read_text("utf-8")
    return jinja2.Environment(autoescape=True).from_string(text)
