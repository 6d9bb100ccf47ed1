"""Tags, lists of tags, folders, names: files that list what is in an image."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from partlabel import LabelTable, read_labels, write_labels
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.labels.formats import Reading, ReadOptions, packing, read, read_with


def reading_of(path: Path, content: str | bytes, **options: object) -> Reading:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_with(path, ReadOptions(**{"unlisted": "unknown", **options}))  # type: ignore[arg-type]


def error_of(path: Path, content: str | bytes, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        reading_of(path, content, **options)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("header", ["image,tag", "filename,label", "Photo,Class", "id,category"])
@pytest.mark.parametrize("mark", [",", "\t", ";"])
def test_one_row_per_tag(header: str, mark: str, tmp_path: Path) -> None:
    text = f"{header}\na.jpg,dog\na.jpg,cat\nb.jpg,cat\nc.jpg,\n"
    reading = reading_of(tmp_path / "t", text.replace(",", mark))
    assert reading.notes.format == "tags"
    assert reading.table.ids == ["a.jpg", "b.jpg", "c.jpg"]
    assert reading.table.classes == ["cat", "dog"]
    assert reading.table.dense().tolist() == [[1, 1], [1, 0], [0, 0]]
    absent = read_labels(tmp_path / "t", unlisted="absent")
    assert absent.dense().tolist() == [[1, 1], [1, -1], [-1, -1]]


LISTS = [
    "image,tags\na,cat;dog\nb,\nc,dog\n",
    "image,labels\na,cat|dog\nb,\nc, dog \n",
    'image,keywords\na,"cat, dog"\nb,\nc,dog\n',
    'image,categories\na,"[""cat"", ""dog""]"\nb,[]\nc,"[""dog""]"\n',
    "image;tags\na;dog,cat,dog\nb;\nc;dog\n",
    "image\ttags\na\tcat;dog\nb\t\nc\tdog\n",
    '{"image": "a", "tags": ["cat", "dog"]}\n{"image": "b", "tags": []}\n'
    '{"image": "c", "tags": ["dog"]}\n',
    '{"file_name": "a", "label": ["cat", "dog"]}\n\n{"file_name": "b"}\n'
    '{"file_name": "c", "label": "dog"}\n',
]


@pytest.mark.parametrize("content", LISTS)
def test_lists(content: str, tmp_path: Path) -> None:
    reading = reading_of(tmp_path / "t", content)
    assert reading.notes.format == "lists"
    expected = LabelTable(["a", "b", "c"], ["cat", "dog"], [[1, 1], [0, 0], [0, 1]])
    assert reading.table == expected


def test_the_separator_is_searched_in_the_whole_file(tmp_path: Path) -> None:
    rows = "".join(f"{i},cat\n" for i in range(1000))
    reading = reading_of(tmp_path / "t", f"image,labels\n{rows}z,cat;dog\n")
    assert reading.table.classes == ["cat", "dog"]


def test_tags_with_another_separator_are_mentioned(tmp_path: Path) -> None:
    reading = reading_of(tmp_path / "t", 'image,tags\na,"cat;bowl, wooden"\n')
    assert reading.table.classes == ["bowl, wooden", "cat"]
    assert any("'bowl, wooden'" in remark for remark in reading.notes.remarks)


AMBIGUOUS = [
    ("image,label\na,1\nb,0\n", "--format csv or --format tags"),
    ('image,label\na,"bowl, wooden"\nb,cat\n', "--format tags or --format lists"),
    ("image,tag\na,AC;DC\nb,cat\n", "--format tags or --format lists"),
    ("image,label\na,AC|DC\na,cat\n", "--format tags or --format lists"),
    ("image,tag,cat\na,dog,1\nb,cat,0\n", "--format csv or --format tags"),
    ("image,class,photographer\na,1,Ann\n", "--format csv or --format tags"),
]


@pytest.mark.parametrize(("content", "message"), AMBIGUOUS)
def test_an_ambiguous_table_is_an_error_with_the_candidates(
    content: str, message: str, tmp_path: Path
) -> None:
    assert message in error_of(tmp_path / "t", content)


def test_a_format_that_is_asked_for_decides(tmp_path: Path) -> None:
    text = 'image,label\na,"bowl, wooden"\nb,cat\n'
    assert reading_of(tmp_path / "t", text, format="tags").table.shape == (2, 2)
    assert reading_of(tmp_path / "t", text, format="lists").table.shape == (2, 3)


def test_a_class_called_label_stays_a_class(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("image,label,cat\na,1,0\nb,0,\n")
    assert read_labels(tmp_path / "t").dense().tolist() == [[1, -1], [-1, 0]]


def test_splits_and_other_columns(tmp_path: Path) -> None:
    text = "image,split,tag,by\na,train,cat,x\na,train,dog,y\nb,val,cat,x\n"
    reading = reading_of(tmp_path / "t", text)
    assert reading.table.splits == ["train", "val"]
    assert reading.notes.remarks == ["columns that are ignored: 'by'"]
    message = error_of(tmp_path / "t", text.replace("train,dog", "val,dog"))
    assert "image 'a' is in two splits" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,tag\n,cat\n", "line 2, column 'image': '' is not allowed; an image needs a name"),
        ("image,tag\na,cat,dog\n", "line 2: 3 fields, but the header has 2"),
        ("image,tags\na,['cat']\n", "write a JSON list of texts"),
        ("image,tags\na,[cat]\n", "write a JSON list of texts"),
        ("image,tags\na,[1]\n", "line 2, column 'tags': '[1]' is not allowed"),
        ("image,tag,label\na,cat,dog\n", "--ignore-columns label"),
        ('{"image": 3, "tags": []}\n', "line 1, 'image': expected a text, found 3"),
        ('{"image": "a", "tags": [3]}\n', "line 1, 'tags': expected a text, found 3"),
        ('{"image": "a", "tags": ["x"], "label": "y"}\n', "--ignore-columns tags"),
        ('{"image": "", "tags": ["x"]}\n', "an image needs a name"),
        ('{"image": "a", "tags": ["\\ud800"]}\n', "valid text"),
    ],
)
def test_errors(content: str, message: str, tmp_path: Path) -> None:
    forced = {"format": "tags"} if "tag,label" in content else {}
    assert message in error_of(tmp_path / "t", content, **forced)


def test_one_tag_per_image_proposes_unknown(tmp_path: Path) -> None:
    message = error_of(tmp_path / "t", "image,tag\na,cat\nb,dog\n", unlisted=None)
    assert "--unlisted unknown is the likely answer" in message
    message = error_of(tmp_path / "t", "image,tag\na,cat\na,dog\nb,dog\n", unlisted=None)
    assert "--unlisted unknown" in message
    assert "likely" not in message


def test_many_tags_that_occur_once(tmp_path: Path) -> None:
    rows = [f"i{i},common{i % 20}\n" for i in range(200)] + [f"i{i},rare{i}\n" for i in range(480)]
    text = "image,tag\n" + "".join(rows)
    message = error_of(tmp_path / "t", text)
    assert "480 of 500 classes occur in one image only ('rare0', 'rare1'" in message
    assert "--min-count 2" in message
    assert len(reading_of(tmp_path / "t", text, min_count=1).table.classes) == 500
    reading = reading_of(tmp_path / "t", text, min_count=2)
    assert reading.table.shape == (480, 20)
    assert "480 classes left out" in reading.notes.remarks[-1]
    remarks = read(tmp_path / "t", unlisted="unknown", strict=False).notes.remarks
    assert any("--min-count 2" in remark for remark in remarks)
    assert "leaves no class" in error_of(tmp_path / "t", text, min_count=1000)


def test_tags_that_differ_in_case_or_blanks_are_named(tmp_path: Path) -> None:
    with pytest.warns(PartlabelWarning, match="differ only in case: 'Cat' and 'cat'"):
        reading = reading_of(tmp_path / "t", "image,tag\na,cat\nb,Cat\nc,cat \n")
    assert reading.table.classes == ["Cat", "cat"]
    assert "blanks around tags are ignored: 'cat '" in reading.notes.remarks
    assert reading.table.dense().tolist() == [[0, 1], [1, 0], [0, 1]]


def test_images_without_tags_survive_a_round_trip(tmp_path: Path) -> None:
    table = LabelTable(["a", "b"], ["cat"], [[1], [0]], splits=["x", ""])
    for file, format in (("t.csv", "tags"), ("t.tsv", "lists"), ("t.jsonl.zst", "lists")):
        write_labels(table, tmp_path / file, format)
        assert read_labels(tmp_path / file, unlisted="unknown") == table


def test_lists_of_classes_with_separators_are_json(tmp_path: Path) -> None:
    table = LabelTable(["a", "b"], ["AC;DC", "cat"], [[1, 1], [0, 1]])
    write_labels(table, tmp_path / "t.csv", "lists")
    assert '"[""AC;DC"", ""cat""]"' in (tmp_path / "t.csv").read_text()
    assert read_labels(tmp_path / "t.csv", unlisted="unknown") == table


def test_writers_say_what_they_lose(tmp_path: Path) -> None:
    table = LabelTable(["a"], ["x", "y", "z"], [[1, -1, 0]], ["train"])
    for format in ("tags", "lists"):
        with pytest.warns(PartlabelWarning, match=r"between 1 absent label .* nor 2 classes"):
            write_labels(table, tmp_path / "t.csv", format)
    with pytest.warns(PartlabelWarning, match="2 labels, nor 3 classes, nor the splits"):
        write_labels(table, tmp_path / "t.txt")
    with pytest.warns(PartlabelWarning, match="nor the splits"):
        write_labels(table, tmp_path / "t.xml")
    for format in ("folders", "hf-disk", "hf-disk-lists"):
        with pytest.raises(InputError, match="can only be read"):
            write_labels(table, tmp_path / "new", format)
    for file, to in (("t.parquet.gz", None), ("t.arrow.zst", None), ("t.gz", "voc")):
        with pytest.raises(InputError, match="cannot be compressed"):
            write_labels(table, tmp_path / file, to)


def make_images(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def test_one_folder_per_class(tmp_path: Path) -> None:
    make_images(tmp_path, "cat/1.jpg", "dog/1.jpg", "dog/more/2.png", ".trash/cat/9.jpg")
    (tmp_path / "bird").mkdir()
    reading = read(tmp_path, unlisted="unknown")
    assert reading.notes.format == "folders"
    assert reading.table.ids == ["cat/1.jpg", "dog/1.jpg", "dog/more/2.png"]
    assert reading.table.classes == ["bird", "cat", "dog"]
    assert reading.table.dense().tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    with pytest.raises(InputError, match="--unlisted unknown is the likely answer"):
        read_labels(tmp_path)


def test_one_folder_per_split_and_class(tmp_path: Path) -> None:
    make_images(tmp_path, "train/cat/1.jpg", "train/dog/2.jpg", "val/cat/1.jpg")
    table = read_labels(tmp_path, unlisted="absent")
    assert table.ids == ["train/cat/1.jpg", "train/dog/2.jpg", "val/cat/1.jpg"]
    assert table.splits == ["train", "train", "val"]
    assert table.dense().tolist() == [[1, -1], [-1, 1], [1, -1]]


def test_an_image_outside_of_the_class_folders(tmp_path: Path) -> None:
    make_images(tmp_path, "cat/1.jpg", "2.jpg")
    with pytest.raises(InputError, match="matches no label format"):
        read_labels(tmp_path, unlisted="absent")
    with pytest.raises(InputError, match=r"'2.jpg' is in no class folder"):
        read_labels(tmp_path, "folders", unlisted="absent")


def test_names_add_images_to_a_merge(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("b.jpg\r\n\r\nc d.JPG\r\nb.jpg\r\n")
    (tmp_path / "t.csv").write_text("image,cat\na.jpg,1\n")
    reading = read(tmp_path / "names.txt")
    assert reading.notes.format == "names"
    assert reading.notes.repeated == ["b.jpg"]
    merged = read_labels(tmp_path / "t.csv").merge(reading.table)
    assert merged.ids == ["a.jpg", "b.jpg", "c d.JPG"]
    assert merged.dense().tolist() == [[1], [0], [0]]


def test_options_choose_columns_and_classes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('image,cat,"place, date",dog,by\na,1,Rome,,Ann\nb,0,Oslo,1,Bob\n')
    with pytest.raises(InputError, match="--ignore-columns '\"place, date\",by'"):
        read_labels(path)
    table = read_labels(path, ignore_columns=["place, date", "by"])
    assert table.dense().tolist() == [[1, 0], [-1, 1]]
    assert read_labels(path, only_classes=["dog"]).dense().tolist() == [[0], [1]]
    assert read_labels(path, only_classes=["dog", "cat"]).classes == ["cat", "dog"]
    for arguments, message in (
        ({"ignore_columns": ["bye"]}, "did you mean 'by'"),
        ({"only_classes": ["dgo"]}, "did you mean 'dog'"),
        ({"only_classes": "dog"}, "must be a list of names"),
        ({"min_count": 0}, "at least 1"),
        ({"ignore_columns": ["image", "cat", "place, date", "dog", "by"]}, "leaves no column"),
    ):
        with pytest.raises(InputError, match=message):
            read_labels(path, **arguments)


def test_options_apply_to_every_format(tmp_path: Path) -> None:
    table = LabelTable(["a", "b"], ["x", "y"], [[1, -1], [1, 1]])
    for file, format in (("t.parquet", "cells"), ("t.json", "lvis"), ("t.arrow", "arrow")):
        write_labels(table, tmp_path / file, format)
        assert read_labels(tmp_path / file, only_classes=["y"]).dense().tolist() == [[-1], [1]]
        assert read_labels(tmp_path / file, min_count=2).dense().tolist() == [[1], [1]]
    for file in ("t.json", "t.arrow"):
        with pytest.raises(InputError, match="has no columns"):
            read_labels(tmp_path / file, ignore_columns=["x"])
    write_labels(table, tmp_path / "t.jsonl")
    assert read_labels(tmp_path / "t.jsonl", ignore_columns=["x"]).classes == ["y"]
    write_labels(table, tmp_path / "metadata.parquet")
    assert read_labels(tmp_path / "metadata.parquet", ignore_columns=["x"]).classes == ["y"]


def test_contradictions_keep_their_lines_with_fewer_classes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,x,cat\na,1,1\na,,0\n")
    with pytest.raises(InputError, match=r"line 2 \(present\) and line 3 \(absent\)"):
        read_labels(tmp_path / "t.csv", only_classes=["cat"])


def test_cells_with_further_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,class,value,score,trained_on\na,cat,1,0.5,yes\n")
    reading = read(tmp_path / "t.csv")
    assert reading.notes.format == "cells"
    assert reading.notes.remarks == ["columns that are ignored: 'trained_on'"]


def test_compressed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"image,tag\na,cat\n"
    two_members = gzip.compress(text) + gzip.compress(b"b,dog\n")
    reading = reading_of(tmp_path / "t.csv.gz", two_members)
    assert reading.table.classes == ["cat", "dog"]
    assert reading.notes.remarks == ["unpacked from gzip"]
    message = error_of(tmp_path / "t.csv.gz", two_members[:-9])
    assert "cannot be unpacked as gzip" in message
    document = {
        "images": [{"id": 1, "file_name": "a"}],
        "categories": [{"id": 1, "name": "x"}],
        "annotations": [{"image_id": 1, "category_id": 1}],
    }
    packed = gzip.compress(json.dumps(document).encode())
    assert reading_of(tmp_path / "t.json.gz", packed).notes.format == "coco"
    monkeypatch.setattr(packing, "LARGEST", 1 << 20)
    bomb = gzip.compress(b"image,tag\n" + b"a,cat\n" * 1_000_000)
    assert len(bomb) < 20_000
    assert "when it is unpacked" in error_of(tmp_path / "t.csv.gz", bomb)
    assert "the file is empty" in error_of(tmp_path / "t.gz", gzip.compress(b""))


def test_written_archives_are_the_same_each_time(tmp_path: Path) -> None:
    table = LabelTable(["a"], ["x"], np.ones((1, 1), dtype=np.int8))
    for file in ("t.csv.gz", "t.csv.zst"):
        contents = []
        for _ in range(2):
            write_labels(table, tmp_path / file)
            contents.append((tmp_path / file).read_bytes())
        assert contents[0] == contents[1]
        assert read_labels(tmp_path / file) == table
