"""The method that CONTRIBUTING.md shows is a whole method: it passes what every method must."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from conformance import MethodConformance
from partlabel.learning.methods import METHODS

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"


def example() -> str:
    """The one block of Python of the page."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(text)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("growing_negatives")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(example(), str(PAGE), "exec"), vars(module))
    monkeypatch.setitem(METHODS, "growing", module.GrowingNegatives)


class TestExample(MethodConformance):
    name = "growing"


def test_the_example_is_short() -> None:
    lines = [line for line in example().splitlines() if line.strip()]
    code = [line for line in lines if not line.startswith(("import", "from"))]
    assert len(code) <= 30
