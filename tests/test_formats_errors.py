"""Bad label files raise an error that names the file, the location and the fix."""

import codecs
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partlabel import LabelTable, read_labels, write_labels
from partlabel.base.errors import InputError
from partlabel.labels.arrow_size import expanded_size
from partlabel.labels.formats import FORMATS, read
from partlabel.labels.formats.source import LONGEST_LINE
from partlabel.labels.storage import check


def error_of(path: Path, content: bytes | str, format: str | None = None) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        read_labels(path, format, unlisted="unknown")
    assert str(path) in str(caught.value)
    return str(caught.value).replace(str(path), "FILE")


CSV = [
    ("image,cat\na,1\nb,2\n", "FILE, line 3, column 'cat': '2' is not allowed; write 1"),
    ("image,cat\na,-1\n", "line 2, column 'cat': '-1' is not allowed"),
    ("image,cat\n\n\na,1\n\nb,maybe\n", "FILE, line 6, column 'cat': 'maybe' is not allowed"),
    ('image,cat\n"x\ny",1\nb,1\nc,x\n', "FILE, line 5, column 'cat': 'x' is not allowed"),
    ("image,cat,dog\na,1\n", "FILE, line 2: 2 fields, but the header has 3"),
    ("image,cat\na,1\nb,1,1\n", "FILE, line 3: 3 fields, but the header has 2"),
    ("image,cat,cat\na,1,1\n", "the column 'cat' occurs twice (columns 2 and 3)"),
    ("image,cat,\na,1,1\n", "line 1: column 3 has no name"),
    ("image,cat\n,1\n", "line 2, column 'image': '' is not allowed; an image needs a name"),
    ("image,cat\na,1\na,0\n", "image 'a', class 'cat': line 2 (present) and line 3 (absent)"),
    ("image,split,cat\na,x,1\na,y,1\n", "line 2: image 'a' is in two splits"),
    ("image\na\n", "matches no label format"),
    ("image,cat\na\0,1\n", "FILE, line 2: has a NUL byte"),
    ("", "the file is empty"),
    ("\n\n", "the file is empty"),
    (
        "name;cat\na;1\n",
        "(its header is 'name, cat'); if 'name' is the image, rename it to 'image', or use",
    ),
    (",image,cat\n0,a,1\n", "write it without an index"),
    ("image,cat\na,cat\n", "if the column holds tags, call it 'tag' instead of 'cat'"),
    ("image,cat\na,1\nb,x\n", "if the column is not a class, leave it out with --ignore-columns"),
    ("image,cat,dog\na,1,5\nb,7,1\n", "line 2, column 'dog': '5'"),
    ('image,cat\n"a,1\n', "line 2: 1 field, but the header has 2"),
    ('image,"c\nd"\na,1\n', "control characters or line breaks"),
    (
        "image,class,value\na,1,1\n",
        "choose one with --format csv or --format cells",
    ),
    ("image,class,value\n", "several formats"),
]


@pytest.mark.parametrize(("content", "message"), CSV)
def test_csv(content: str, message: str, tmp_path: Path) -> None:
    assert message in error_of(tmp_path / "labels.csv", content)


@pytest.mark.parametrize("first", ["image", "filename", "File", "path", "photo"])
def test_other_words_for_labels_and_for_the_image_column(first: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        f"{first},split,cat,dog\na.jpg,train,yes,No\nb.jpg,test,TRUE,\nc.jpg,,0,false\n"
    )
    table = read_labels(path)
    assert table.dense().tolist() == [[1, -1], [1, 0], [-1, -1]]
    assert list(table.ids) == ["a.jpg", "b.jpg", "c.jpg"]
    assert table.splits is not None


@pytest.mark.parametrize(
    "content",
    [
        "filename,width,note\na.jpg,640,sunny\n",
        "filename,width,height\n",
        "file,class,value\na.jpg,1,1\n",
    ],
)
def test_other_tables_with_a_file_column_match_no_format(content: str, tmp_path: Path) -> None:
    assert "matches no label format" in error_of(tmp_path / "t.csv", content)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (",x,1,", "line 2, column 'image': '' is not allowed; an image needs a name"),
        ("a,,1,", "line 2, column 'class': '' is not allowed; a class needs a name"),
        (",,,", "line 2, column 'image'"),
        ("a,x,1,often", "line 2, column 'asked': 'often' is not allowed; write random, chosen"),
    ],
)
def test_rows_of_cells_without_names(row: str, message: str, tmp_path: Path) -> None:
    assert message in error_of(tmp_path / "t.csv", f"image,class,value,asked\n{row}\nb,y,0,\n")


