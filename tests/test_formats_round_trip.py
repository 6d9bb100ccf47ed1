"""Writing a table and reading it again gives the same table, if the format can hold it."""

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from partlabel import LabelTable, read_labels, write_labels
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.labels.formats import FORMATS
from tables import names, tables

_tagged = tables(values=(0, 1), unlabelled=False, in_order=True, splits=True)
_complete_tags = tables(values=(-1, 1), unlabelled=False, in_order=True, splits=True)
_without_classes = st.lists(names, max_size=6, unique=True).map(
    lambda ids: LabelTable(ids, [], np.zeros((len(ids), 0)))
)

# format, file name, the tables that the format can hold, arguments for reading
CASES: list[tuple[str, str, st.SearchStrategy[LabelTable], dict[str, Any]]] = [
    ("csv", "t.csv", tables(splits=True), {}),
    ("cells", "t.csv", tables(scores=True, origins=True, splits=True), {}),
    ("cells", "t.parquet", tables(scores=True, origins=True, splits=True), {}),
    ("tags", "t.csv", _tagged, {"unlisted": "unknown"}),
    ("tags", "t.tsv.gz", _complete_tags, {"unlisted": "absent"}),
    ("lists", "t.csv", _tagged, {"unlisted": "unknown"}),
    ("lists", "t.tsv.zst", _complete_tags, {"unlisted": "absent"}),
    ("lists", "t.jsonl", _tagged, {"unlisted": "unknown"}),
    ("lists", "t.jsonl.gz", _complete_tags, {"unlisted": "absent"}),
    ("names", "t.txt", _without_classes, {}),
    ("open-images", "t.csv", tables(unlabelled=False, in_order=True), {}),
    ("coco", "t.json", tables(values=(0, 1)), {"unlisted": "unknown"}),
    ("coco", "t.json", tables(values=(-1, 1)), {"unlisted": "absent"}),
    ("lvis", "t.json", tables(), {}),
    ("voc", "t", tables(values=(0, 1), unlabelled=False, in_order=True), {"unlisted": "unknown"}),
    ("voc", "t", tables(values=(-1, 1), unlabelled=False, in_order=True), {"unlisted": "absent"}),
    ("label-studio", "t.json", tables(unlabelled=False, in_order=True, splits=True), {}),
    ("cvat", "t.xml", tables(values=(0, 1)), {"unlisted": "unknown"}),
    ("cvat", "t.xml.gz", tables(values=(-1, 1)), {"unlisted": "absent"}),
    ("hf", "t.jsonl", tables(origins=True, splits=True), {}),
    ("hf", "t.csv", tables(origins=True, splits=True), {}),
    ("hf", "t.parquet", tables(origins=True, splits=True), {}),
    ("chexpert", "t.csv", tables(), {}),
    ("arrow", "t.arrow", tables(scores=True, origins=True, splits=True), {}),
]


def write_and_read(
    table: LabelTable, name: str, file: str, arguments: dict[str, Any]
) -> LabelTable:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            write_labels(table, path, name)
        return read_labels(path, name, **arguments)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[3]}")
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_round_trip(case: Any, data: st.DataObject) -> None:
    name, file, strategy, arguments = case
    table = data.draw(strategy)
    if name == "voc":
        # each image is a file there, and images are read in the order of the file names
        assume(len({Path(i).stem for i in table.ids}) == len(table))
        order = sorted(range(len(table)), key=lambda row: f"{Path(table.ids[row]).stem}.xml")
        table = table.subset(order)
    if name in ("voc", "tags", "lists"):
        present = (table.dense() == 1).any(axis=0)
        assume(present.all())
    if name == "hf" and ({"file_name", "split"} & set(table.classes) or not len(table)):
        return  # an error: see test_tables_that_cannot_be_written
    assert write_and_read(table, name, file, arguments) == table


