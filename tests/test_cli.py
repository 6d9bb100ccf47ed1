"""The commands for label files: their output, the files they write, and their exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from partlabel import LabelTable, read_labels, write_labels
from partlabel.cli import main
from partlabel.labels import scenes, simulate
from partlabel.labels.formats import FORMATS


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    table = scenes.make(40, 6, 16, seed=0, test=0.25).labels
    write_labels(table, tmp_path / "labels.csv")
    return tmp_path / "labels.csv"


def out(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_inspect(labels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(labels)]) == 0
    text = out(capsys)
    assert "40 images x 6 classes, 100.0% of labels known" in text
    assert "plain-disc" in text
    assert "splits: train 30 images (100.0% known), test 10 images" in text
    assert main(["inspect", str(labels), "--json"]) == 0
    result = json.loads(out(capsys))
    assert result["images"] == 40
    assert result["classes"][0]["name"] == "plain-disc"
    assert result["notes"]["format"] == "csv"


def test_inspect_counts_one_split_on_request(
    labels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(labels)]) == 0
    assert "--split NAME counts one" in out(capsys)
    assert main(["inspect", str(labels), "--split", "test", "--json"]) == 0
    result = json.loads(out(capsys))
    assert (result["images"], result["classes"][0]["unknown"]) == (10, 0)
    counted = result["classes"][0]["present"] + result["classes"][0]["absent"]
    assert counted == 10
    assert main(["inspect", str(labels), "--split", "tset"]) == 2
    assert "did you mean 'test'" in capsys.readouterr().err


def test_inspect_reports_contradictions_where_convert_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("image,cat\na,1\na,0\n")
    assert main(["convert", str(path), str(tmp_path / "o.csv")]) == 2
    assert "contradict each other" in capsys.readouterr().err
    assert not (tmp_path / "o.csv").exists()
    assert main(["inspect", str(path)]) == 0
    text = out(capsys)
    assert "contradictions: 1" in text
    assert "line 2 (present) and line 3 (absent)" in text
    assert "none present or absent" in text


@pytest.mark.parametrize(
    "format", [n for n, format in FORMATS.items() if format.writable and n != "names"]
)
def test_convert_to_each_format_and_back(
    format: str, labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    converted = tmp_path / ("converted.jsonl" if format == "hf" else "converted")
    assert main(["convert", str(labels), str(converted), "--to", format]) == 0
    unlisted = ["--unlisted", "absent"] if FORMATS[format].lists_only_present else []
    back = tmp_path / "back.csv"
    assert main(["convert", str(converted), str(back), *unlisted]) == 0
    assert f"({format}, detected from the content)" in out(capsys)
    table, truth = read_labels(back), read_labels(labels)
    order = truth.classes.find(table.classes)
    assert (table.dense() == truth.dense()[:, order]).all()


def test_merge_halves_with_different_classes(
    labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = read_labels(labels)
    halves = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, columns in zip(halves, (slice(0, 3), slice(3, 6)), strict=True):
        part = LabelTable(truth.ids, list(truth.classes)[columns], truth.dense()[:, columns])
        write_labels(part, path)
    merged = tmp_path / "m.csv"
    assert main(["merge", *map(str, halves), "-o", str(merged)]) == 0
    assert "40 repeated images, 0 repeated classes, 0 labels and 0 splits in conflict" in out(
        capsys
    )
    assert read_labels(merged) == truth.with_splits(None)


def test_merge_conflicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, m = (tmp_path / name for name in ("a.csv", "b.csv", "m.csv"))
    a.write_text("image,cat\nx,1\n")
    b.write_text("image,cat\nx,0\n")
    assert main(["merge", str(a), str(b), "-o", str(m)]) == 2
    error = capsys.readouterr().err
    assert "the tables disagree on 1 label (first: image 'x', class 'cat')" in error
    assert not m.exists()
    assert main(["merge", str(a), str(b), "-o", str(m), "--conflict", "theirs", "--json"]) == 0
    assert json.loads(out(capsys))["conflicts"] == 1
    assert read_labels(m).dense().tolist() == [[-1]]
    assert main(["merge", str(a), str(b), "-o", str(m), "--conflict", "their"]) == 2
    assert "did you mean 'theirs'" in capsys.readouterr().err


@pytest.mark.parametrize("strategy", simulate.STRATEGIES)
def test_simulate(strategy: str, labels: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "h.csv"
    call = ["simulate", str(labels), str(hidden), "--strategy", strategy, "--seed", "7"]
    proportion = 0.5 if strategy in simulate.WITH_PROPORTION else None
    call += ["--proportion", "0.5"] if proportion else []
    assert main([*call, "--split", "train", "--holdout", "0.2"]) == 0
    expected = simulate.hide(read_labels(labels), strategy, proportion, 7, "train", 0.2)
    assert read_labels(hidden) == expected.without_origins()  # csv does not keep them
    assert expected.in_split("holdout").sum() == 6


def test_merge_applies_unlisted_only_to_formats_that_list_present_classes(tmp_path: Path) -> None:
    (tmp_path / "holes.csv").write_text("image,cat,dog\na,1,\n")
    (tmp_path / "verified.csv").write_text(
        "ImageID,Source,LabelName,Confidence\nb,verification,cat,1\nb,verification,dog,0\nc,v,cat,1\n"
    )
    full = LabelTable(["d"], ["cat", "dog"], [[1, -1]])
    write_labels(full, tmp_path / "coco.json", "coco")
    names = [str(tmp_path / name) for name in ("holes.csv", "verified.csv", "coco.json")]
    assert main(["merge", *names, "-o", str(tmp_path / "m.csv"), "--unlisted", "absent"]) == 0
    merged = read_labels(tmp_path / "m.csv")
    assert merged.dense().tolist() == [[1, 0], [1, -1], [1, 0], [1, -1]]


def test_merge_points_out_similar_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("image,cat\nx.jpg,1\n")
    (tmp_path / "b.csv").write_text("image,Cat\nphotos/x,1\n")
    names = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    assert main(["merge", *names, "-o", str(tmp_path / "m.csv")]) == 0
    text = out(capsys)
    assert "1 pair of similar class names, such as 'cat' and 'Cat'" in text
    assert "1 pair of similar image names, such as 'x.jpg' and 'photos/x'" in text


def test_merge_of_three_does_not_depend_on_their_order(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 0), ("c", 1)):
        (tmp_path / f"{name}.csv").write_text(f"image,cat\nx,{value}\n")
    for order in ("abc", "acb", "bca"):
        names = [str(tmp_path / f"{name}.csv") for name in order]
        out = tmp_path / "m.csv"
        assert main(["merge", *names, "-o", str(out), "--conflict", "unknown"]) == 0
        assert read_labels(out).dense().tolist() == [[0]]


def test_standard_streams_and_devices(labels: Path, tmp_path: Path) -> None:
    command = str(Path(sys.executable).parent / "partlabel")
    text = labels.read_bytes()
    done = subprocess.run([command, "inspect", "/dev/stdin"], input=text, capture_output=True)
    assert b"40 images" in done.stdout, done.stderr
    log = tmp_path / "log"
    log.write_text("earlier output\n")
    with log.open("a") as stream:
        subprocess.run(
            [command, "convert", labels, "/dev/stdout", "--to", "csv"], stdout=stream, check=True
        )
    assert log.read_text().startswith("earlier output\n")
    assert text.decode() in log.read_text()
    with Path("/dev/full").open("w") as stream:
        done = subprocess.run([command, "inspect", labels], stdout=stream, stderr=subprocess.PIPE)
    assert b"Traceback" not in done.stderr
    not_utf8 = os.fsencode(tmp_path) + b"/l\xe9.csv"
    Path(os.fsdecode(not_utf8)).write_bytes(text)
    done = subprocess.run([command, "inspect", not_utf8], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_inputs_are_not_overwritten(labels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = labels.read_bytes()
    for call in (
        ["convert", str(labels), str(labels)],
        ["simulate", str(labels), str(labels), "--strategy", "single-positive"],
        ["merge", str(labels), str(labels), "-o", str(labels)],
    ):
        assert main(call) == 2
        assert "is an input" in capsys.readouterr().err
    assert labels.read_bytes() == before


def test_information_loss_is_reported(
    labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["convert", str(labels), str(tmp_path / "t.json"), "--to", "coco"]
    assert main(call) == 0
    assert "(with losses, see the warning): 40 images" in out(capsys)
    assert main([*call, "--json"]) == 0
    assert json.loads(out(capsys))["lost"] == ["the splits"]


def test_names_that_the_terminal_cannot_display(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("image,café\na,1\n")
    command = Path(sys.executable).parent / "partlabel"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [command, "inspect", path], capture_output=True, text=True, env=ascii_only
    )
    assert done.returncode == 0, done.stderr
    assert "caf\\xe9" in done.stdout


def test_scenes(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    call = ["scenes", str(folder), "--count", "5", "--classes", "4", "--size", "16", "--seed", "2"]
    assert main(call) == 0
    assert len(list((folder / "images").iterdir())) == 5
    assert read_labels(folder / "labels.csv").shape == (5, 4)
    assert main(call) == 2


def test_warnings_are_printed(
    labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(labels), str(tmp_path / "t.json"), "--to", "coco"]) == 0
    assert "warning:" in (error := capsys.readouterr().err)
    assert "cannot hold the splits" in error


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (["inspect", "nothing.csv"], "there is no such file"),
        (["inspect", "LABELS", "--format", "cvs"], "did you mean 'csv'"),
        (["inspect", "LABELS", "--images", "nowhere"], "no such folder of images"),
        (["convert", "LABELS", "x.unknown"], "cannot choose a format by the file name"),
        (["convert", "LABELS", "no/such/folder.csv"], "its folder does not exist"),
        (["simulate", "LABELS", "x.csv", "--strategy", "singel-positive"], "did you mean"),
        (["simulate", "LABELS", "x.csv", "--strategy", "partial"], "needs a proportion"),
        (["simulate", "LABELS", "x.csv", "--strategy", "noisy+", "--split", "tset"], "'test'"),
        (["scenes", "x", "--classes", "99"], "between 1 and 40"),
        (["inspect"], "Missing argument"),
        (["inspect", "LABELS", "--imags", "x"], "No such option"),
    ],
)
def test_wrong_arguments(
    call: list[str],
    message: str,
    labels: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert main([word.replace("LABELS", str(labels)) for word in call]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_the_installed_command_line_script(labels: Path) -> None:
    command = Path(sys.executable).parent / "partlabel"
    done = subprocess.run([command, "inspect", labels, "--all"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "6 classes" in done.stdout
    done = subprocess.run([command, "inspect", "nowhere"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: nowhere: there is no such file or folder\n"
    done = subprocess.run([command, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("partlabel ")


def test_other_systems_are_named_at_once() -> None:
    program = "import os, pathlib, shutil, typing; os.name = 'nt'; import partlabel"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ImportError: partlabel needs the file locks and signals of Unix" in result.stderr


def test_excel_safe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that writes label files in CSV has the option, and refuses it elsewhere."""
    table = LabelTable(["=a", "b"], ["+c", "d"], [[1, -1], [-1, 1]])
    source, target, other = (str(tmp_path / name) for name in ("t.csv", "o.csv", "o.arrow"))
    write_labels(table, source)
    calls = {
        "convert": ["convert", source, "OUT"],
        "merge": ["merge", source, source, "-o", "OUT"],
        "simulate": ["simulate", source, "OUT", "--strategy", "dense", "--proportion", "1"],
    }
    for name, call in calls.items():
        words = [target if word == "OUT" else word for word in call]
        assert main([*words, "--excel-safe"]) == 0, name
        assert Path(target).read_text().splitlines()[:2] == ["image,'+c,d", "'=a,1,0"]
        assert read_labels(target) == table
        words = [other if word == "OUT" else word for word in call]
        assert main([*words, "--excel-safe"]) == 2
        assert "o.arrow: --excel-safe is for CSV files" in capsys.readouterr().err
        assert not Path(other).exists()
