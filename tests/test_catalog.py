"""Descriptions of the methods, as `partlabel methods` prints them."""

import pytest

from partlabel.learning.catalog import description, summaries
from partlabel.learning.methods import METHODS


def test_each_method_has_a_short_summary() -> None:
    lines = dict(summaries())
    assert lines.keys() == METHODS.keys()
    for name, line in lines.items():
        assert line.endswith("."), name
        assert len(line) <= 90, name
        assert "[" not in line, name


@pytest.mark.parametrize("name", ["an", "wan"])
def test_a_method_without_settings_prints_none(name: str) -> None:
    text = description(name)
    assert "--set" not in text
    assert "Default settings" not in text
    assert "inspect" not in text


def test_settings_are_printed_as_on_the_command_line() -> None:
    text = description("em-apl")
    for setting in ("alpha=0.2", "warmup=5", "hard=false"):
        assert f"    --set {setting}\n" in text
    assert "    --set expected=none\n" in description("role")
    assert "    --set weight=1e-06\n" in description("l2r")  # the constructor of its parent
    assert "    optimizer = adamw\n" in description("lac")


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_is_described(name: str) -> None:
    text = description(name)
    body, _, defaults = text.partition("Default settings:")
    _, _, arguments = body.partition("Args:")
    for line in defaults.splitlines():
        if line.strip().startswith("--set "):
            setting = line.split()[1].partition("=")[0]
            heads = [entry.partition(":")[0] for entry in arguments.splitlines()]
            assert any(setting in head.replace(",", " ").split() for head in heads), setting