def test_tables_that_cannot_be_written(tmp_path: Path) -> None:
    for name in ("split", "file_name"):
        with pytest.raises(InputError, match=f"no class can be called '{name}'"):
            write_labels(LabelTable(["a"], [name], [[1]]), tmp_path / "t.jsonl")
    with pytest.raises(InputError, match="without images"):
        write_labels(LabelTable([], ["x"], []), tmp_path / "t.jsonl")
    for format in ("csv", "chexpert", "hf"):
        with pytest.raises(InputError, match="without classes"):
            write_labels(LabelTable(["a"], [], np.zeros((1, 0))), tmp_path / "t.csv", format)
    assert list(tmp_path.iterdir()) == []


def test_a_lost_order_is_warned_about(tmp_path: Path) -> None:
    table = LabelTable(["b", "a"], ["zebra", "ant"], [[1, 1], [1, 1]])
    for format in ("open-images", "label-studio", "tags", "lists", "voc"):
        lost = warning_of(table, tmp_path / format, format)
        assert "the order of the classes" in lost
    assert "the order of the images" in lost


def test_a_tsv_file_has_tabs(tmp_path: Path) -> None:
    write_labels(full(), tmp_path / "t.tsv")
    assert (tmp_path / "t.tsv").read_text().startswith("image\tsplit\tcat\tdog\n")
    assert read_labels(tmp_path / "t.tsv") == full()


def test_every_format_has_a_case() -> None:
    writable = {name for name, format in FORMATS.items() if format.writable}
    assert {case[0] for case in CASES} == writable


def full() -> LabelTable:
    return LabelTable(
        ["a.jpg", "b.jpg"], ["cat", "dog"], [[1, -1], [-1, 1]], splits=["train", "test"]
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_the_format_is_detected_from_the_content(case: Any, tmp_path: Path) -> None:
    name, file, _, _ = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartlabelWarning)
        write_labels(full(), tmp_path / file, name)
    unlisted = "absent" if FORMATS[name].lists_only_present else None
    if name == "names":  # it holds no labels
        assert read_labels(tmp_path / file).ids == full().ids
        return
    assert np.array_equal(read_labels(tmp_path / file, unlisted=unlisted).dense(), full().dense())


@pytest.mark.parametrize("format", ["coco", "voc", "tags", "lists", "cvat"])
def test_positives_only_needs_unlisted(format: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartlabelWarning)
        write_labels(full(), tmp_path / "out", format)
    with pytest.raises(InputError, match="--unlisted unknown"):
        read_labels(tmp_path / "out")
    with pytest.raises(InputError, match="did you mean 'absent'"):
        read_labels(tmp_path / "out", unlisted="absnt")
    assert read_labels(tmp_path / "out", unlisted="absent").dense().tolist() == [[1, -1], [-1, 1]]
    assert read_labels(tmp_path / "out", unlisted="unknown").dense().tolist() == [[1, 0], [0, 1]]


def test_unlisted_absent_is_an_error_for_formats_that_list_every_label(tmp_path: Path) -> None:
    write_labels(full(), tmp_path / "t.csv")
    with pytest.raises(InputError, match="lists every label"):
        read_labels(tmp_path / "t.csv", unlisted="absent")
    assert read_labels(tmp_path / "t.csv", unlisted="unknown") == full()


def test_unlisted_absent_fills_long_formats(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "ImageID,Source,LabelName,Confidence\na,verification,x,1\nb,machine,y,0.5\n"
    )
    table = read_labels(tmp_path / "t.csv", unlisted="absent")
    assert table.dense().tolist() == [[1, -1], [-1, 0]]  # a cell with a score is listed
    assert table.scores()[1, 1] == 0.5


def warning_of(table: LabelTable, path: Path, format: str) -> str:
    with pytest.warns(PartlabelWarning) as caught:
        write_labels(table, path, format)
    return str(caught[0].message)


