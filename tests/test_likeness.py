"""Images whose labels are tested on other images: are they alike, and what if they are not?"""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import partlabel
from partlabel import LabelTable
from partlabel.judging.completion import Completion, complete_run
from partlabel.judging.completion.by_origin import results_by_origin
from partlabel.judging.completion.held_labels import Judges
from partlabel.judging.completion.layout import PARTS, Layout, Part
from partlabel.judging.completion.likeness import plan_comparisons
from partlabel.judging.completion.origin_groups import FEW, NEW, NO_LABEL, group_by_origins
from partlabel.labels import ABSENT, PRESENT, scenes
from partlabel.metrics.shift import measure_shift
from partlabel.models.features.vector_writing import write_vectors
from partlabel.output.report.guarantee_table import recall_and_prevalence
from partlabel.training.run import Run

IMAGES, CLASSES, FEATURES = 1800, 4, 12
MENTION = "that the label file does not mention"
SHIFTED = IMAGES // 3  # images of each origin


def with_origins(labels: Any, codes: Any, names: list[str]) -> LabelTable:
    """A table whose labels have the origin of their image: 0 for none."""
    ids = [f"i{i:04}" for i in range(len(labels))]
    table = LabelTable(ids, [f"c{j}" for j in range(labels.shape[1])], labels)
    cells = table.cells.with_details(origins=np.asarray(codes)[table.cells.rows].astype(np.uint8))
    return LabelTable.from_cells(table.ids, table.classes, cells, None, names)


# ---- groups


