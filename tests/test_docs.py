"""README and docs are true: their code runs, their commands parse, their links lead somewhere."""

import importlib
import json
import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
import typer
from typer.main import get_command

import partlabel
from partlabel import LabelTable, read_labels, scenes, simulate, write_labels
from partlabel.base.errors import PartlabelWarning
from partlabel.cli import app, main
from partlabel.labels.merge_plan import read_plan
from partlabel.learning.methods import METHODS
from partlabel.models.heads import HEADS
from partlabel.output.bench import read_spec
from test_architecture import ROOMS
from torchrun import TESTS, launch

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
PAGES = [ROOT / "README.md", *PAGES]
TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
FENCE = re.compile(r"^```(\S+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ROOT_COMMAND = get_command(app)
COMMANDS = ROOT_COMMAND.commands  # type: ignore[attr-defined]


def options_of(command: str) -> set[str]:
    """The options of a command; an error if there is no such command."""
    parameters = COMMANDS[command].params
    return {"--help"}.union(*(set(each.opts) | set(each.secondary_opts) for each in parameters))


ROOT_OPTIONS = {option for parameter in ROOT_COMMAND.params for option in parameter.opts}
OPTIONS = ROOT_OPTIONS.union(*map(options_of, COMMANDS))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# ---- code blocks


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pages call the reader's own files: ``photos``, ``labels.csv`` and others."""
    folder = tmp_path_factory.mktemp("docs") / "data"
    world = scenes.World(classes=4, size=48, seed=0, difficulty=0.2)
    full = scenes.write(folder, 160, world, test=0.25)
    (folder / "images").rename(folder / "photos")
    (folder / "labels.csv").unlink()
    write_labels(full, folder / "full.csv")
    write_labels(simulate.partial(full, 0.6, seed=0), folder / "labels.csv")
    more = LabelTable(["000000.png", "000200.png"], ["cow"], [[1], [-1]])
    write_labels(more, folder / "more-labels.csv")
    write_labels(more, folder / "team.json", "coco")
    (folder / "web.csv").write_text("image,tag\n000001.png,horse\n000002.png,cow\n")
    (folder / "difficult.csv").write_text(f"image,class\n000000.png,{full.classes[0]}\n")
    (folder / "corrected.csv").write_text(f"image,class,value\n000000.png,{full.classes[0]},1\n")
    return folder


@pytest.mark.parametrize("page", PAGES, ids=name_of)
@pytest.mark.filterwarnings(f"ignore::{PartlabelWarning.__module__}.PartlabelWarning")
def test_code_runs(page: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, in a folder with the reader's own files."""
    blocks = list(code_blocks(page.read_text()))
    shutil.copytree(data, tmp_path / "work") if blocks else (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PARTLABEL_CACHE", str(data.parent / "cache"))
    space: dict[str, object] = {}
    for language, text in blocks:
        if language == "csv":
            Path("example.csv").write_text(text)
            read_labels("example.csv")
        elif language == "yaml" and text.startswith("files:"):
            Path("merge.yaml").write_text(text)
            read_plan(Path("merge.yaml"))
        elif language == "yaml":
            Path("spec.yaml").write_text(text)
            read_spec(Path("spec.yaml"))
        elif language == "python":
            exec(compile(text, str(page), "exec"), space)
        elif language == "sh" and text.startswith("torchrun"):
            run_in_processes(text.strip().splitlines())
        elif language == "sh":
            for line in text.strip().splitlines():
                command, *words = shlex.split(line, comments=True)
                assert command == "partlabel", line
                assert main(words) == 0, line


def run_in_processes(lines: list[str]) -> None:
    """Run the commands of a block with two processes, which are started once for all of them."""
    split = [shlex.split(line, comments=True) for line in lines]
    for words in split:
        assert words[: words.index("-m")] == ["torchrun", "--nproc-per-node", "2"], words
    ended = launch(2, [str(TESTS / "process_commands.py"), json.dumps([*map(shared_words, split)])])
    assert ended.returncode == 0, ended.stderr


def shared_words(words: list[str]) -> list[str]:
    """The command that ``torchrun`` starts."""
    at = words.index("-m")
    assert words[at : at + 2] == ["-m", "partlabel"], words
    return words[at + 2 :]


def code_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of fenced blocks that are run, those of notebooks included."""
    for language, content in FENCE.findall(text):
        if language == "{code-cell}":
            shell = content.startswith("%%sh\n")
            yield ("sh", content.removeprefix("%%sh\n")) if shell else ("python", content)
        elif language in ("csv", "yaml", "python", "sh"):
            yield language, content


# ---- commands


@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_commands_exist(page: Path) -> None:
    """Blocks and inline code: the real command line must accept every command and option."""
    for line in block_lines(page.read_text()):
        program, *words = shlex.split(line, comments=True) or [""]
        if program == "partlabel":
            parse(words)
        elif program == "torchrun":
            parse(shared_words(words))
        elif program == "make":
            targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {*words} <= {*targets}, line
        elif program == "python" and words[0] == "-m" and words[1].startswith("benchmarks"):
            module = ROOT / Path(*words[1].split("."))
            assert module.is_dir() or module.with_suffix(".py").is_file(), line
    for code in inline_code(page.read_text()):
        program, *words = code.split()
        options = {word.split("=")[0] for word in words if re.match("--[a-z]", word)}
        if program == "partlabel" and words and words[0] not in OPTIONS:
            assert options <= options_of(words[0]), code  # the rest may be left out in a sentence
        elif program not in ("python", "pip", "torchrun", "srun"):
            assert options | {*re.findall("^--[a-z-]+", code)} <= OPTIONS, code


def test_a_wrong_option_in_a_page_would_be_found() -> None:
    with pytest.raises(Exception, match="--forzen"):
        parse(["train", "labels.csv", "--images", "photos", "--forzen", "--out", "run"])
    with pytest.raises(AssertionError):
        parse(["train", "a.csv", "--images", "photos", "--method", "bec", "--out", "run"])


def parse(words: list[str]) -> None:
    """Parse a command without running it."""
    name, *rest = words
    if name in OPTIONS:
        return
    try:
        parameters = COMMANDS[name].make_context(name, rest).params
    except typer.Exit:  # --help
        return
    assert parameters.get("method") in (None, "NAME", "auto", *METHODS), words
    assert parameters.get("head") in (None, *HEADS), words
    spec = parameters.get("spec")
    if spec is not None and spec.parts[0] == "benchmarks" and spec.stem.islower():
        assert (ROOT / spec).is_file(), words  # SPEC.yaml stands for any


def block_lines(text: str) -> Iterator[str]:
    """The lines of fenced and of indented blocks."""
    for language, content in FENCE.findall(text):
        if language in ("sh", "{code-cell}"):
            yield from (line.strip() for line in content.splitlines())
    yield from re.findall(r"^ {4,}((?:partlabel|python|make) .*)$", FENCE.sub("", text), re.M)


def inline_code(text: str) -> list[str]:
    """What stands in single backquotes outside of blocks."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", FENCE.sub("", text))]


# ---- links


@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target.read_text()), f"{link}: no such heading"


