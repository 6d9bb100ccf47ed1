"""The baseline on known labels."""

from conformance import MethodConformance


class TestBce(MethodConformance):
    name = "bce"


class TestBcePerBatchWithTeacher(MethodConformance):
    name = "bce"
    tiny = MethodConformance.tiny | {"ema": 0.9}
    options = {"normalize": "batch"}  # noqa: RUF012
