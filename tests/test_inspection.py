"""Summaries of label tables, and checks of image files."""

import json
from pathlib import Path

from PIL import Image

from partlabel import LabelTable
from partlabel.images.folder import ImageFiles, unreadable
from partlabel.labels import scenes
from partlabel.labels.formats import read
from partlabel.labels.inspection import SplitSummary, inspect


def test_summary_counts() -> None:
    table = LabelTable(
        ["a", "b", "c"], ["x", "y"], [[1, 0], [-1, 0], [0, 0]], ["train", "train", ""]
    )
    result = inspect(table)
    assert (result.images, result.known, result.nothing_known) == (3, 2 / 6, 1)
    assert result.splits == [SplitSummary("train", 2, 0.5), SplitSummary("(none)", 1, 0.0)]
    assert result.not_evaluable == ["y"]
    x = result.classes[0]
    assert (x.name, x.present, x.absent, x.unknown, x.known) == ("x", 1, 1, 1, 2 / 3)
    assert json.loads(json.dumps(result.as_json()))["not_evaluable"] == ["y"]


def test_files_are_compared_with_the_table(tmp_path: Path) -> None:
    scenes.write(tmp_path / "s", 4, scenes.World(8, 32, 0))
    images = tmp_path / "s" / "images"
    whole = (images / "000001.png").read_bytes()
    (images / "000001.png").write_bytes(whole[: len(whole) // 2])
    (images / "000002.png").unlink()
    (images / "more").mkdir()
    Image.new("L", (9, 9)).save(images / "more" / "new.jpg")
    reading = read(tmp_path / "s" / "labels.csv")
    progress = []
    result = inspect(reading.table, reading.notes, images, lambda *step: progress.append(step))
    assert result.files is not None
    assert result.files.found == 3
    assert result.files.missing == ["000002.png"]
    assert list(result.files.unreadable) == ["000001.png"]
    assert result.files.unmentioned == ["more/new.jpg"]
    assert progress == [(1, 3), (2, 3), (3, 3)]


def test_truncated_jpeg_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.effect_noise((300, 300), 50).save(path)
    assert unreadable([path]) == {}
    path.write_bytes(path.read_bytes()[:-2000])
    assert "truncated" in unreadable([path])[path]


def test_decompression_bombs_are_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    Image.new("1", (30000, 30000)).save(path)
    assert "more than the limit" in unreadable([path])[path]


def test_ids_find_their_files(tmp_path: Path) -> None:
    for name in ("a.jpg", "sub/b.png", "sub/c.jpg", "other/c.jpg", "D.JPEG", "x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    files = ImageFiles(tmp_path)
    assert files.names == ["D.JPEG", "a.jpg", "other/c.jpg", "sub/b.png", "sub/c.jpg"]
    (tmp_path / "e.png").mkdir()
    with_folder_name = f"{tmp_path.name}/a.jpg"
    ids = ["a.jpg", "a", "b.png", "sub/b", "c", "sub/c", "D", "x.txt", "other/a.jpg", "nope"]
    ids.append(with_folder_name)
    names = [match and match.file for match in files.match(ids)]
    assert files.locate(ids) == [name and tmp_path / name for name in names]
    assert names == [
        "a.jpg", "a.jpg", "sub/b.png", "sub/b.png", None, "sub/c.jpg", "D.JPEG", None,
        None, None, "a.jpg",
    ]  # fmt: skip
    assert files.locate([str(tmp_path / "a.jpg")]) == [tmp_path / "a.jpg"]
