"""The baseline on known labels."""

from conformance import MethodConformance


class TestBce(MethodConformance):
    name = "bce"


class TestBcePerBatch(MethodConformance):
    name = "bce"
    options = {"normalize": "batch"}  # noqa: RUF012
