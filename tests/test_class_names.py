"""Classes that are renamed or joined while files are read, and images that are named like files."""

import json
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partlabel import LabelTable, read_labels
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.cli import main
from partlabel.images.folder import ImageFiles
from partlabel.labels.formats import read
from partlabel.labels.formats.reading_options import folded
from partlabel.labels.image_names import name_like_files
from test_formats_tags import make_images

TAGS = "image,tag\na.jpg,cat\nb.jpg,Cat\nc.jpg,dog\nd.jpg,cat\n"
WIDE = "image,split,cat,Dog\na.jpg,train,1,0\nx.jpg,test,,1\n"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tags.csv").write_text(TAGS)
    Path("wide.csv").write_text(WIDE)


def run(*words: str, code: int = 0) -> None:
    assert main(list(words)) == code


@pytest.mark.parametrize("unlisted", ["absent", "unknown"])
def test_names_in_another_case_are_one_class(unlisted: str) -> None:
    table = read_labels("tags.csv", unlisted=unlisted, ignore_case=True)
    other = -1 if unlisted == "absent" else 0
    assert list(table.classes) == ["cat", "dog"]  # cat is more frequent than Cat
    assert table.dense().tolist() == [[1, other], [1, other], [other, 1], [1, other]]


def test_a_name_that_is_given_is_kept() -> None:
    options = {"unlisted": "absent", "ignore_case": True}
    table = read_labels("tags.csv", rename={"dog": "CAT"}, **options)  # type: ignore[arg-type]
    assert list(table.classes) == ["CAT"]
    assert (table.dense() == 1).all()


def test_classes_are_counted_and_chosen_after_they_are_joined() -> None:
    table = read_labels("tags.csv", unlisted="unknown", ignore_case=True, min_count=3)
    assert list(table.classes) == ["cat"]
    for name in ("cat", "CAT"):
        table = read_labels("wide.csv", ignore_case=True, only_classes=[name])
        assert list(table.classes) == ["cat"]
    with pytest.raises(InputError, match="--only-classes: there is no class 'CAT'"):
        read_labels("wide.csv", only_classes=["CAT"])


def test_the_warning_names_the_option_that_every_command_has() -> None:
    with pytest.warns(PartlabelWarning, match="'Cat' and 'cat'; .* with --ignore-case"):
        read_labels("tags.csv", unlisted="unknown")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_labels("tags.csv", unlisted="unknown", ignore_case=True)
    run("inspect", "tags.csv", "--unlisted", "absent", "--ignore-case")
    run("convert", "tags.csv", "out.csv", "--unlisted", "absent", "--ignore-case")
    assert list(read_labels("out.csv").classes) == ["cat", "dog"]


@given(
    st.lists(st.sampled_from(["cat", "Cat", "CAT", "\u00e9t\u00e9", "E\u0301TE\u0301"]), min_size=1)
)
def test_joined_tags_equal_the_tags_of_a_file_in_one_case(tags: list[str]) -> None:
    rows = [f"{number % 3}.jpg,{tag}" for number, tag in enumerate(tags)]
    Path("t.csv").write_text("\n".join(["image,tag", *rows]), encoding="utf-8")
    plain = [f"{number % 3}.jpg,{folded(tag)}" for number, tag in enumerate(tags)]
    Path("p.csv").write_text("\n".join(["image,tag", *plain]), encoding="utf-8")
    joined = read_labels("t.csv", unlisted="absent", ignore_case=True, min_count=1)
    expected = read_labels("p.csv", unlisted="absent", min_count=1)
    assert set(map(folded, joined.classes)) == set(expected.classes)
    order = [list(map(folded, joined.classes)).index(name) for name in expected.classes]
    assert joined.ids == expected.ids
    assert np.array_equal(joined.dense()[:, order], expected.dense())


def test_classes_that_contradict_each_other() -> None:
    Path("c.csv").write_text("image,Cat,cat\na,1,0\nb,1,1\nc,,0\n")
    message = r"'Cat' in line 2 \(present\) and 'cat' in line 2 \(absent\)"
    with pytest.raises(InputError, match=message):
        read_labels("c.csv", ignore_case=True)
    reading = read("c.csv", ignore_case=True, strict=False)
    assert reading.table.dense().tolist() == [[0], [1], [-1]]
    assert [str(one) for one in reading.notes.contradictions] == [
        "image 'a', class 'cat': 'Cat' in line 2 (present) and 'cat' in line 2 (absent) contradict "
        "each other"
    ]


