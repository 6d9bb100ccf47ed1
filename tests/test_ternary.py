"""Labels of other tools, converted to 1, -1 and 0."""

from typing import Any

import numpy as np
import pytest
import torch

from partlabel.base.errors import InputError
from partlabel.labels import ternary

NAN = float("nan")


@pytest.mark.parametrize(
    ("labels", "more", "expected"),
    [
        ([1, 0, NAN], {}, [1, -1, 0]),
        ([1, 0, -1], {}, [1, 0, -1]),
        ([1, 0, 1], {}, [1, -1, 1]),
        ([1, 0, 1], {"zero": "unknown"}, [1, 0, 1]),
        ([1, 0, NAN], {"zero": "absent"}, [1, -1, 0]),
        ([1, 0, 7], {"known": [1, 1, 0]}, [1, -1, 0]),
        ([1, -1, 0], {"known": [True, True, False]}, [1, -1, 0]),
        (torch.tensor([1.0, NAN, 0.0], requires_grad=True), {}, [1, 0, -1]),
        ([True, False], {}, [1, -1]),
        ([], {}, []),
    ],
)
def test_forms(labels: Any, more: dict[str, Any], expected: list[int]) -> None:
    result = ternary(labels, **more)
    assert result.dtype == np.int8
    assert result.tolist() == expected


@pytest.mark.parametrize(
    ("labels", "more", "message"),
    [
        ([[1, 2]], {}, r"2 at \[0, 1\]: labels are 1 \(present\), 0 \(absent\) or NaN"),
        ([-1, NAN], {}, "nan at .*: labels are 1 .*, -1"),
        ([1, -1, 0], {"zero": "absent"}, r"-1 at \[1\]"),
        ([1, 0], {"known": [1]}, "known has the shape"),
        ([1, 0], {"known": [1, 2]}, "known must be true or false"),
        ([1, 0, -1], {"known": [1, 1, 1]}, r"0 at \[1\]"),
        ([1, 0], {"known": [1, 1], "zero": "unknown"}, "has no effect with known"),
        ([1, 0], {"zero": "no"}, "there is no meaning of 0 'no'"),
        (["a"], {}, "must be numbers"),
    ],
)
def test_what_is_no_label_is_refused(labels: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ternary(labels, **more)
