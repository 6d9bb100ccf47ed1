"""The two baselines."""

from conformance import MethodConformance


class TestBce(MethodConformance):
    name = "bce"


class TestBcePerBatch(MethodConformance):
    name = "bce"
    options = {"normalize": "batch"}  # noqa: RUF012


class TestAssumeNegative(MethodConformance):
    name = "an"

    def test_unknown_counts_as_absent(self) -> None:
        unknown, _ = self.cost([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]])
        absent, _ = self.cost([[1, -1, -1, -1, -1], [-1, 1, -1, -1, -1]])
        assert unknown == absent