def test_a_class_that_contradicts_itself_is_an_error_by_any_rule() -> None:
    Path("c.csv").write_text("image,Cat,cat\na,1,0\na,0,\n")
    for rule in ("error", "ours", "theirs", "unknown"):
        words = ("merge", "c.csv", "wide.csv", "-o", "out.csv", "--ignore-case")
        run(*words, "--conflict", rule, code=2)


@pytest.mark.parametrize(
    ("rule", "value"), [("ours", [1, 1]), ("theirs", [-1, -1]), ("unknown", [0, 0])]
)
def test_the_rule_of_a_merge_decides(rule: str, value: list[int]) -> None:
    Path("c.csv").write_text("image,Cat,cat\na,1,0\nb,1,0\n")
    run("merge", "c.csv", "wide.csv", "-o", "out.csv", "--ignore-case", "--conflict", rule)
    table = read_labels("out.csv")
    column = [list(map(str.lower, table.classes)).index("cat")]
    rows = [list(table.ids).index(name) for name in ("a", "b")]
    assert table.dense()[np.ix_(rows, column)].reshape(-1).tolist() == value


COCO = {
    "images": [{"id": 1, "file_name": "x.jpg"}, {"id": 2, "file_name": "y.jpg"}],
    "categories": [{"id": 1, "name": "DOG"}, {"id": 2, "name": "horse"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1}],
}


@pytest.mark.parametrize(("team", "web"), list(product(["absent", "unknown"], repeat=2)))
@pytest.mark.parametrize("way", ["case", "rename", "synonyms", "yaml"])
def test_every_way_to_join_names_gives_the_same_merge(team: str, web: str, way: str) -> None:
    Path("team.json").write_text(json.dumps(COCO))
    files = ["wide.csv", f"team.json:unlisted={team}", f"tags.csv:unlisted={web}"]
    if way == "case":
        run("merge", *files, "-o", "out.csv", "--ignore-case")
    elif way == "rename":
        names = ["DOG=Dog", "dog=Dog", "Cat=cat"]
        run("merge", *files, "-o", "out.csv", *(f"--rename={name}" for name in names))
    elif way == "synonyms":
        Path("same.txt").write_text("Dog,dog,DOG\ncat,Cat\n")
        run("merge", *files, "-o", "out.csv", "--synonyms", "same.txt")
    else:
        Path("merge.yaml").write_text(f"files: {json.dumps(files)}\nignore_case: true\n")
        run("merge", "merge.yaml", "-o", "out.csv")
    table = read_labels("out.csv")
    t, w = (-1 if word == "absent" else 0 for word in (team, web))
    assert list(table.ids) == ["a.jpg", "x.jpg", "y.jpg", "b.jpg", "c.jpg", "d.jpg"]
    assert list(table.classes) == ["cat", "Dog", "horse"]
    assert table.dense().tolist() == [
        [1, -1, 0],
        [0, 1, t],
        [0, t, t],
        [1, w, 0],
        [w, 1, 0],
        [1, w, 0],
    ]


@pytest.mark.parametrize("way", ["rename", "synonyms", "both"])
def test_names_to_replace_are_found_in_any_case(way: str) -> None:
    Path("same.txt").write_text("pet,CAT\n" if way == "synonyms" else "pet,Kitten\n")
    words = {
        "rename": ["--rename", "CAT=pet"],
        "synonyms": ["--synonyms", "same.txt"],
        "both": ["--rename", "CAT=kitten", "--synonyms", "same.txt"],
    }
    files = ("wide.csv", "tags.csv:unlisted=unknown")
    run("merge", *files, "-o", "out.csv", "--ignore-case", *words[way])
    assert list(read_labels("out.csv").classes) == ["pet", "Dog"]
    run("convert", "wide.csv", "out.csv", "--ignore-case", *words[way])
    assert list(read_labels("out.csv").classes) == ["pet", "Dog"]
    if way == "rename":
        run("merge", *files, "-o", "new.csv", *words[way], code=2)
        run("convert", "wide.csv", "new.csv", *words[way], code=2)
    assert not Path("new.csv").exists()


