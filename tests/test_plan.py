"""What a plan says about the images to label, and what else fills in present labels."""

import numpy as np
import pytest

from partlabel.judging.completion.notes import ways_to_present_labels
from partlabel.judging.completion.plan import Plan
from partlabel.labels import LabelTable


@pytest.mark.parametrize(
    ("images", "wanted", "said", "not_said"),
    [
        (0, 500, "there is nothing to label: all labels of the label file are known", "first"),
        (50, 500, "Too few images have unknown labels to show 95%", "The first"),
        (300, 500, "About 500 do so in most cases, but no more have unknown labels", "all of them"),
        (500, 500, "all of them do so in most cases", "partlabel merge LABELS NAMES.txt"),
    ],
)
def test_a_plan_promises_only_what_its_images_can_show(
    images: int, wanted: int, said: str, not_said: str
) -> None:
    table = LabelTable([f"{i}.jpg" for i in range(500)], ["x"], np.zeros((500, 1)))
    text = Plan(table, np.arange(images), 0.95, 1.0, wanted).describe()
    assert said in text
    assert not_said not in text


def test_options_that_fill_in_present_labels_are_named() -> None:
    ways = {"--guarantee class": 1265, "--min-precision 0.9": 0}
    text = ways_to_present_labels(ways)
    assert "1,265 with --guarantee class." in text
    assert "--min-precision" not in text
    assert ways_to_present_labels({"--guarantee class": 0}) == ""
