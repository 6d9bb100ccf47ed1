"""What each teacher adds: the scores of other models that a run was trained with."""

import numpy as np

from partlabel.judging.scoring import Scores
from partlabel.metrics import Evaluation, evaluate
from partlabel.models.heads import WithEvidence
from partlabel.models.prediction import collect_scores, iterate_logits
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import Section, decimal, percent
from partlabel.training.devices import find_device
from partlabel.training.embedded import inputs_of


def teacher_gains(sample: Sample) -> list[Section]:
    """One section per teacher, with its weight and what it adds for each class that it knows."""
    run = sample.ours.run
    if not run.record.teachers or not len(sample.held_labels):
        return []
    head = run.classifier().head
    assert isinstance(head, WithEvidence)
    weights, result = head.weights().detach().numpy(), _evaluation(sample, sample.ours.held_out)
    sections = []
    for number, teacher in enumerate(run.record.teachers):
        without = _evaluation(sample, _scores_without(sample, number))
        known = sorted(set(run.teachers[number].columns.tolist()))
        names = [run.teachers[number].classes[column] for column in known]
        rows = [
            ["all", "", *_change(result["mAP"], without["mAP"])],
            *(
                [
                    name,
                    decimal(float(weights[number, sample.classes.index(name)]), 2),
                    *_change(
                        *(
                            float(one.per_class["AP"][sample.classes.index(name)])
                            for one in (result, without)
                        )
                    ),
                ]
                for name in names
            ),
        ]
        header = ["class", "weight", "with the teacher", "without", "gain"]
        sections.append(Section(f"What {teacher.name} adds", _CAPTION, "", header, rows))
    return sections


_CAPTION = (
    "Average precision in percent on the known labels of held-out images, with the scores of this "
    "teacher and with its scores left out of the same model; in the first row their mean over all "
    "classes. The weight is what one standard deviation of the teacher's score adds to the logit: "
    "0 means that the teacher is ignored. Classes that the teacher does not know are not listed. "
    "The scores of a teacher are evidence only. They are never used as labels, and guarantees rest "
    "on human labels."
)


def _evaluation(sample: Sample, scores: Scores) -> Evaluation:
    return evaluate(scores, sample.held_labels)


def _change(with_teacher: float, without: float) -> list[str]:
    gain = decimal(100 * (with_teacher - without), sign=True)
    return [percent(with_teacher), percent(without), gain]


def _scores_without(sample: Sample, teacher: int) -> Scores:
    """[n, C] the scores of the held-out images without one teacher."""
    run, table = sample.ours.run, sample.held_images
    model = run.classifier().to(find_device(run.execution.device))
    head = model.head
    assert isinstance(head, WithEvidence)
    predictions = iterate_logits(
        model,
        inputs_of(run, model, table),
        np.arange(len(table)),
        run.settings.batch,
        run.execution.workers,
        forward=lambda model, maps: head(model.backbone(maps), without=teacher),
    )
    return collect_scores(predictions)[0]
