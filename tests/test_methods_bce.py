"""bce: conformance, and the warning if only present labels are known."""

import pytest

from conformance import MethodConformance
from partlabel.base.errors import PartlabelWarning
from partlabel.labels import LabelTable
from partlabel.learning.methods import Task
from partlabel.learning.methods.bce import Bce


class TestBce(MethodConformance):
    name = "bce"


class TestBcePerBatchWithTeacher(MethodConformance):
    name = "bce"
    tiny = MethodConformance.tiny | {"ema": 0.9}
    options = {"normalize": "batch"}  # noqa: RUF012


def test_a_warning_if_only_present_labels_are_known() -> None:
    labels = LabelTable(["a"], ["x", "y"], [[1, 0]])
    with pytest.warns(PartlabelWarning, match="absent"):
        Bce().prepare(Task(labels, labels, 1))
