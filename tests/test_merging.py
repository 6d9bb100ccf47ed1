"""Merging files: options per file, origins, corrections, label spaces."""

import csv
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partlabel import LabelTable, read_labels, write_labels
from partlabel.base.errors import InputError
from partlabel.cli import main
from partlabel.labels import (
    CHOSEN,
    CONFIRMED,
    HUMAN,
    MODEL,
    NOT_ASKED,
    RANDOM,
    Details,
    Names,
    merge,
)
from partlabel.labels.combine import combine
from partlabel.labels.corrections import correct
from partlabel.labels.hierarchy import Hierarchy, imply, read_hierarchy
from partlabel.labels.label_space import read_synonyms, rename
from partlabel.labels.merge import merge_and_count
from partlabel.labels.merge_files import merge_files
from partlabel.labels.merge_plan import FileEntry, MergePlan, parse_file, read_plan
from partlabel.labels.origins import origin_summaries
from sheets import sheet_xml, write_xlsx
from tables import tables

Cell = tuple[str, str]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A team's CSV and another team's COCO file, in the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("north.csv").write_text("image,split,cat,dog\n1.jpg,train,yes,no\n2.jpg,test,no,\n")
    document = {
        "images": [{"id": 1, "file_name": "2.jpg"}, {"id": 2, "file_name": "3.jpg"}],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "tree"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1},
            {"id": 2, "image_id": 2, "category_id": 2},
        ],
    }
    Path("south.json").write_text(json.dumps(document))
    return tmp_path


def run(*words: str, code: int = 0) -> None:
    assert main(list(words)) == code


def origins_of(table: LabelTable) -> dict[Cell, str]:
    """The origin of each cell by name."""
    names, cells = ["", *table.origins], table.cells
    return {
        (table.ids[row], table.classes[column]): names[code]
        for row, column, code in zip(
            cells.rows, cells.columns, cells.origins_or_none(), strict=True
        )
    }


# combining statements


def combine_one(statements: list[tuple[int, int, int, int]], rule: str) -> tuple[int, ...] | None:
    """The rule of ``combine`` for one cell, in plain Python; None for an unknown label."""
    valued = [s for s in statements if s[0] != 0]
    humans = [s for s in valued if s[1] == HUMAN]
    counted = humans or valued
    if not counted:
        return None
    if rule == "unknown" and len({value for value, *_ in counted}) > 1:
        return None
    value = counted[-1 if rule == "theirs" else 0][0]
    agreeing = [s for s in counted if s[0] == value]
    least = min(asked for *_, asked in agreeing)
    candidates = [s for s in agreeing if s[3] == least]
    return candidates[-1 if rule == "theirs" else 0]


statement = st.tuples(
    st.sampled_from([-1, 0, 1]),
    st.sampled_from([HUMAN, MODEL]),
    st.integers(0, 3),
    st.sampled_from([NOT_ASKED, RANDOM, CHOSEN]),
)


@given(
    st.lists(st.tuples(st.integers(0, 3), statement), max_size=12),
    st.sampled_from(["ours", "theirs", "unknown"]),
)
def test_combine_equals_the_rule_for_single_cells(
    statements: list[tuple[int, tuple[int, int, int, int]]], rule: Any
) -> None:
    cell = np.array([cell for cell, _ in statements], dtype=np.int64)
    value, source, origin, asked = (
        np.array([content for _, content in statements], dtype=np.int64).reshape(-1, 4).T
    )
    details = Details(None, source.astype(np.int8), origin.astype(np.uint8), asked.astype(np.int8))
    combined = combine(cell, value.astype(np.int8), details, rule)
    assert combined.cell.tolist() == sorted({cell for cell, _ in statements})
    for i, index in enumerate(combined.cell):
        expected = combine_one([content for cell, content in statements if cell == index], rule)
        if expected is None:
            assert combined.value[i] == 0
            continue
        columns = combined.details.columns()
        names = ("sources", "origins", "asked")
        assert (combined.value[i], *(columns[name][i] for name in names)) == expected


@given(tables(origins=True, scores=True), tables(origins=True, scores=True))
def test_a_merge_keeps_the_origin_of_the_label_taken(a: LabelTable, b: LabelTable) -> None:
    merged = merge([a, b], "ours", ["left", "right"])
    known = {cell for cell, origin in origins_of(merged).items() if origin}
    assert len(known) == np.count_nonzero(merged.cells.values)
    left, right = origins_of(a.with_origin("left")), origins_of(b.with_origin("right"))
    for cell, origin in origins_of(merged).items():
        assert origin in {left.get(cell), right.get(cell)} | {""}


