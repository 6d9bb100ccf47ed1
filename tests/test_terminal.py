"""Names from anywhere: a terminal shows their control characters, and does not obey them."""

from pathlib import Path

import pytest

from partlabel import LabelTable
from partlabel.base.errors import InputError
from partlabel.base.terminal import complain, console, printable, say
from partlabel.cli import main
from partlabel.output.display import grid

HOSTILE = "a\x1b]0;title\x07\x9b31m\u202eb\x7f\rc"


def assert_harmless(text: str) -> None:
    assert text.replace("\n", "").isprintable(), repr(text)


def test_what_is_printed_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    complain("error", HOSTILE, "red")
    console().print(HOSTILE)
    console().print(grid([(HOSTILE, False)], [[HOSTILE]]))
    output = capsys.readouterr()
    assert output.out.count("\\x1b]0;title\\x07\\x9b31m\\u202eb\\x7f\\rc") >= 3
    assert_harmless(output.out)
    assert_harmless(output.err)
    assert printable("tab\tand\nline, umlaut ü, emoji \U0001f600") == (
        "tab\tand\nline, umlaut ü, emoji \U0001f600"
    )


def test_errors_about_hostile_files_are_harmless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{HOSTILE.replace('/', '')}.csv"
    path.write_text(f"image,cat\n{HOSTILE},7\n", newline="")
    assert main(["inspect", str(path)]) == 2
    assert main(["inspect", str(tmp_path / HOSTILE)]) == 2
    output = capsys.readouterr()
    assert_harmless(output.out + output.err)


@pytest.mark.parametrize("mark", ["\x1b", "\x85", "\u202e", "\u2066", "\u061c"])
def test_class_names_have_no_control_characters(mark: str) -> None:
    with pytest.raises(InputError, match="control characters"):
        LabelTable(["a.jpg"], [f"c{mark}at"], [[1]])