def test_cells_of_an_image_in_two_splits(tmp_path: Path) -> None:
    text = "image,class,value,split\na,x,1,train\na,y,1,\na,z,1,test\n"
    assert "line 2: image 'a' is in two splits" in error_of(tmp_path / "t.csv", text)


def test_classes_called_yes_and_no(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,class,value\na,yes,1\na,no,0\n")
    table = read_labels(tmp_path / "t.csv")
    assert list(table.classes) == ["yes", "no"]
    assert table.dense().tolist() == [[1, -1]]


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    content = 'image,cat\r\n\r\n"x\r\ny",1\r\n\r\nb,so\r\n'
    assert "line 6, column 'cat': 'so'" in error_of(tmp_path / "t", content, "csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,class,value\na,cat,2\n", "line 2, column 'value': '2'"),
        ("image,class,value,score\na,cat,1,1.5\n", "column 'score': '1.5' is not allowed"),
        ("image,class,value,source\na,cat,1,god\n", "'god' is not allowed; write human or model"),
        ("image,class,value\na,,1\n", "a class needs a name"),
        ("image,class,value\na,cat,1\na,cat,0\n", "line 2 (present) and line 3 (absent)"),
        ("image,value\na,1\n", "the column 'class' is missing"),
    ],
)
def test_cells(content: str, message: str, tmp_path: Path) -> None:
    assert message in error_of(tmp_path / "labels.csv", content, "cells")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("ImageID,LabelName,Confidence\na,x,\n", "column 'Confidence': '' is not allowed"),
        ("ImageID,LabelName,Confidence\na,x, \n", "column 'Confidence': ' ' is not allowed"),
        ("ImageID,LabelName,Confidence\na,x,-1\n", "a number from 0 to 1"),
        ("ImageID,LabelName,Confidence\na,x,nan\n", "a number from 0 to 1"),
        ("ImageID,LabelName,Confidence\na,x,0_1\n", "'0_1' is not allowed"),
        ("ImageID,LabelName,Confidence\na,x,\u0661\n", "a number from 0 to 1"),
        ("ImageID,LabelName\na,x\n", "'Confidence' is missing"),
    ],
)
def test_open_images(content: str, message: str, tmp_path: Path) -> None:
    assert message in error_of(tmp_path / "labels.csv", content, "open-images")


def coco(**changes: object) -> str:
    document = {
        "images": [{"id": 1, "file_name": "a"}],
        "categories": [{"id": 1, "name": "x"}],
        "annotations": [{"image_id": 1, "category_id": 1}],
    }
    return json.dumps(document | changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "FILE, line 1, column 2: not valid JSON"),
        ("[1, 2]", "matches no label format"),
        (b'{"a": "\xff"}', "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"images": [], "annotations": [], "categories": 3}', "the document.categories"),
        (coco(images=[3]), "images[0]: expected an object"),
        (coco(images=[{"file_name": "a"}]), "images[0]: 'id' is missing"),
        (coco(images=[{"id": 1}]), "images[0]: 'file_name' is missing"),
        (coco(images=[{"id": True, "file_name": "a"}]), "images[0].id: expected a whole number"),
        (coco(images=[{"id": 1, "file_name": "a"}] * 2), "the image 'a' occurs twice"),
        (coco(categories=[{"id": 1, "name": 5}]), "categories[0].name: expected a text, found 5"),
        (coco(annotations=[{"image_id": 9, "category_id": 1}]), "there is no image with id 9"),
        (coco(annotations=[{"image_id": 1, "category_id": 9}]), "no category with id 9"),
        (coco(annotations=[{"image_id": [], "category_id": 9}]), "annotations[0].image_id"),
        (coco(images=[{"id": 1, "file_name": "\ud800"}]), "names must be valid text"),
    ],
)
def test_json(content: bytes | str, message: str, tmp_path: Path) -> None:
    assert message in error_of(tmp_path / "labels.json", content)


def test_lvis_contradiction(tmp_path: Path) -> None:
    content = coco(images=[{"id": 1, "file_name": "a", "neg_category_ids": [1]}])
    message = error_of(tmp_path / "labels.json", content)
    assert "annotations[0] (present) and images[0].neg_category_ids (absent)" in message