def test_origins_are_at_most_255() -> None:
    parts = [LabelTable([str(i)], ["x"], [[1]]) for i in range(256)]
    names = [f"origin {i}" for i in range(256)]
    table = merge(parts[:255], origins=names[:255])
    assert origins_of(table)["254", "x"] == "origin 254"
    with pytest.raises(InputError, match="255 origins"):
        merge(parts, origins=names)
    with pytest.raises(InputError, match="255 origins"):
        table.merge(parts[255].with_origin("one more"))


def test_a_table_without_origins_stores_none() -> None:
    table = LabelTable(["a"], ["x"], [[1]])
    assert table.cells.details.columns() == {}
    assert table.with_origin("north").without_origins() == table
    assert table.with_origin("north") != table
    assert table.with_origin("north").subset([]).cells.details.columns() == {}


# files


def test_each_file_has_its_own_options(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("merge", "north.csv", "south.json:unlisted=absent:origin=team", "-o", "all.parquet")
    output = capsys.readouterr().out
    assert "north.csv (origin 'north') adds 2 images, 2 classes and 3 labels" in output
    assert "south.json (origin 'team') adds 1 image, 1 class and 4 labels" in output
    table = read_labels("all.parquet")
    assert table.dense().tolist() == [[1, -1, 0], [-1, 1, -1], [0, -1, 1]]
    assert table.splits == ["train", "test", ""]
    assert origins_of(table)["1.jpg", "cat"] == "north"
    assert origins_of(table)["2.jpg", "dog"] == "team"
    run("merge", "all.parquet", "north.csv", "-o", "again.arrow")  # origins are kept
    assert origins_of(read_labels("again.arrow")) == origins_of(table)


def test_csv_drops_names_of_files_without_a_warning(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("merge", "north.csv", "south.json:unlisted=absent", "-o", "all.csv")
    streams = capsys.readouterr()
    assert "warning" not in streams.err
    assert "--to cells" in streams.out
    run("merge", "north.csv:origin=us", "south.json:unlisted=absent", "-o", "all.csv")
    assert "cannot hold the origins of 7 labels" in capsys.readouterr().err


def test_a_warning_if_labels_of_presences_lose_their_origin(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("web.csv").write_text("image,tag\n1.jpg,cat\n3.jpg,tree\n")
    tags = "web.csv:unlisted=unknown"
    run("merge", "north.csv", tags, "-o", "all.csv")
    assert "'web' has present labels only" in capsys.readouterr().err
    run("merge", "north.csv", tags, "-o", "all.parquet")
    run("merge", "south.json:unlisted=unknown", tags, "-o", "tags.csv")  # no absences at all
    assert "warning" not in capsys.readouterr().err


def test_a_file_whose_name_has_a_colon(files: Path) -> None:
    name = "north.csv:origin=x"
    Path(name).write_text(Path("north.csv").read_text())
    assert parse_file(name) == FileEntry(path=Path(name))
    entry = parse_file(f"{name}:origin=y")
    assert (entry.path, entry.origin) == (Path(name), "y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("north.csv:unlited=absent", "did you mean 'unlisted'"),
        ("north.csv:unlisted=absnt", "'absent' or 'unknown'"),
        ("north.csv:origin=a:origin=b", "given twice"),
        ("north.csv:origin=", "origin"),
    ],
)
def test_wrong_options_of_a_file(files: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_file(text)


def test_default_origins_are_unique(tmp_path: Path) -> None:
    paths = []
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "labels.csv")
        write_labels(LabelTable([str(number)], ["x"], [[1]]), paths[-1])
    plan = MergePlan(files=[FileEntry(path=path) for path in [*paths, paths[0]]])
    names = [part.origin for part in merge_files(plan).parts]
    assert names == ["a/labels", "b/labels", "a/labels 2"]


def test_origins_have_no_suffixes(files: Path) -> None:
    table = LabelTable(["1.jpg"], ["cat"], [[1]])
    names = ["north.csv.gz", "v1.2.csv.zst", "plain.csv", "my.folder"]
    for name in names[:3]:
        write_labels(table, name)
    write_labels(table, "my.folder", "voc")
    write_xlsx(Path("b.xlsx"), {"x": sheet_xml([["image", "dog"], ["1.jpg", 1]])})
    entries = [FileEntry(path=Path(name)) for name in [*names, "b.xlsx#x"]]
    parts = merge_files(MergePlan(files=entries, unlisted="unknown")).parts
    assert [part.origin for part in parts] == ["north", "v1.2", "plain", "my.folder", "b#x"]


def test_merge_yaml(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("merge.yaml").write_text(
        "files:\n"
        "  - path: north.csv\n"
        "    rename: {cat: kitty}\n"
        "    notes: presences\n"
        "  - path: south.json\n"
        "    unlisted: absent\n"
        "    origin: team\n"
        "rename: {tree: plant}\n"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # paths are relative to the YAML file
    run("merge", "../merge.yaml", "-o", "all.parquet")
    table = read_labels("all.parquet")
    assert list(table.classes) == ["kitty", "dog", "plant"]
    # absences of north.csv are no evidence
    assert table.dense().tolist() == [[1, 0, 0], [0, 1, -1], [0, -1, 1]]


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ("presences", [[1, 0], [0, 0]]),
        ("absences", [[0, -1], [-1, 0]]),
        ("{dog: presences}", [[1, 0], [-1, 0]]),
        ("{dog: presences, cat: absences}", [[0, 0], [-1, 0]]),
    ],
)
def test_what_a_file_noted_is_stated(files: Path, notes: str, expected: list[list[int]]) -> None:
    Path("names.txt").write_text("1.jpg\n")
    Path("merge.yaml").write_text(
        f"files: [names.txt, {{path: north.csv, notes: {notes}, rename: {{dog: hound}}}}]"
    )
    run("merge", "merge.yaml", "-o", "all.parquet")
    table = read_labels("all.parquet")
    assert list(table.classes) == ["cat", "hound"]
    assert table.dense().tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("files: [{path: a, rname: {}}]", "no key 'rname' of file 1"),
        ("fils: []", "no key 'fils'|files"),
        ("files: [{path: a, unlisted: no}]", "'unlisted' of file 1 must be 'absent' or 'unknown'"),
        (
            "files: [{path: a, min_count: x}]",
            "'min_count' of file 1 must be a whole number, not 'x'",
        ),
        ("files: [{path: a, min_count: 0}]", "'min_count' of file 1 must be at least 1, not 0"),
        ("files: [{path: a, ignore_columns: b}]", "'ignore_columns' of file 1 must be a list"),
        ("files: [{path: a, only_classes: [1]}]", "number 1 of 'only_classes' must be text, not 1"),
        ("files: [{path: a, origin: ''}]", "'origin' of file 1 must not be empty"),
        ("files: [{path: a, 3: x}]", "the keys of file 1 must be text"),
        ("files: [{path: [a]}]", r"'path' of file 1 must be text, not \['a'\]"),
        ("files: [{origin: a}]", "'path' of file 1 is missing"),
        ("files: [[a]]", "number 1 of 'files' must have keys with values"),
        ("files: a", "'files' must be a list, not 'a'"),
        ("files: [a, b]\nrename: [a]", "'rename' must have keys with values"),
        ("files: [a, b]\nconflict: x", "'conflict' must be 'error', 'unknown', 'ours' or 'theirs'"),
        ("files: ['a:unlsted=x']", "a:unlsted=x: there is no option of a file 'unlsted'"),
        ("files: {", "line 2: |line 1: "),
        ("- a", "expected a key 'files'"),
        ("files: []\n", "'files' must have 1 or more entries"),
        ("3: x\nfiles: [a]", "the keys must be text"),
        ("files: [{path: a, notes: both}]", "'notes' of file 1 must be presences, absences"),
    ],
)
def test_wrong_merge_yaml(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "merge.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_plan(path)
    assert "merge.yaml" in str(caught.value)


def test_one_name_for_different_things_is_pointed_out() -> None:
    ids = [str(i) for i in range(20)]
    birds = LabelTable(ids, ["crane", "tree"], np.ones((20, 2)))
    machines = LabelTable(ids, ["crane", "tree"], np.tile([-1, 1], (20, 1)))
    with pytest.raises(InputError, match=r"'crane' \(20 of 20 shared labels\)"):
        merge([birds, machines])
    merged = merge_and_count([birds, machines], "unknown")
    assert [(c.name, c.contradictions, c.shared) for c in merged.conflicts] == [("crane", 20, 20)]


# who looked for what


def test_who_looked_for_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [str(i) for i in range(6)]
    north = LabelTable(ids, ["cat", "dog"], [[1, -1], [-1, -1]] * 3)
    web = LabelTable(ids, ["dog", "trees"], [[0, 1]] * 6)
    table = merge([north, web], origins=["north", "web"])
    summaries = {origin.name: origin for origin in origin_summaries(table)}
    kinds = {name: noted.kind for name, noted in summaries["north"].noted.items()}
    assert kinds == {"cat": "both", "dog": "absences"}
    assert (summaries["north"].images, summaries["north"].presences_only) == (6, [])
    assert summaries["web"].presences_only == ["trees"]
    table.save(tmp_path / "t.arrow")
    run("inspect", str(tmp_path / "t.arrow"))
    output = capsys.readouterr().out
    assert "no image of 'web' has 'trees' absent: probably only presences were noted" in output
    assert "absent only" in output
    run("inspect", str(tmp_path / "t.arrow"), "--json")
    result = json.loads(capsys.readouterr().out)
    assert result["origins"][1]["noted"]["trees"] == {
        "kind": "presences",
        "present": 6,
        "absent": 0,
    }


# corrections


def test_corrections_replace_and_keep_a_journal(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("suspects.csv").write_text(
        "image,class,value,score,trained_on,asked,checked\n"
        "1.jpg,cat,0,0.1,yes,chosen,\n1.jpg,dog,,0.2,no,chosen,\n2.jpg,cat,0,0.1,no,chosen,\n"
    )
    run("merge", "north.csv", "suspects.csv", "--corrections", "-o", "fixed.parquet")
    assert "1 present became absent, 1 became unknown" in capsys.readouterr().out
    table = read_labels("fixed.parquet")
    assert table.dense().tolist() == [[-1, 0], [-1, 0]]
    assert origins_of(table) == {("1.jpg", "cat"): "suspects", ("2.jpg", "cat"): "north"}
    assert table.cells.asked_or_not().tolist() == [CHOSEN, NOT_ASKED]
    rows = list(csv.DictReader(Path("fixed.journal.csv").read_text().splitlines()))
    assert [(row["image"], row["class"], row["value"], row["new_value"]) for row in rows] == [
        ("1.jpg", "cat", "1", "0"),
        ("1.jpg", "dog", "0", ""),
    ]
    Path("more.csv").write_text("image,class,value\n2.jpg,cat,1\n")
    run("merge", "fixed.parquet", "more.csv", "--corrections", "-o", "last.csv")
    history = list(csv.DictReader(Path("last.journal.csv").read_text().splitlines()))
    assert [row["image"] for row in history] == ["1.jpg", "1.jpg", "2.jpg"]


def table_of(value: int, source: int) -> LabelTable:
    table = LabelTable(["a"], ["x"], [[value]])
    return table.with_cells(table.cells.with_details(sources=np.array([source], np.int8)))


@pytest.mark.parametrize(("old", "new"), list(product([(1, HUMAN), (1, MODEL)], repeat=2)))
def test_a_model_never_replaces_a_human(old: tuple[int, int], new: tuple[int, int]) -> None:
    corrected = correct(table_of(*old), table_of(-new[0], new[1]))
    kept = old[1] == HUMAN and new[1] == MODEL
    assert corrected.table.dense().item() == (1 if kept else -1)
    assert (len(corrected.changes), corrected.ignored) == ((0, 1) if kept else (1, 0))


@given(tables(), tables())
def test_corrections_without_sources_are_a_merge_by_theirs(a: LabelTable, b: LabelTable) -> None:
    found = b.ids.find(a.ids)
    later = b.subset(np.sort(found[found >= 0])).with_classes(
        [name for name in b.classes if name in a.classes]
    )
    corrected = correct(a, later)
    expected = a.merge(later, "theirs")
    assert corrected.table == expected
    assert sum(bool(change.new[0]) for change in corrected.changes) == expected.conflicts


def test_a_human_confirms_a_model() -> None:
    corrected = correct(table_of(1, MODEL), table_of(1, HUMAN))
    assert corrected.confirmed == 1
    assert corrected.table.cells.sources is None


@pytest.mark.parametrize("has_column", [True, False])
def test_a_confirmation_is_remembered(
    files: Path, capsys: pytest.CaptureFixture[str], has_column: bool
) -> None:
    rows = ["1.jpg,cat,1,chosen,x", "1.jpg,dog,0,chosen,", "2.jpg,cat,1,chosen,x"]
    lines = ["image,class,value,asked,checked", *rows]
    lines = lines if has_column else [line.rpartition(",")[0] for line in lines]
    Path("checked.csv").write_text("\n".join(lines))
    run("merge", "north.csv", "checked.csv", "--corrections", "-o", "fixed.csv", "--to", "cells")
    number = 1 if has_column else 2
    assert f"{number} were confirmed as they are" in capsys.readouterr().out
    dog = NOT_ASKED if has_column else CONFIRMED
    table = read_labels("fixed.csv")
    assert table.dense().tolist() == [[1, -1], [1, 0]]
    assert table.cells.asked_or_not().tolist() == [CONFIRMED, dog, CHOSEN]
    run("merge", "fixed.csv", "north.csv", "--conflict", "ours", "-o", "again.arrow")
    assert read_labels("again.arrow").cells.asked_or_not().tolist() == [CONFIRMED, dog, CHOSEN]
    run("inspect", "fixed.csv")
    assert f"labels asked for (confirmed): {number}" in capsys.readouterr().out


def test_a_label_that_a_model_asked_for_stays_so_if_it_is_confirmed(files: Path) -> None:
    Path("a.csv").write_text("image,class,value,asked\n1.jpg,cat,1,chosen\n2.jpg,cat,0,random\n")
    Path("b.csv").write_text("image,class,value,asked\n1.jpg,cat,1,chosen\n2.jpg,cat,0,chosen\n")
    run("merge", "a.csv", "b.csv", "--corrections", "-o", "fixed.parquet")
    assert read_labels("fixed.parquet").cells.asked_or_not().tolist() == [CHOSEN, CONFIRMED]


def test_a_label_of_a_model_that_was_changed_by_hand_is_a_human_s(files: Path) -> None:
    header = "image,class,value,score,source\n"
    Path("completed.csv").write_text(f"{header}1,cat,1,0.971,model\n1,dog,0,0.02,model\n")
    Path("edited.csv").write_text(f"{header}1,cat,0,0.97103,model\n1,dog,1,0.9,model\n")
    run("merge", "completed.csv", "edited.csv", "--corrections", "-o", "out.parquet")
    table = read_labels("out.parquet")
    assert table.dense().tolist() == [[-1, 1]]
    assert table.cells.sources_or_human().tolist() == [HUMAN, MODEL]  # the other has another score
    assert table.cells.asked_or_not().tolist() == [CHOSEN, NOT_ASKED]


def test_a_completed_table_is_merged_back(files: Path) -> None:
    Path("completed.csv").write_text(
        "image,class,value,score,source\n"
        "1.jpg,cat,1,0.9,human\n1.jpg,dog,0,0.1,human\n2.jpg,cat,,0.4,human\n2.jpg,dog,1,0.97,model\n"
    )
    run("merge", "north.csv", "completed.csv", "--corrections", "-o", "all.parquet")
    table = read_labels("all.parquet")
    assert table.dense().tolist() == [[1, -1], [0, 1]]  # one label was emptied by hand
    assert table.cells.sources_or_human().tolist() == [HUMAN, HUMAN, MODEL]


def test_corrections_of_unknown_names_are_errors(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.csv").write_text("image,class,value\n1.jpg,cta,1\n")
    run("merge", "north.csv", "c.csv", "--corrections", "-o", "out.csv", code=2)
    assert "did you mean 'cat'" in capsys.readouterr().err
    Path("c.csv").write_text("image,class,value\n9.jpg,cat,1\n")
    run("merge", "north.csv", "c.csv", "--corrections", "-o", "out.csv", code=2)
    assert "1 image that the labels lack: '9.jpg'" in capsys.readouterr().err
    assert not list(Path().glob("out*"))


def test_empty_fields_of_corrections_are_counted(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wide.csv").write_text("image,cat\n1.jpg,\n2.jpg,1\n")
    run("merge", "north.csv", "wide.csv", "--corrections", "-o", "out.csv")
    said = " ".join(capsys.readouterr().out.split())
    assert "1 absent became present; kept because the field is empty here: 1 label" in said
    assert read_labels("out.csv").dense().tolist() == [[1, -1], [1, 0]]
    Path("cells.csv").write_text("image,class,value\n1.jpg,cat,\n2.jpg,cat,1\n")
    run("merge", "north.csv", "cells.csv", "--corrections", "-o", "out.csv")
    assert "field is empty" not in capsys.readouterr().out
    assert read_labels("out.csv").dense().tolist() == [[0, -1], [1, 0]]


def test_corrections_are_proposed_where_files_disagree(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.csv").write_text("image,class,value\n1.jpg,cat,0\n")
    run("merge", "north.csv", "c.csv", "-o", "out.csv", code=2)
    assert "--corrections if later files correct the first" in capsys.readouterr().err


def test_edit_makes_labels_unknown(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("difficult.csv").write_text("image,class\n1.jpg,cat\n9.jpg,dog\n1.jpg,cat\n")
    run("edit", "north.csv", "out.csv", "--unknown", "difficult.csv")
    streams = capsys.readouterr()
    assert "1 label became unknown" in streams.out
    assert "1 row about images" in streams.err
    assert read_labels("out.csv").dense().tolist() == [[0, -1], [-1, 0]]
    Path("difficult.csv").write_text("image,class\n1.jpg,cta\n")
    run("edit", "north.csv", "out.csv", "--unknown", "difficult.csv", code=2)
    assert "difficult.csv: there is no class 'cta'; did you mean 'cat'" in capsys.readouterr().err


# label spaces


@given(tables(origins=True), st.data())
def test_rename_equals_a_merge_of_columns(table: LabelTable, data: st.DataObject) -> None:
    new = data.draw(st.lists(st.sampled_from("ab"), min_size=5, max_size=5))
    names = dict(zip(table.classes, new, strict=False))
    renamed = rename(table, names, "unknown")
    dense = table.dense()
    for j, name in enumerate(renamed.classes):
        columns = [i for i, old in enumerate(table.classes) if names[old] == name]
        values = dense[:, columns]
        present, absent = (values == 1).any(axis=1), (values == -1).any(axis=1)
        expected = np.where(present & absent, 0, present.astype(int) - absent)
        assert np.array_equal(renamed.dense()[:, j], expected)


def test_renames_and_synonyms(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("same.csv").write_text("animal,pet,beast\nplant,tree\n")
    assert read_synonyms("same.csv") == {"pet": "animal", "beast": "animal", "tree": "plant"}
    words = ("merge", "north.csv", "south.json:unlisted=absent", "-o", "all.csv")
    run(*words, "--rename", "cat=pet", "--synonyms", "same.csv")
    assert list(read_labels("all.csv").classes) == ["animal", "dog", "plant"]
    run(*words, "--rename", "cta=pet", code=2)
    assert "did you mean 'cat'" in capsys.readouterr().err
    run("convert", "north.csv", "out.csv", "--rename", "cat=dog", code=2)
    assert "'cat' in line 2 (present) and 'dog' in line 2 (absent)" in capsys.readouterr().err
    Path("same.csv").write_text("a,b\nc,b\n")
    with pytest.raises(InputError, match="lines 1 and 2: 'b' occurs twice"):
        read_synonyms("same.csv")


ANIMALS = Hierarchy(
    {
        "animal": frozenset(),
        "mammal": frozenset({"animal"}),
        "dog": frozenset({"mammal", "animal"}),
        "cat": frozenset({"mammal", "animal"}),
    }
)


@given(st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=4, max_size=4), max_size=4))
def test_implied_labels_equal_a_search_in_each_image(matrix: list[list[int]]) -> None:
    classes = list(ANIMALS.ancestors)
    table = LabelTable([str(i) for i in range(len(matrix))], classes, matrix or [])
    implied = imply(table, ANIMALS)
    contradictions = 0
    for stated, values in zip(matrix, implied.table.dense().tolist(), strict=True):
        known = dict(zip(classes, stated, strict=True))
        pairs = [
            (child, above)
            for child, ancestors in ANIMALS.ancestors.items()
            for above in ancestors
            if known[child] == 1 and known[above] == -1
        ]
        contradictions += len(pairs)
        expected = dict(known)
        for name in set(classes) - {name for pair in pairs for name in pair}:
            for other in classes:
                if known[name] == 1 and other in ANIMALS.ancestors[name] and not known[other]:
                    expected[other] = 1
                if known[name] == -1 and name in ANIMALS.ancestors[other] and not known[other]:
                    expected[other] = -1
        assert values == list(expected.values())
    assert implied.contradictions == contradictions


def test_implied_labels_have_the_origin_of_their_reason() -> None:
    table = LabelTable(["a"], ["animal", "dog"], [[0, 1]]).with_origin("north")
    assert origins_of(imply(table, ANIMALS).table)["a", "animal"] == "north"


def test_contradictions_to_a_hierarchy_are_reported(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("h.csv").write_text("child,parent\ncat,dog\n")
    run("convert", "north.csv", "out.csv", "--hierarchy", "h.csv")
    assert "image '1.jpg' has 'cat', but no 'dog'" in capsys.readouterr().err
    assert read_labels("out.csv").dense().tolist() == [[1, -1], [-1, 0]]


def test_a_parent_that_no_file_has_can_be_added(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("h.csv").write_text("cat,animal\ndog,animal\noak,tree\n")
    run("convert", "north.csv", "out.csv", "--hierarchy", "h.csv")
    said = " ".join(capsys.readouterr().out.split())
    assert "no file has 'animal', 'oak', 'tree'; to add a parent such as 'animal'" in said
    assert "the header image,animal" in said
    Path("parents.csv").write_text("image,animal\n")
    run("merge", "north.csv", "parents.csv", "-o", "out.csv", "--hierarchy", "h.csv")
    assert "to add a parent" not in capsys.readouterr().out
    assert list(read_labels("out.csv").classes) == ["cat", "dog", "animal"]
    assert read_labels("out.csv").dense().tolist() == [[1, -1, 1], [-1, 0, 0]]


def test_hierarchies_are_read(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    tree = {"LabelName": "dog", "Part": [{"LabelName": "leg"}]}
    path.write_text(
        json.dumps(
            {"LabelName": "all", "Subcategory": [{"LabelName": "animal", "Subcategory": [tree]}]}
        )
    )
    assert read_hierarchy(path).ancestors["dog"] == {"animal", "all"}
    assert "leg" not in read_hierarchy(path).names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\nb,c\nc,a\n", "cycle: 'a' -> 'b' -> 'c' -> 'a'"),
        ("a,a\n", "cycle: 'a' -> 'a'"),
        ("a,b\nc\n", "line 2: expected two names"),
        ("child,parent\n", "no pairs"),
        ('{"LabelName": 3}', "not a hierarchy"),
        ('{"LabelName": "a", "Subcategory": [4]}', "not a hierarchy"),
    ],
)
def test_wrong_hierarchies(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "h"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_hierarchy(path)


def test_names_of_origins_are_checked() -> None:
    with pytest.raises(InputError, match="origin number 1"):
        LabelTable(["a"], ["x"], [[1]]).with_origin("a\nb")
    table = LabelTable(["a"], ["x"], [[1]])
    cells = table.cells.with_details(origins=np.array([2], np.uint8))
    with pytest.raises(InputError, match="origin 2 of 1"):
        LabelTable.from_cells(["a"], ["x"], cells, None, Names(["north"]))


def test_options_for_all_files_apply_where_they_can(tmp_path: Path) -> None:
    """Columns to ignore that only one file has, next to a file without columns."""
    (tmp_path / "north.csv").write_text("filename,photographer,cat\na.jpg,Ann,yes\nb.jpg,Bo,no\n")
    (tmp_path / "web.csv").write_text("image,tag\nc.jpg,dog\n")
    files = [str(tmp_path / "north.csv"), f"{tmp_path / 'web.csv'}:unlisted=unknown"]
    out = str(tmp_path / "all.csv")
    common = ["--ignore-columns", "photographer"]
    assert main(["merge", *files, *common, "-o", out]) == 0
    assert list(read_labels(out).classes) == ["cat", "dog"]
    assert main(["merge", *files, *common, "--unlisted", "unknown", "-o", out]) == 0
    assert main(["merge", *files, "--ignore-columns", "photographr", "-o", out]) == 2
    own = [f"{files[0]}:ignore-columns=photographer", files[1]]
    assert main(["merge", *own, "-o", out]) == 0


def test_a_yaml_file_may_list_names_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("image,cat\na,1\n")
    (tmp_path / "b.csv").write_text("image,dog\na,0\n")
    (tmp_path / "merge.yaml").write_text("files:\n  - a.csv\n  - b.csv\n")
    assert main(["merge", str(tmp_path / "merge.yaml"), "-o", str(tmp_path / "all.csv")]) == 0
    assert read_labels(tmp_path / "all.csv").dense().tolist() == [[1, -1]]