@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_paths_of_the_repository_exist(page: Path) -> None:
    """Inline code such as ``tests/conformance.py``, or ``training/trainer.py`` of the package."""
    for code in inline_code(page.read_text()):
        if re.fullmatch(r"(src|tests|docs|benchmarks)/[\w./-]+", code) and "_build" not in code:
            assert (ROOT / code).exists(), code
        elif re.fullmatch(rf"({'|'.join(ROOMS)})/[\w./]+", code):
            assert (ROOT / "src" / "partlabel" / code).exists(), code


def anchors(text: str) -> set[str]:
    """The headings of a page as links name them."""
    headings = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached, waiting = {index}, [index]
    while waiting:
        page = waiting.pop()
        for link in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()):
            target = (page.parent / link).resolve()
            if target.is_file() and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert {*PAGES[1:]} <= reached


# ---- what else pages say of the code


def test_every_page_is_in_a_table_of_contents() -> None:
    """The site does not build otherwise."""
    docs, listed = Path(__file__).parent.parent / "docs", {"index"}
    pages = [page for page in docs.rglob("*.md") if "_build" not in page.parts]
    for page in pages:
        for block in re.findall(r"```{toctree}(.*?)```", page.read_text(), re.DOTALL):
            names = [line for line in block.splitlines() if line and line[0] not in ":{"]
            home = page.parent.relative_to(docs)
            listed |= {(home / name.split("<")[-1].strip(" >")).as_posix() for name in names}
    found = {page.relative_to(docs).with_suffix("").as_posix() for page in pages}
    assert [name for name in found if not any(fnmatch(name, entry) for entry in listed)] == []


def test_the_readme_stays_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 1300
    assert [line for line in text.splitlines() if len(line) > 120 and line[:1] != "|"] == []


def test_the_architecture_page_has_every_room_in_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == ROOMS
    script = ROOT / "docs" / "images" / "architecture.py"
    space = runpy.run_path(str(script))
    assert script.with_suffix(".svg").read_text() == space["draw"](), f"run {script}"
    assert {box.title for box in space["BOXES"] if box.fill == space["ROOM"]} == {*ROOMS}


def test_the_api_reference_has_every_public_name() -> None:
    pages = "\n".join(p.read_text() for p in (ROOT / "docs" / "reference" / "api").glob("*.md"))
    for name in set(partlabel.__all__) - {"__version__", "inspection", "formats", "labels"}:
        assert re.search(rf":: partlabel\.{name}\b", pages), f"{name} is not in the API reference"
    for path, members in re.findall(
        r"^\.\. (?:auto\w+|py:data):: partlabel\.(\S+)\n(?:   :members: (.+)\n)?",
        pages,
        re.MULTILINE,
    ):
        item: object = partlabel
        for number, part in enumerate(path.split(".")):
            if not hasattr(item, part):
                importlib.import_module(".".join(["partlabel", *path.split(".")[: number + 1]]))
            item = getattr(item, part)
        for member in filter(None, members.split(", ")):
            assert hasattr(item, member), f"{path}.{member}"
