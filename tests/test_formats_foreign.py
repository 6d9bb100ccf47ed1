"""Excel sheets, CVAT files and datasets on disk: files that other programs write."""

import datetime
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from partlabel import read_labels
from partlabel.base.errors import InputError
from partlabel.labels.formats import read, spreadsheet
from sheets import sheet_xml, write_xlsx

WIDE: list[list[object]] = [["image", "cat", "dog"], ["a.jpg", 1, 0], [], ["b.jpg", True, None]]
TAGS: list[list[object]] = [["image", "tag"], ["a.jpg", "cat"], ["a.jpg", "dog"], ["b.jpg", "cat"]]


def error_of(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_labels(path, **options)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_sheets_are_read_as_text_tables_are(tmp_path: Path) -> None:
    sheets = {"Labels": sheet_xml(WIDE), "my tags": sheet_xml(TAGS)}
    path = write_xlsx(tmp_path / "t.xlsx", sheets)
    reading = read(path)
    assert reading.notes.format == "csv"
    assert reading.notes.remarks == ["read from the sheet 'Labels' of 2"]
    assert reading.table.dense().tolist() == [[1, -1], [1, 0]]
    reading = read(f"{path}#my tags", unlisted="unknown")
    assert reading.notes.format == "tags"
    assert reading.table.dense().tolist() == [[1, 1], [1, 0]]
    assert "there is no sheet 'labels'; did you mean" in error_of(Path(f"{path}#labels"))
    (tmp_path / "t.csv").write_text("image,cat\na,1\n")
    assert "it has no sheets" in error_of(Path(f"{tmp_path / 't.csv'}#one"))


def test_other_sheets_are_pointed_out(tmp_path: Path) -> None:
    labels = sheet_xml([["image", "cat"], ["a.jpg", 1]])
    path = write_xlsx(tmp_path / "a.xlsx", {"Notes": sheet_xml([["hello"]]), "Labels": labels})
    with pytest.raises(InputError, match=r"has 2 sheets, and .*a\.xlsx#SHEET is another one"):
        read_labels(path)
    assert list(read_labels(f"{path}#Labels").classes) == ["cat"]


def test_locations_in_a_sheet_are_rows(tmp_path: Path) -> None:
    rows = [*WIDE, ["c.jpg", 2, 0]]
    path = write_xlsx(tmp_path / "t.xlsx", {"s": sheet_xml(rows)})
    assert "row 5, column 'cat': '2' is not allowed" in error_of(path)
    shifted: list[list[object]] = [[], [None, "image", "the\ncat"], [None, "a", 1]]
    path = write_xlsx(tmp_path / "t.xlsx", {"s": sheet_xml(shifted)})
    assert read_labels(path).classes == ["the cat"]


def test_formulas_and_merged_cells(tmp_path: Path) -> None:
    rows = [*WIDE, ["c.jpg", "=B2+1", 0]]
    message = error_of(write_xlsx(tmp_path / "t.xlsx", {"s": sheet_xml(rows)}))
    assert "has formulas (the first in cell B5); replace them by their values" in message
    message = error_of(write_xlsx(tmp_path / "t.xlsx", {"s": sheet_xml(TAGS, "A2:A3")}))
    assert "1 group of merged cells (the first at row 2, column 1); unmerge them" in message


def test_archives_that_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreadsheet, "LARGEST", 1 << 20)
    path = write_xlsx(tmp_path / "t.xlsx", {"s": sheet_xml(WIDE)}, {"xl/a.xml": b" " * (2 << 20)})
    assert path.stat().st_size < 10_000
    assert "is larger than 1 MiB when it is unpacked" in error_of(path)


def test_a_size_that_the_archive_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is declared smaller than it is does not reach the parser."""
    path = write_xlsx(tmp_path / "t.xlsx", {"s": sheet_xml(WIDE) + " " * 5_000_000})
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("xl/worksheets/sheet1.xml").file_size
    path.write_bytes(content.replace(size.to_bytes(4, "little"), (100).to_bytes(4, "little")))
    monkeypatch.setattr(spreadsheet, "LARGEST", 1 << 20)
    assert "cannot be read as an Excel file" in error_of(path)


def test_cells_far_apart(tmp_path: Path) -> None:
    far = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    text = sheet_xml(WIDE).replace("</sheetData>", far)
    message = error_of(write_xlsx(tmp_path / "t.xlsx", {"s": text}))
    assert "spread over 1,048,576 rows x 16,384 columns" in message


def test_archives_that_are_no_sheets(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("annotations.xml", "<annotations/>")
    assert "is a zip archive, but not an Excel file" in error_of(tmp_path / "t.zip")
    (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04 and more")
    assert "cannot be read as an Excel file" in error_of(tmp_path / "t.xlsx")
    path = write_xlsx(tmp_path / "t.xlsx", {"s": "<worksheet>"})
    assert "the sheet 's' cannot be read" in error_of(path) or "empty" in error_of(path)
    assert "empty" in error_of(write_xlsx(tmp_path / "t.xlsx", {"s": sheet_xml([])}))


def test_cell_values_as_text() -> None:
    values = (1.0, 0.5, True, "a\nb", datetime.date(2024, 1, 2), "")
    assert [spreadsheet._text(value) for value in values] == [
        "1",
        "0.5",
        "1",
        "a b",
        "2024-01-02",
        "",
    ]


CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version>
<meta><task><name>n</name><labels>
<label><name>zebra</name></label><label><name>cat</name></label></labels></task></meta>
<image id="0" name="a.jpg" width="4" height="4"><tag label="cat" source="manual"></tag>
<box label="zebra" xtl="1"><attribute name="x">y</attribute></box></image>
<image id="1" name="b.jpg"/></annotations>"""