def test_one_file_is_merged_by_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.csv").write_text("image,Cat,cat\na,1,0\nb,1,\n")
    run("convert", "c.csv", "out.csv", "--ignore-case", code=2)
    assert "merge with --conflict" in capsys.readouterr().err
    run("merge", "c.csv", "-o", "out.csv", "--ignore-case", "--conflict", "unknown")
    assert read_labels("out.csv").dense().tolist() == [[0], [1]]
    run("merge", "c.csv", "-o", "new.csv", code=2)
    assert "two label files or more; convert reads one" in capsys.readouterr().err
    Path("merge.yaml").write_text("files: [c.csv]\nconflict: ours\n")
    run("merge", "merge.yaml", "-o", "new.csv", "--corrections", code=2)
    assert "--corrections needs a label file" in capsys.readouterr().err
    assert not Path("new.csv").exists()


def test_corrections_in_another_case() -> None:
    Path("c.csv").write_text("image,class,value\na.jpg,CAT,0\nx.jpg,dog,\n")
    words = ("merge", "wide.csv", "c.csv", "--corrections", "-o", "out.csv")
    run(*words, code=2)
    run(*words, "--ignore-case")
    assert read_labels("out.csv").dense().tolist() == [[-1, -1], [0, 0]]


def test_uncertain_labels_are_counted_under_the_new_name() -> None:
    Path("chex.csv").write_text("Path,Edema,edema\na,-1.0,\nb,1.0,-1.0\n")
    reading = read("chex.csv", ignore_case=True)
    assert reading.notes.uncertain == {"Edema": 2}
    reading = read("chex.csv", rename={"Edema": "fluid"}, only_classes=["Edema"])
    assert list(reading.table.classes) == ["fluid"]


# images


def test_a_merge_names_images_like_their_files(capsys: pytest.CaptureFixture[str]) -> None:
    make_images(Path("photos"), "a.jpg", "deep/b.jpg", "c.jpg")
    Path("one.csv").write_text("image,cat\na,1\nB.JPG,0\n")
    Path("two.csv").write_text("image,dog\nphotos/a.jpg,1\ndeep\\b.jpg,1\nc.jpg,0\nz.jpg,1\n")
    run("merge", "one.csv", "two.csv", "-o", "out.csv")
    assert "such as 'a' and 'photos/a.jpg'; if they are the same image" in capsys.readouterr().out
    run("merge", "one.csv", "two.csv", "-o", "out.csv", "--images", "photos")
    output = capsys.readouterr().out
    assert (
        "one.csv: files of images: 2 images renamed (1 found without suffix, 1 found in another"
        in output
    )
    assert "1 image without a file" in output
    table = read_labels("out.csv")
    assert list(table.ids) == ["a.jpg", "deep/b.jpg", "c.jpg", "z.jpg"]
    assert table.dense().tolist() == [[1, 1], [-1, 1], [0, -1], [0, 1]]


def test_rows_of_one_file_become_one(capsys: pytest.CaptureFixture[str]) -> None:
    make_images(Path("photos"), "a.jpg", "b.jpg")
    Path("t.csv").write_text("image,cat,dog\na.jpg,1,\nphotos/a.jpg,,0\nb,0,\na,,0\n")
    run("inspect", "t.csv", "--images", "photos")
    output = capsys.readouterr().out
    assert "image files in photos: 2 found" in output
    assert (
        "with several names in the label file: 1 (such as a.jpg: 'a.jpg', 'photos/a.jpg'" in output
    )
    run("convert", "t.csv", "out.csv", "--images", "photos")
    assert "2 rows joined with others of the same file" in capsys.readouterr().out
    table = read_labels("out.csv")
    assert list(table.ids) == ["a.jpg", "b.jpg"]
    assert table.dense().tolist() == [[1, -1], [-1, 0]]


def test_rows_of_one_file_that_disagree() -> None:
    make_images(Path("photos"), "a.jpg")
    table = LabelTable(["a", "a.jpg"], ["cat"], [[1], [-1]])
    with pytest.raises(InputError, match=r"image 'a.jpg', class 'cat'"):
        name_like_files(table, ImageFiles("photos"))
    found = name_like_files(table, ImageFiles("photos"), "theirs")
    assert found.table.dense().tolist() == [[-1]]
    assert (found.joined, found.missing) == (1, 0)


def test_corrections_of_images_by_other_names() -> None:
    make_images(Path("photos"), "a.jpg", "x.jpg")
    Path("c.csv").write_text("image,class,value\na,cat,0\nphotos/x.jpg,Dog,\n")
    words = ("merge", "wide.csv", "c.csv", "--corrections", "-o", "out.csv")
    run(*words, code=2)
    run(*words, "--images", "photos")
    assert read_labels("out.csv").dense().tolist() == [[-1, -1], [0, 0]]