def test_images_are_grouped_by_the_origins_of_their_labels() -> None:
    labels = np.ones((200, 1), dtype=np.int8)
    labels[90:130] = 0
    codes = np.repeat([1, 2, 0, 3, 4], [50, 40, 40, 5, 65])
    groups = group_by_origins(with_origins(labels, codes, ["a", "b", "c", "d"]), 203)
    sizes = np.bincount(groups.of_image)
    assert dict(zip(groups.names, sizes.tolist(), strict=True)) == {
        NO_LABEL: 40,
        NEW: 3,
        "a": 50,
        "b": 40,
        "c": 5,  # the only small one keeps its name
        "d": 65,
    }
    few = group_by_origins(with_origins(labels, np.arange(200) // 20, list("abcdefghi")))
    assert few.names == sorted([FEW, NO_LABEL])


def test_an_image_with_labels_of_two_origins_is_in_a_group_of_both() -> None:
    north = LabelTable(["x"], ["cat"], [[1]]).with_origin("north")
    both = north.merge(LabelTable(["x"], ["dog"], [[1]]).with_origin("south"))
    assert group_by_origins(both).names == ["north + south"]


def test_classes_are_compared_with_the_images_that_test_them() -> None:
    """Three origins looked for one class each: the images of each are tested twice."""
    labels = np.zeros((90, 3), dtype=np.int8)
    part = np.arange(90) // 30
    labels[np.arange(90), part] = 1
    groups = group_by_origins(with_origins(labels, part + 1, ["a", "b", "c"]))
    rows, columns = np.nonzero(labels)
    nothing = np.zeros((1, 3), dtype=np.int64)
    layout = Layout(
        np.zeros(90, dtype=np.int64),
        np.full((1, 3), Part.BY_IMAGE, dtype=np.int8),
        rows,
        columns,
        np.zeros(90, dtype=np.int64),
        nothing,
        np.arange(90),
        np.zeros(90, dtype=np.bool_),
    )
    pairs = plan_comparisons(groups, layout, Judges(rows, columns, labels[rows, columns]))
    found = {
        (pair.origin, *pair.tested_by): (pair.classes.tolist(), judges.tolist())
        for pair, judges in pairs
    }
    assert len(found) == len(pairs) == 6
    assert found["a", "b"] == ([1], list(range(30, 60)))
    assert found["c", "a"] == ([0], list(range(30)))


def test_few_images_do_not_look_unlike_by_chance() -> None:
    rng = np.random.default_rng(0)
    for tested, new in ((1000, 30), (30, 1000), (30, 30)):
        for seed in range(5):
            same = measure_shift(rng.normal(size=(tested, 99)), rng.normal(size=(new, 99)), seed)
            assert same.auc < 0.75
            assert same.effective > 0.7
        moved = measure_shift(rng.normal(size=(tested, 99)), rng.normal(1, 1, (new, 99)))
        assert moved.auc > 0.8


def test_an_image_on_both_sides_is_no_difference() -> None:
    """It is in one fold, so that its copy cannot teach that it belongs to the other side."""
    features = np.random.default_rng(0).normal(size=(60, 40))
    images = np.tile(np.arange(60), 2)
    assert measure_shift(features, features, images=images).auc == pytest.approx(0.5)


# ---- completions


def train_merged(folder: Path, shift: float) -> tuple[Run, Any]:
    """Two origins that looked for two classes each, and images without labels that differ.

    The images of the third part are moved by so much, in a direction that no class depends on.
    """
    rng = np.random.default_rng(3)
    truth = np.where(rng.random((IMAGES, CLASSES)) < 0.4, PRESENT, ABSENT).astype(np.int8)
    features = rng.normal(size=(IMAGES, FEATURES)).astype(np.float32)
    features[:, :CLASSES] = 2.5 * truth + rng.normal(size=truth.shape)
    part = np.arange(IMAGES) // SHIFTED
    features[part == 2, -1] += shift
    columns = np.arange(CLASSES)[None, :] // 2
    labels = np.where(columns == part[:, None], truth, 0)
    table = with_origins(labels, np.where(part == 2, 0, part + 1), ["north", "south"])
    write_vectors(folder / "v.npz", features, list(table.ids))
    run = partlabel.train(
        table, features=folder / "v.npz", out=folder / "run", method="bce", lr=0.03, seed=1
    )
    return run, truth


@pytest.fixture(scope="module")
def unlike(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Any]:
    return train_merged(tmp_path_factory.mktemp("unlike"), 6.0)


def filled(completion: Completion) -> Any:
    """[n, C] the labels that were filled in."""
    return completion.assessment.decided(np.arange(len(completion.filling.table)))[0]


def run_labels(completion: Completion) -> Any:
    return completion.filling.table.dense()


def test_origins_that_are_alike_are_filled_in(tmp_path: Path) -> None:
    run, truth = train_merged(tmp_path, 0.0)
    completion = complete_run(run, 0.8)
    values = filled(completion)
    material = completion.assessment.material
    assert material.likeness.comparisons
    assert not material.likeness.unlike
    assert not material.layout.unknown[Part.LEFT_OUT].any()
    assert (values[2 * SHIFTED :] != 0).any()
    assert (values[values != 0] == truth[values != 0]).mean() > 0.8
    notes = [note for note in completion.notes if "as far as they are alike" in note]
    assert len(notes) == 1
    assert "600 images of 'north' (AUC 0." in notes[0]
    assert "600 images without a label (AUC 0." in notes[0]


def test_nothing_is_filled_in_in_images_that_are_unlike(unlike: tuple[Run, Any]) -> None:
    completion = complete_run(unlike[0], 0.8)
    values, material = filled(completion), completion.assessment.material
    assert {one.origin for one in material.likeness.unlike} == {NO_LABEL}
    assert not values[2 * SHIFTED :].any()
    assert (values[: 2 * SHIFTED] == PRESENT).any()
    assert (values[: 2 * SHIFTED] == ABSENT).any()
    for scope in completion.assessment.scopes:  # what is left out has no weight in a test either
        open_images = material.layout.open_images(PARTS[scope.guarantees.unit])
        assert not open_images[2 * SHIFTED :].any()
        known = run_labels(completion)
        unknown = (known[open_images] == 0).sum(axis=0)
        assert np.array_equal(scope.population.unknown.sum(axis=0), unknown)
    note = next(note for note in completion.notes if "are left out" in note)
    assert f"{SHIFTED * CLASSES:,} unknown labels are left out" in note
    assert "600 images without a label (AUC 1.00" in note
    assert "--despite-shift" in note


def test_with_despite_shift_they_are_filled_in_and_a_note_says_so(unlike: tuple[Run, Any]) -> None:
    completion = complete_run(unlike[0], 0.8, despite_shift=True)
    assert filled(completion)[2 * SHIFTED :].any()
    note = next(note for note in completion.notes if "does not hold for images" in note)
    assert "600 images without a label (AUC 1.00" in note


def test_results_by_origin_are_written_and_reported(unlike: tuple[Run, Any]) -> None:
    run = unlike[0]
    completion = complete_run(run, 0.8)
    *_, path = completion.save(run.folder.parent / "done.csv")
    with path.open() as stream:
        lines = list(csv.DictReader(stream))
    assert path.name == "done.origins.csv"
    assert sum(int(line["unknown"]) for line in lines) == completion.unknown
    for value, column in ((PRESENT, "present"), (ABSENT, "absent")):
        assert sum(int(line[column]) for line in lines) == completion.total[value]
    assert {line["drawn"] for line in lines} == {"image"}
    by_name = {(line["origin"], line["tested_by"]): line for line in lines}
    north, nothing = by_name["north", "south"], by_name[NO_LABEL, "south"]
    assert (north["alike"], nothing["alike"]) == ("yes", "no")
    assert float(nothing["auc"]) > 0.95 > 0.6 > float(north["auc"])
    testing = int(north["testing_images"])
    assert 0.7 * testing < float(north["effective_images"]) <= testing
    assert int(north["right"]) <= int(north["tested"])
    assert int(north["right"]) >= 0.8 * int(north["tested"]) > 0
    page = partlabel.report(run, min_precision=0.8).read_text()
    part = page.split("What is filled in, by origin")[1].split("</table>")[0]
    assert f"{float(nothing['auc']):.2f} (unlike)" in part
    assert f"<td>{north['testing_images']} of south</td>" in part


def test_recall_and_prevalence_are_those_of_the_evidence_file(unlike: tuple[Run, Any]) -> None:
    completion = complete_run(unlike[0], 0.8)
    _, path, *_ = completion.save(unlike[0].folder.parent / "found.csv")
    with path.open() as stream:
        lines = [line for line in csv.DictReader(stream) if line["recall_at_least"]]
    assert lines
    (part,) = recall_and_prevalence(completion.assessment, list(completion.filling.table.classes))
    rows = {row[0]: row for row in part.rows}
    assert rows.keys() == {line["class"] for line in lines}
    for line in lines:
        row = rows[line["class"]]
        found = row[1 if line["value"] == "1" else 2]
        assert float(found) == pytest.approx(100 * float(line["recall_at_least"]), abs=0.051)
        for shown, end in zip(row[3:5], ("prevalence_from", "prevalence_to"), strict=True):
            assert float(shown) == pytest.approx(100 * float(line[end]), abs=0.051)
        assert row[5] == line["drawn"]
    page = partlabel.report(unlike[0], min_precision=0.8).read_text()
    assert "<h2>How much <code>complete</code> finds, and how frequent classes are</h2>" in page


def test_labels_that_nothing_tests_are_counted_too(unlike: tuple[Run, Any]) -> None:
    completion = complete_run(unlike[0], 0.8)
    results = results_by_origin(completion.assessment)
    without = replace(completion.assessment, scopes=[])  # as if nothing could be tested
    nothing = results_by_origin(without)
    assert sum(one.unknown for one in results) == sum(one.unknown for one in nothing)
    assert {one.drawn for one in nothing} == {None}


def test_new_images_are_completed_if_they_are_alike(tmp_path: Path) -> None:
    """Images of the same kind, and such images blurred, that no label file mentions."""
    world = scenes.World(classes=3, size=64, seed=0, difficulty=0.0)
    truth = scenes.write(tmp_path / "s", 300, world, test=0.0)
    table = truth.subset(np.arange(200))
    images = tmp_path / "s" / "images"
    unlike = tmp_path / "unlike"
    unlike.mkdir()
    for name in list(truth.ids)[200:]:
        with Image.open(images / name) as picture:
            picture.convert("RGB").resize((8, 8)).save(unlike / f"new-{name}")
    settings: dict[str, Any] = {"epochs": 3, "size": 64, "backbone": "tf_efficientnet_lite0"}
    settings |= {"frozen": "all", "cache": tmp_path / "cache", "split_duplicates": True}
    splits = np.where(np.arange(200) < 120, "holdout", "train").tolist()
    hidden = LabelTable(table.ids, table.classes, table.dense(), splits)
    run = partlabel.train(hidden, images, tmp_path / "run", method="bce", **settings)
    same = complete_run(run, 0.6, more=images)
    assert len(same.table) == 300
    assert filled(same)[200:].any()
    assert (
        f"100 images {MENTION} are completed too; --only-labelled leaves such images out"
        in same.notes
    )
    other = complete_run(run, 0.6, more=unlike)
    assert not filled(other)[200:].any()
    assert f"100 images {MENTION} are not completed" in other.notes
    assert any("left out" in note and f"100 images {MENTION} (AUC" in note for note in other.notes)
    forced = complete_run(run, 0.6, more=unlike, despite_shift=True)
    assert filled(forced)[200:].any()
    assert (
        f"100 images {MENTION} are completed too; --only-labelled leaves such images out"
        in forced.notes
    )
