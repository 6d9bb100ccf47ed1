"""Known labels that look wrong, with their images."""

from typing import NamedTuple

from partlabel.judging.completion import Assessment, suspects_of
from partlabel.judging.completion.doubts import UNLIKELY
from partlabel.judging.completion.notes import why_nothing
from partlabel.labels import PRESENT
from partlabel.output.report.sample import Sample
from partlabel.output.report.section import percent
from partlabel.output.report.thumbnails import thumbnails

_MOST = 24


class Tile(NamedTuple):
    """A suspect: the name and the data address of its image, its label, and lines below it."""

    name: str
    image: str
    kind: str
    label: str
    about: list[str]


def suspect_tiles(sample: Sample, assessment: Assessment) -> tuple[list[Tile], str]:
    """The least likely known labels of the scored images, and a caption.

    There are none if nothing can be tested: ``complete`` does not list any then.
    """
    run = sample.ours.run
    if why_nothing(run, assessment.precision):
        return [], ""
    unlikely = suspects_of(run, assessment)
    some = unlikely[:_MOST]
    images = thumbnails(sample.ours.run, [suspect.image for suspect in some])
    tiles = [
        Tile(
            suspect.image,
            image,
            *(
                ("known", f"● {suspect.name}: present")
                if suspect.value == PRESENT
                else ("absent", f"○ {suspect.name}: absent")
            ),
            [
                f"score {percent(suspect.score)}%",
                "trained on" if suspect.trained else "not trained on",
            ],
        )
        for suspect, image in zip(some, images, strict=True)
    ]
    return tiles, _caption(assessment.precision, len(unlikely), len(some))


def _caption(precision: float, total: int, number: int) -> str:
    which = f"the {number} least likely of {total:,}" if total > number else f"all {total:,}"
    likelihood = f"{100 * min(max(1 - precision, UNLIKELY), 0.5):.3g}%"
    return (
        "Known labels that contradict the model: the probability that the label is right is below "
        f"{likelihood}. Compare them with the image: either the "
        "label is wrong, or the model is. The score is the calibrated probability that the class "
        "is present. A label that the model was trained on and still contradicts deserves more "
        f"attention. Shown are {which}; `complete` lists all of them in its file of suspects."
    )