def test_writers_warn_about_lost_information(tmp_path: Path) -> None:
    table = LabelTable(["a", "b"], ["x", "y", "z"], [[1, -1, 0], [0, 0, 0]], ["train", ""])
    assert "between 1 absent label and 4 unknown" in warning_of(table, tmp_path / "t", "coco")
    assert "the splits" in warning_of(table, tmp_path / "t", "lvis")
    lost = warning_of(table, tmp_path / "t", "open-images")
    assert "1 class without entries" in lost
    assert "1 image without entries" in lost
    assert "2 classes" in warning_of(table, tmp_path / "voc", "voc")
    scored = read_cells(tmp_path, "image,class,value,score,source\na,x,1,0.9,model\na,y,,0.2,\n")
    for format in ("csv", "chexpert", "hf", "lvis", "label-studio"):
        path = tmp_path / f"out-{format}.csv"
        lost = warning_of(scored, path, format)
        assert "2 scores" in lost
        assert "model" in lost
    lost = warning_of(scored, tmp_path / "oi.csv", "open-images")
    assert "1 score" in lost  # the score of the unknown label is kept
    assert read_labels(tmp_path / "oi.csv").scores()[0, 1] == np.float32(0.2)


def read_cells(folder: Path, text: str) -> LabelTable:
    (folder / "in.csv").write_text(text)
    return read_labels(folder / "in.csv")


def test_cells_keep_value_score_and_source(tmp_path: Path) -> None:
    text = "image,class,value,score,source\na,x,1,0.9,model\na,y,,0.2,model\nb,x,0,,human\n"
    table = read_cells(tmp_path, text)
    write_labels(table, tmp_path / "out.csv", "cells")
    assert (tmp_path / "out.csv").read_text() == text


def test_cells_keep_images_and_classes_without_labels(tmp_path: Path) -> None:
    table = LabelTable(["b", "a"], ["zebra", "ant"], [[0, 0], [0, 1]], ["", "test"])
    write_labels(table, tmp_path / "t.csv", "cells")
    assert (tmp_path / "t.csv").read_text().splitlines() == [
        "image,class,value,score,source,split",
        ",zebra,,,,",
        ",ant,,,,",
        "b,,,,,",
        "a,ant,1,,human,test",
    ]
    assert read_labels(tmp_path / "t.csv") == table


def test_cells_keep_origins_and_questions(tmp_path: Path) -> None:
    text = (
        "image,class,value,score,source,origin,asked,split\n"
        "a,x,1,,human,north,random,train\na,y,0,,human,,chosen,train\nb,x,0,,human,south,,\n"
    )
    table = read_cells(tmp_path, text)
    assert table.origins == ["north", "south"]
    assert table.cells.asked_or_not().tolist() == [1, 2, 0]
    assert table.splits == ["train", ""]
    write_labels(table, tmp_path / "out.csv", "cells")
    assert (tmp_path / "out.csv").read_text() == text
    for format in ("csv", "open-images", "lvis"):
        lost = warning_of(table, tmp_path / f"{format}.out", format)
        assert "the origins of 2 labels" in lost
        assert "that 2 labels were asked for" in lost


def test_other_columns_of_cells_are_ignored_and_noted(tmp_path: Path) -> None:
    from partlabel.labels.formats import read

    (tmp_path / "t.csv").write_text("image,class,value,score,trained_on\na,x,1,0.5,yes\n")
    reading = read(tmp_path / "t.csv")
    assert (reading.notes.format, reading.table.dense().tolist()) == ("cells", [[1]])
    assert reading.notes.remarks == ["columns that are ignored: 'trained_on'"]


def test_the_format_of_a_new_file_depends_on_its_name(tmp_path: Path) -> None:
    table = full().with_splits(None)
    for file, format in [
        ("t.csv", "csv"),
        ("metadata.jsonl", "hf"),
        ("metadata.parquet", "hf"),
        ("t.parquet", "cells"),
        ("t.arrow", "arrow"),
    ]:
        write_labels(table, tmp_path / file)
        assert read_labels(tmp_path / file, format) == table
    with pytest.raises(InputError, match="coco, lvis or label-studio"):
        write_labels(table, tmp_path / "t.json")
    with pytest.raises(InputError, match="did you mean 'coco'"):
        write_labels(table, tmp_path / "t.json", "cocoo")