def test_label_studio(tmp_path: Path) -> None:
    result = {"from_name": "x", "type": "choices", "value": {"choices": ["maybe"]}}
    task = {"data": {"image": "a"}, "annotations": [{"result": [result]}]}
    message = error_of(tmp_path / "t.json", json.dumps([task]))
    assert "task [0].annotations[0]: the choice for 'x' is ['maybe']" in message
    assert "task [0].data: 'image' is missing" in error_of(tmp_path / "t.json", '[{"data": {}}]')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"file_name": "a", "x": 1}\n{"file_name": "b", "x": 2}\n', "line 2, column 'x': '2'"),
        ('{"file_name": "a", "x": "a cat"}\n', "if the column holds tags, call it 'tag'"),
        ('{"file_name": "a", "x": "a cat", "y": 1}\n', "--ignore-columns x"),
        ('{"file_name": "a", "x": 1}\n[1]\n', "line 2: expected a JSON object"),
        ('{"file_name": "a", "x": 1}\n{"file_name"\n', "line 2: not valid JSON"),
        ('{"file_name": null, "x": 1}\n', "an image needs a name"),
        ('{"file_name": "a", "x": 1, "x": 0}\n', "line 1: not valid JSON: 'x' occurs twice"),
        ('{"name": "a", "x": 1}\n', "no column is called 'file_name'"),
    ],
)
def test_json_lines(content: str, message: str, tmp_path: Path) -> None:
    assert message in error_of(tmp_path / "metadata.jsonl", content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<annotation>", "not a readable XML file"),
        ("<a/>", "the root of a VOC file is <annotation>"),
        ("<annotation><object/></annotation>", "object 1 has no <name>"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotation/>', "declares entities"),
        ('<?xml version="1.0" encoding="nonsense"?><annotation/>', "not a readable XML file"),
    ],
)
def test_voc(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(content)
    with pytest.raises(InputError, match=r"a\.xml") as caught:
        read_labels(tmp_path, unlisted="unknown")
    assert message in str(caught.value)


def test_folders_without_labels(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="matches no label format"):
        read_labels(tmp_path)
    for format in FORMATS:
        with pytest.raises(InputError):
            read_labels(tmp_path, format, unlisted="unknown")


def test_wrong_paths(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", "a\0b", "x" * 5000):
        with pytest.raises(InputError):
            read_labels(path)
    (tmp_path / "t").write_text("x")
    with pytest.raises(InputError, match="did you mean 'open-images'"):
        read_labels(tmp_path / "t", "openimages")


@pytest.mark.filterwarnings("ignore:.*read as Latin-1")
def test_unusual_but_valid_files(tmp_path: Path) -> None:
    expected = LabelTable(["a,b.jpg", "é.jpg"], ["cat", "dog"], [[1, 0], [-1, 1]])
    text = 'image,cat,dog\n"a,b.jpg",1,\né.jpg,0,1\n'
    for content in (
        text.encode(),
        codecs.BOM_UTF8 + text.encode(),
        text.replace("\n", "\r\n").encode(),
        text.replace("\n", "\r").encode(),
        text.encode("latin-1"),
        text.encode("utf-16"),
        text.rstrip("\n").encode(),
        ("\n" + text.replace("\n", "\n\n")).encode(),
        text.replace(",1,", ",1.0,")
        .replace(",0,1", ', "0.0" ,1')
        .replace(' "0.0" ', "0.0")
        .encode(),
        text.replace(",", ";").replace("a;b", "a,b").encode(),
        ("\n" + text.replace(",", ";").replace("a;b", "a,b")).encode(),
        text.replace(",", "\t").replace("a\tb", "a,b").encode(),
        text.replace("image,cat,dog", "Image, cat ,dog").encode(),
        text.replace(",1,\n", ",1,NaN\n").encode(),
    ):
        (tmp_path / "t.csv").write_bytes(content)
        assert read_labels(tmp_path / "t.csv") == expected, content
    assert read(tmp_path / "t.csv").notes.remarks == []
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    assert read(tmp_path / "t.csv").notes.remarks == ["not UTF-8, read as Latin-1"]


def test_an_image_that_occurs_twice(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,cat,dog\na,1,\nb,1,1\na,1,0\n")
    reading = read(tmp_path / "t.csv")
    assert reading.table.dense().tolist() == [[1, -1], [1, 1]]
    assert reading.notes.repeated == ["a"]
    (tmp_path / "t.csv").write_text("image,cat,dog\na,1,\nb,1,1\na,0,0\n")
    reading = read(tmp_path / "t.csv", strict=False)
    assert reading.table.dense().tolist() == [[0, -1], [1, 1]]
    assert [str(c) for c in reading.notes.contradictions] == [
        "image 'a', class 'cat': line 2 (present) and line 4 (absent) contradict each other"
    ]


def test_a_machine_score_and_a_verified_label_of_the_same_cell(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "ImageID,Source,LabelName,Confidence\na,machine,x,0.75\na,verification,x,1\n"
    )
    reading = read(tmp_path / "t.csv")
    assert reading.table.dense().tolist() == [[1]]
    assert reading.table.scores().tolist() == [[0.75]]
    assert reading.notes.repeated == []


def test_separators_around_a_number_are_spaces(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("ImageID,LabelName,Confidence\na,x,0.25\x1e\na,y,1\x1e\n")
    table = read_labels(tmp_path / "t.csv")
    assert table.dense().tolist() == [[0, 1]]
    assert table.scores()[0, 0] == 0.25


def test_scores_close_to_0_and_1_are_not_labels(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = "".join(
        f"a,machine,{name},{score}\n"
        for name, score in zip("xyz", ("0.99999999999", "1e-50", "1e-400"), strict=True)
    )
    path.write_text("ImageID,Source,LabelName,Confidence\n" + lines)
    table = read_labels(path)
    assert table.known == 0
    assert ((table.scores() > 0) & (table.scores() < 1)).all()
    write_labels(table, tmp_path / "again.csv", "open-images")
    assert read_labels(tmp_path / "again.csv") == table


def test_an_image_in_two_splits(tmp_path: Path) -> None:
    tasks = [{"data": {"image": "a", "split": split}} for split in ("train", "test")]
    assert "is in two splits" in error_of(tmp_path / "t.json", json.dumps(tasks))
    for name in ("Annotations", "ImageSets/Main"):
        (tmp_path / "voc" / name).mkdir(parents=True)
    for stem in "123":
        (tmp_path / "voc" / "Annotations" / f"{stem}.xml").write_text("<annotation/>")
    lists = tmp_path / "voc" / "ImageSets" / "Main"
    (lists / "train.txt").write_text("1\n2\n")
    (lists / "debug.txt").write_text("1\n")
    assert read_labels(tmp_path / "voc", unlisted="unknown").splits == ["train", "train", ""]
    (lists / "more.txt").write_text("2\n3\n")
    with pytest.raises(InputError, match=r"image '2' is in train\.txt and more\.txt"):
        read_labels(tmp_path / "voc", unlisted="unknown")


def test_many_contradictions_are_found_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{i},{value}\n" for i in range(3000) for value in (1, 0)]
    path.write_text("image,cat\n" + "".join(rows))
    contradictions = read(path, strict=False).notes.contradictions
    assert len(contradictions) == 3000
    assert contradictions[-1].where == ("line 6,000 (present)", "line 6,001 (absent)")


def test_an_endless_line_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with path.open("wb") as stream:
        stream.write(b"image,cat\na,1\n" + b"x" * (LONGEST_LINE * 2 + 1))
        stream.truncate(2 << 30)  # a sparse file of two gigabytes
    with pytest.raises(InputError, match="a line is longer than 16 MiB"):
        read_labels(path)


def test_a_damaged_saved_table_is_an_error(tmp_path: Path) -> None:
    table = LabelTable(["a", "b"], ["x", "y"], [[1, -1], [0, 1]])
    cells = table.cells
    cells.columns[:] = 7
    LabelTable.from_cells(table.ids, table.classes, cells, check=False).save(tmp_path / "t")
    with pytest.raises(InputError, match="damaged"):
        read_labels(tmp_path / "t")
    cells.columns[:] = [0, 1, 1]
    cells.starts[:] = np.array([0, 5, 3])
    damaged = LabelTable.from_cells(table.ids, table.classes, cells, check=False)
    with pytest.raises(InputError, match="damaged"):
        check(damaged, "t")


SAMPLES = {
    "csv": b"image,split,cat,dog\na.jpg,train,1,0\nb.jpg,val,,1\n",
    "cells": b"image,class,value,score,source\na,cat,1,0.5,model\nb,dog,,0.1,\n",
    "tags": b"image,split,tag\na.jpg,train,cat\na.jpg,train,dog\nb.jpg,val,\n",
    "lists": b"image,tags,by\na.jpg,cat;dog,x\nb.jpg,,y\n",
    "lists-json": b'image,tags\na.jpg,"[""cat"", ""dog""]"\nb.jpg,[]\n',
    "lists-jsonl": b'{"image": "a", "labels": ["cat", "dog"]}\n{"image": "b", "labels": []}\n',
    "names": b"image\na.jpg\nb.png\n",
    "cvat": b'<annotations><image id="0" name="a"><tag label="x"/></image></annotations>',
    "open-images": b"ImageID,Source,LabelName,Confidence\na,machine,/m/1,0.3\nb,v,/m/2,1\n",
    "coco": coco().encode(),
    "lvis": coco(images=[{"id": 1, "file_name": "a", "neg_category_ids": []}]).encode(),
    "label-studio": b'[{"data": {"image": "a"}, "annotations": [{"result": []}]}]',
    "hf": b'{"file_name": "a", "cat": 1, "dog": null}\n{"file_name": "b", "cat": 0}\n',
    "chexpert": b"Path,Sex,Edema,Cardio\na,F,1.0,-1.0\nb,M,,0.0\n",
}


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """A valid file with some bytes removed, repeated, or replaced."""
    format = draw(st.sampled_from(sorted(SAMPLES)))
    content = bytearray(SAMPLES[format])
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 12)))
        special = st.sampled_from(
            [b"", b"\0", b'"', b"\n", b",", b"\xff", b"[", b"}", b"1", b"\r", b"1e999"]
        )
        content[start:end] = draw(
            st.one_of(special, st.binary(max_size=4), st.just(bytes(content[start:end] * 2)))
        )
    return format.split("-json")[0], bytes(content)


@pytest.mark.filterwarnings("ignore:.*read as Latin-1")
@given(mutated(), st.booleans())
@settings(max_examples=600, deadline=None)
def test_fuzzed_files_are_read_or_an_input_error(case: tuple[str, bytes], forced: bool) -> None:
    format, content = case
    read_or_input_error(content, format if forced else None)


@pytest.mark.filterwarnings("ignore:.*read as Latin-1")
@given(st.binary(max_size=200), st.sampled_from([None, *FORMATS]))
@settings(max_examples=400, deadline=None)
def test_any_bytes_are_read_or_an_input_error(content: bytes, format: str | None) -> None:
    read_or_input_error(content, format)


@pytest.mark.parametrize("format", ["arrow", "cells"])
def test_fuzzed_binary_files_are_read_or_an_input_error(format: str, tmp_path: Path) -> None:
    path = tmp_path / ("t.arrow" if format == "arrow" else "t.parquet")
    write_labels(LabelTable(["a", "b"], ["x", "y"], [[1, -1], [1, 1]]), path, format)
    good = path.read_bytes()

    @given(st.integers(0, len(good) - 1), st.binary(min_size=1, max_size=3))
    @settings(max_examples=300, deadline=None)
    def try_change(start: int, change: bytes) -> None:
        read_or_input_error(good[:start] + change + good[start + len(change) :], None)
        read_or_input_error(good[:start], format)

    try_change()


def read_or_input_error(content: bytes, format: str | None) -> None:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"partlabel-fuzz-{os.getpid()}"
    path.write_bytes(content)
    message = None
    try:
        table = read_labels(path, format, unlisted="unknown")
    except InputError as error:
        message = str(error)
    finally:
        path.unlink()
    if message is None:
        assert table.dense().shape == table.shape
    else:
        assert str(path) in message


def test_a_small_file_with_very_many_rows_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are counted before it is read, against the memory of the computer."""
    path, rows = tmp_path / "bomb.parquet", 1_000_000
    same = pa.array(np.zeros(rows, dtype=np.int32))
    columns = {
        name: pa.array([value]).take(same) for name, value in (("image", "a"), ("class", "c"))
    }
    pq.write_table(pa.table({**columns, "value": same}), path)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr("partlabel.base.allocation.physical_memory", lambda: 100_000_000)
    with pytest.raises(InputError, match=r"1,000,000 rows x 3 columns need about 96 MB.* 50 MB"):
        read_labels(path)


def test_a_small_file_with_long_texts_is_measured_or_kept_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, same = tmp_path / "t.parquet", pa.array(np.zeros(10_000, dtype=np.int32))
    one_text = pa.DictionaryArray.from_arrays(same, pa.array(["c" * 10_000]))
    images = pa.array([f"image {i}" for i in range(10_000)])
    pq.write_table(pa.table({"image": images, "class": one_text, "value": same}), path)
    before = pa.default_memory_pool().max_memory()
    assert read_labels(path).shape == (10_000, 1)
    assert pa.default_memory_pool().max_memory() < before + 50_000_000  # not 100 MB
    texts = pa.array([str(i) * 1000 for i in range(1000)])
    table = pa.table({"image": texts, "class": texts, "value": same[:1000]})
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 500_000
    monkeypatch.setattr("partlabel.base.allocation.physical_memory", lambda: 4_000_000)
    with pytest.raises(InputError, match=r"need about .* MB, and the limit .* 2 MB"):
        read_labels(path)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_arrow_file_is_measured_before_it_is_read(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, images = tmp_path / "t.arrow", 200_000
    ids = [f"{i:06}" for i in range(images)]
    table = LabelTable(ids, ["c"], np.ones((images, 1), np.int8), splits=["a"] * images)
    table.save(path)
    batch = pa.ipc.open_file(path).get_batch(0)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema, options=options) as writer,
    ):
        writer.write_batch(batch)
    assert path.stat().st_size < batch.nbytes / 2
    assert batch.nbytes <= expanded_size(path) < batch.nbytes * 1.01  # buffers are padded
    assert read_labels(path) == table
    monkeypatch.setattr("partlabel.base.allocation.physical_memory", lambda: 2_000_000)
    with pytest.raises(InputError, match=r"t\.arrow: its compressed columns need .*the limit"):
        read_labels(path)
    table.save(path)
    assert expanded_size(path) == 0
    assert read_labels(path) == table  # mapped, not expanded


def test_damaged_headers_of_an_arrow_file_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    LabelTable(["a", "b"], ["c"], [[1], [-1]], splits=["x", "y"]).save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 3):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            assert expanded_size(path) < 2**63 * 100
        except ValueError as error:
            assert str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("photo,cat,comment\na,1,nice\n", "left out with --ignore-columns comment"),
        ("name,cat,comment\na,1,nice\n", "or use --format csv --ignore-columns comment"),
        (
            "name,cat,cat\na,x,y\n",
            "if 'name' is the image, rename it to 'image', and call a column",
        ),
        ("by,image,cat\nAnn,a.jpg,1\n", "leave out those before it with --ignore-columns by"),
        ("cat,image\n1,a.jpg\n", "the column 'image' must be the first; move it there"),
        ("a.jpg,cat\nb.jpg,dog\n", "it seems to have no header"),
        ("who,x,y\nAnn,a.jpg,cat\n", "rename the column 'x', which seems to hold the images"),
        ("url,tag\na,cat\n", "if 'url' is the image, rename it to 'image'"),
        ("image,one,two\na,cat,dog\n", "if these columns hold tags, write one row per tag"),
        ("image,animal\na,cat;dog\n", "call it 'tags' instead of 'animal'"),
        ("file,width\na.jpg,640\n", "call a column of tags 'tag'"),
    ],
)
def test_the_column_that_is_the_problem_is_named(
    content: str, message: str, tmp_path: Path
) -> None:
    assert message in error_of(tmp_path / "t.csv", content)


@pytest.mark.parametrize("first", ["image_id", "IMG", "id", "filepath"])
def test_a_column_of_images_has_any_usual_name(first: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{first},cat,place\na,,x\nb,1,y\n")
    table = read_labels(path, ignore_columns=["place"])
    assert list(table.ids) == ["a", "b"]
    assert table.dense().tolist() == [[0], [1]]


@pytest.mark.parametrize("name", ["t.xlsx", "t.XLS", "t.xlsx#sheet"])
@pytest.mark.parametrize("format", ["csv", None])
def test_excel_files_are_not_written(name: str, format: str | None, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Excel files can only be read"):
        write_labels(LabelTable(["a"], ["x"], [[1]]), tmp_path / name, format)
    assert not list(tmp_path.iterdir())