def test_cvat(tmp_path: Path) -> None:
    path = tmp_path / "annotations.xml"
    path.write_text(CVAT)
    reading = read(path, unlisted="unknown")
    assert reading.notes.format == "cvat"
    assert reading.table.ids == ["a.jpg", "b.jpg"]
    assert reading.table.classes == ["zebra", "cat"]
    assert reading.table.dense().tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<annotations>", "not a readable XML file"),
        ("<annotations><track/></annotations>", "export the task as 'CVAT for images'"),
        ("<annotations><image/></annotations>", "image 1: has no attribute 'name'"),
        ('<annotations><image name="a"><tag/></image></annotations>', "no attribute 'label'"),
        ('<annotations><image name="a"/><image name="a"/></annotations>', "'a' occurs twice"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotations/>', "declares entities"),
        ("<other/>", "matches no label format"),
    ],
)
def test_cvat_errors(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.xml").write_text(content)
    assert message in error_of(tmp_path / "t.xml", unlisted="unknown")


def save(folder: Path, table: pa.Table, features: dict[str, Any], shards: int = 1) -> None:
    """Write a folder as ``save_to_disk`` does."""
    folder.mkdir(parents=True)
    files = []
    for number in range(shards):
        files.append(f"data-{number:05d}-of-{shards:05d}.arrow")
        part = table.slice(number * len(table) // shards, len(table) // shards)
        with (
            pa.OSFile(str(folder / files[-1]), "wb") as sink,
            pa.ipc.new_stream(sink, table.schema) as writer,
        ):
            writer.write_table(part)
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    state = {"_data_files": [{"filename": name} for name in files], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))


NAMES = {"names": ["zebra", "cat"], "_type": "ClassLabel"}
IMAGES = pa.array([{"bytes": b"x", "path": "a.jpg"}, {"bytes": b"y", "path": "b.jpg"}])


@pytest.mark.parametrize(
    "feature",
    [{"feature": NAMES, "_type": "Sequence"}, {"feature": NAMES, "_type": "List"}, [NAMES]],
)
def test_a_dataset_with_lists_of_class_labels(feature: Any, tmp_path: Path) -> None:
    table = pa.table({"image": IMAGES, "labels": pa.array([[1, 0], []], pa.list_(pa.int64()))})
    save(tmp_path / "d", table, {"image": {"_type": "Image"}, "labels": feature}, shards=2)
    reading = read(tmp_path / "d", unlisted="unknown")
    assert reading.notes.format == "hf-disk-lists"
    assert reading.table.ids == ["a.jpg", "b.jpg"]
    assert reading.table.classes == ["zebra", "cat"]
    assert reading.table.dense().tolist() == [[1, 1], [0, 0]]
    assert "--unlisted unknown" in error_of(tmp_path / "d")


def test_a_dataset_with_splits_and_one_class_label(tmp_path: Path) -> None:
    features = {"image": {"_type": "Image"}, "label": NAMES}
    for split, labels in (("train", [0, 1]), ("test", [-1, 1])):
        save(tmp_path / "d" / split, pa.table({"image": IMAGES, "label": labels}), features)
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    table = read_labels(tmp_path / "d", unlisted="absent")
    assert table.ids == ["train/a.jpg", "train/b.jpg", "test/a.jpg", "test/b.jpg"]
    assert table.splits == ["train", "train", "test", "test"]
    assert table.dense().tolist() == [[1, -1], [-1, 1], [-1, -1], [-1, 1]]


def test_a_dataset_with_a_column_per_class(tmp_path: Path) -> None:
    columns = {
        "file_name": ["a", "b"],
        "cat": pa.array([1, None], pa.int64()),
        "dog": [False, True],
        "by": ["x", "y"],
    }
    features = {name: {"dtype": "int64", "_type": "Value"} for name in columns}
    save(tmp_path / "d", pa.table(columns), features)
    reading = read(tmp_path / "d")
    assert reading.notes.format == "hf-disk"
    assert reading.notes.remarks == ["columns that are ignored: 'by'"]
    assert reading.table.dense().tolist() == [[1, -1], [0, 1]]
    assert read_labels(tmp_path / "d", ignore_columns=["cat"]).classes == ["dog"]


def test_damaged_datasets(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    table = pa.table({"image": IMAGES, "label": [0, 7]})
    save(folder, table, {"image": {"_type": "Image"}, "label": NAMES})
    assert "is not one of the 2 classes" in error_of(folder, unlisted="unknown")
    info = (folder / "dataset_info.json").read_text()
    (folder / "dataset_info.json").write_text(info.replace('"label"', '"tag"'))
    assert "have no column 'tag'" in error_of(folder, unlisted="unknown")
    (folder / "dataset_info.json").write_text(info)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "../secret.arrow"}]}')
    assert "no Arrow file '../secret.arrow'" in error_of(folder, unlisted="unknown")
    (folder / "state.json").unlink()
    next(folder.glob("*.arrow")).write_bytes(b"nonsense")
    assert "cannot be read as an Arrow stream" in error_of(folder, unlisted="unknown")
    (folder / "dataset_info.json").write_text("[]")
    assert "expected a JSON object" in error_of(folder, unlisted="unknown")
    (folder / "dataset_dict.json").write_text('{"splits": ["../other"]}')
    assert "no folder for the split" in error_of(folder, unlisted="unknown")