def test_lvis_as_published(tmp_path: Path) -> None:
    url = "http://example.org/train2017/000000391895.jpg"
    document = {
        "images": [{"id": 7, "coco_url": url, "neg_category_ids": [3]}],
        "categories": [{"id": 3, "name": "aerosol can"}, {"id": 4, "name": "air"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 4},
            {"id": 2, "image_id": 7, "category_id": 4},
        ],
    }
    (tmp_path / "lvis.json").write_text(json.dumps(document))
    table = read_labels(tmp_path / "lvis.json")
    assert table.ids == ["000000391895.jpg"]
    assert table.dense().tolist() == [[-1, 1]]


def test_voc_difficult_objects_are_unknown_and_splits_come_from_imagesets(tmp_path: Path) -> None:
    annotations = tmp_path / "Annotations"
    annotations.mkdir()
    template = "<object><name>{}</name><difficult>{}</difficult></object>"
    for stem, objects in {
        "1": [("cat", 0), ("cat", 1), ("dog", 1)],
        "2": [("dog", 0)],
        "3": [],
    }.items():
        body = "".join(template.format(*item) for item in objects)
        (annotations / f"{stem}.xml").write_text(f"<annotation>{body}</annotation>")
    sets = tmp_path / "ImageSets" / "Main"
    sets.mkdir(parents=True)
    (sets / "train.txt").write_text("1\n")
    (sets / "val.txt").write_text("2\n")
    (sets / "trainval.txt").write_text("1\n2\n")
    (sets / "cat_train.txt").write_text("1  1\n")
    table = read_labels(tmp_path, unlisted="absent")
    assert table.ids == ["1.jpg", "2.jpg", "3.jpg"]
    assert table.dense().tolist() == [[1, 0], [-1, 1], [-1, -1]]
    assert table.splits == ["train", "val", ""]


def test_chexpert_counts_uncertain_labels(tmp_path: Path) -> None:
    from partlabel.labels.formats import read

    (tmp_path / "t.csv").write_text(
        "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Edema\n"
        "p1,F,60,Frontal,AP,1.0,-1.0\np2,M,61,Frontal,,,0.0\n"
    )
    reading = read(tmp_path / "t.csv")
    assert reading.notes.format == "chexpert"
    assert reading.table.classes == ["No Finding", "Edema"]
    assert reading.table.dense().tolist() == [[1, 0], [0, -1]]
    assert reading.notes.uncertain == {"Edema": 1}


def test_imagefolder_with_a_folder_per_split(tmp_path: Path) -> None:
    for split, text in {
        "train": '{"file_name": "a.jpg", "cat": 1}\n',
        "test": '{"file_name": "a.jpg", "cat": null, "dog": 0}\n',
    }.items():
        (tmp_path / split).mkdir()
        (tmp_path / split / "metadata.jsonl").write_text(text)
    table = read_labels(tmp_path)
    assert table.ids == ["test/a.jpg", "train/a.jpg"]
    assert table.splits == ["test", "train"]
    assert table.classes == ["cat", "dog"]
    assert table.dense().tolist() == [[0, -1], [1, 0]]


def test_label_studio_as_exported(tmp_path: Path) -> None:
    def choice(name: str, value: str) -> dict[str, Any]:
        return {"from_name": name, "to_name": "i", "type": "choices", "value": {"choices": [value]}}

    tasks = [
        {
            "id": 1,
            "data": {"image": "/data/local-files/?d=photos/a.jpg"},
            "annotations": [
                {"id": 1, "result": [choice("cat", "present"), {"type": "rectanglelabels"}]},
                {"id": 2, "result": [choice("cat", "absent")], "was_cancelled": True},
            ],
        },
        {"id": 2, "data": {"image": "b.jpg"}, "annotations": []},
    ]
    (tmp_path / "t.json").write_text(json.dumps(tasks))
    table = read_labels(tmp_path / "t.json")
    assert table.ids == ["photos/a.jpg", "b.jpg"]
    assert table.dense().tolist() == [[1], [0]]


def test_images_that_the_file_does_not_mention_are_added(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (photos / name).write_bytes(b"")
    (tmp_path / "t.csv").write_text("ImageID,Source,LabelName,Confidence\na,verification,x,1\n")
    table = read_labels(tmp_path / "t.csv", images=photos)
    assert table.ids == ["a", "b.jpg"]
    assert table.dense().tolist() == [[1], [0]]
