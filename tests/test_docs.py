"""The commands and the Python in README and docs work, in the order in which they are read."""

import re
import shlex
from pathlib import Path

import pytest

from partlabel import LabelTable, write_labels
from partlabel.base.errors import PartlabelWarning
from partlabel.cli import main
from partlabel.labels import scenes
from partlabel.output.bench import read_spec

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.filterwarnings(f"ignore::{PartlabelWarning.__module__}.PartlabelWarning")
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARTLABEL_CACHE", str(tmp_path / "cache"))
    Path("photos").mkdir()
    write_labels(scenes.make(20, 4, 8, test=0.25).labels, "full.csv")
    write_labels(LabelTable(["a.jpg", "d.jpg"], ["cow"], [[1], [-1]]), "more-labels.csv")
    space: dict[str, object] = {}
    for language, text in BLOCK.findall(page.read_text()):
        if language == "csv":
            Path("labels.csv").write_text(text)
        elif language == "yaml":
            Path("spec.yaml").write_text(text)
            read_spec(Path("spec.yaml"))
        elif language == "python":
            exec(compile(text, str(page), "exec"), space)
        elif language == "sh":
            for line in text.strip().splitlines():
                command, *words = shlex.split(line)
                assert command == "partlabel"
                assert main(words) == 0, line


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page}: {link}"
