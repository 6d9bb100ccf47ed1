"""Images are matched to files that are spelled differently, if it is clear which file is meant."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partlabel.cli import main
from partlabel.images.folder import ImageFiles
from partlabel.images.matching import (
    AS_WRITTEN,
    BY_FILE_NAME,
    OTHER_SPELLING,
    WITHOUT_SUFFIX,
    FileNames,
    spellings,
)

FILES = ["a.jpg", "b/c.png", "b/d.jpg", "e/d.jpg", "Été.JPG", "one/F.jpg", "two/f.jpg"]


@pytest.mark.parametrize(
    ("name", "file", "how"),
    [
        ("a.jpg", "a.jpg", AS_WRITTEN),
        ("photos/a.jpg", "a.jpg", AS_WRITTEN),
        ("/data/photos/b/c.png", "b/c.png", AS_WRITTEN),
        ("a", "a.jpg", WITHOUT_SUFFIX),
        ("b/c", "b/c.png", WITHOUT_SUFFIX),
        ("c.png", "b/c.png", BY_FILE_NAME),
        ("c", "b/c.png", BY_FILE_NAME),
        ("elsewhere/c.png", "b/c.png", BY_FILE_NAME),
        ("C:\\pictures\\c.png", "b/c.png", BY_FILE_NAME),
        ("b\\d.jpg", "b/d.jpg", OTHER_SPELLING),
        ("B/D", "b/d.jpg", OTHER_SPELLING),
        ("./b/D.jpg", "b/d.jpg", OTHER_SPELLING),
        ("A.JPG", "a.jpg", OTHER_SPELLING),
        ("Photos\\A.jpg", "a.jpg", OTHER_SPELLING),
        ("x\\C.PNG", "b/c.png", OTHER_SPELLING),
        (unicodedata.normalize("NFD", "été.jpg"), "Été.JPG", OTHER_SPELLING),
        ("f.jpg", "two/f.jpg", BY_FILE_NAME),
    ],
)
def test_spellings(name: str, file: str, how: str) -> None:
    match = FileNames(FILES, "/data/photos").match([name])[0]
    assert match is not None
    assert (match.file, match.how) == (file, how)


@pytest.mark.parametrize("name", ["d.jpg", "D", "z.jpg", "../a.JPG", "x\\..\\A.jpg", "F.JPG", ""])
def test_names_that_are_unclear_or_lead_outside(name: str) -> None:
    assert FileNames(FILES, "/data/photos").match([name]) == [None]


def test_two_names_are_never_one_file_by_a_similar_spelling() -> None:
    names = FileNames(FILES, "/data/photos")
    matches = names.match(["a.jpg", "A.JPG", "x/c.png", "y/c.png", "B/d.jpg"])
    assert [match and match.file for match in matches] == ["a.jpg", None, None, None, "b/d.jpg"]
    assert spellings(matches) == {OTHER_SPELLING: 1}


@given(st.lists(st.text("aAéÉ./\\", min_size=1, max_size=6), max_size=5))
def test_only_listed_files_are_found(files: list[str]) -> None:
    names = FileNames(sorted(set(files)), "/data/photos")
    for match in names.match([file.swapcase() for file in files]):
        assert match is None or match.file in files


def test_it_is_said_how_files_were_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    (tmp_path / "images").mkdir()
    for name in ("A.JPG", "b.jpg"):
        Image.new("RGB", (4, 4)).save(tmp_path / "images" / name)
    (tmp_path / "t.csv").write_text("image,cat\na.jpg,1\nb,0\n")
    files = ImageFiles(tmp_path / "images")
    assert files.locate(["a.jpg", "b"]) == [files.folder / "A.JPG", files.folder / "b.jpg"]
    assert main(["inspect", str(tmp_path / "t.csv"), "--images", str(files.folder)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "spelled differently: 1 found without suffix, 1 found in another case" in text
