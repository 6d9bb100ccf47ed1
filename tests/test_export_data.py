"""Tasks, datasets and probabilities, read by the packages that they are for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import partlabel
from partlabel import LabelTable, read_labels
from partlabel.output.export.label_studio_project import labelling_config, write_project
from partlabel.training.run import Run

pytestmark = pytest.mark.filterwarnings("ignore::partlabel.base.errors.PartlabelWarning")


@pytest.fixture(scope="module")
def run(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("export-data")
    return partlabel.train(
        read_labels(scene / "partial.csv"),
        scene / "images",
        out / "run",
        cache=out / "cache",
        method="bce",
        frozen="all",
        epochs=2,
        backbone="test_efficientnet",
        weights="none",
        size=64,
    )


# ---- Label Studio


def test_label_studio_accepts_tasks_and_its_answers_come_back(run: Run, tmp_path: Path) -> None:
    interface: Any = pytest.importorskip("label_studio_sdk.label_interface")
    partlabel.export(run, tmp_path / "tasks.json", "label-studio")
    config = interface.LabelInterface((tmp_path / "tasks.config.xml").read_text())
    config.validate()
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    table = run.selection.table
    assert len(tasks) == len(table)
    answered = []
    for number, task in enumerate(tasks):
        if "predictions" in task:
            prediction = task["predictions"][0]
            assert config.validate_prediction(prediction, return_errors=True) == []
            result = prediction["result"]
        else:
            assert config.validate_annotation(task["annotations"][0])
            result = task["annotations"][0]["result"]
        assert {one["from_name"] for one in result} == {*table.classes}
        annotation = {"id": number, "completed_by": 1, "result": result, "was_cancelled": False}
        answered.append({"id": number, "data": task["data"], "annotations": [annotation]})
    (tmp_path / "answers.json").write_text(json.dumps(answered))
    back = read_labels(tmp_path / "answers.json").with_classes(list(table.classes))
    known = table.dense()
    returned = back.subset(back.ids.find(table.ids)).dense()
    assert (returned[known != 0] == known[known != 0]).all()
    _check_with_converter(tmp_path, answered)


def _check_with_converter(folder: Path, answered: list[dict[str, Any]]) -> None:
    """Label Studio's own converter finds the same choices."""
    converter: Any = pytest.importorskip("label_studio_sdk.converter")
    made = converter.Converter(
        (folder / "tasks.config.xml").read_text(), str(folder), download_resources=False
    )
    made.convert(str(folder / "answers.json"), str(folder / "out"), "JSON_MIN", is_dir=False)
    items = json.loads((folder / "out" / "result.json").read_text())
    for item, task in zip(items, answered, strict=True):
        for one in task["annotations"][0]["result"]:
            assert item[one["from_name"]] == one["value"]["choices"][0]


def test_the_most_doubtful_image_comes_first(tmp_path: Path) -> None:
    table = LabelTable(
        ["sure", "a & b/100%.jpg", "done"], ["a & b", '"c"'], [[0, 0], [0, 1], [1, -1]]
    )
    probabilities = np.array([[0.99, 0.02], [0.6, 0.1], [0.5, 0.5]])
    decisions = np.array([[1, -1], [0, 0], [0, 0]], dtype=np.int8)
    write_project(table, probabilities, decisions, tmp_path / "t.json", "m")
    tasks = json.loads((tmp_path / "t.json").read_text())
    assert [task["data"]["image"].split("=")[1] for task in tasks] == [
        "a%20%26%20b/100%25.jpg",
        "sure",
        "done",
    ]
    assert list(read_labels(tmp_path / "t.json").ids) == ["a & b/100%.jpg", "sure", "done"]
    words = [one["value"]["choices"][0] for one in tasks[0]["predictions"][0]["result"]]
    assert words == ["unknown", "present"]
    assert [one["score"] for one in tasks[0]["predictions"][0]["result"]] == [0.6, 1.0]
    assert "predictions" not in tasks[2]
    assert 'name="a &amp; b"' in labelling_config(table.classes)


# ---- Hugging Face datasets


def test_datasets_loads_images_with_nulls_for_unknown_labels(
    run: Run, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets: Any = pytest.importorskip("datasets")
    partlabel.export(run, tmp_path / "set", "hf")
    loaded = datasets.load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))
    completed = partlabel.complete(run).table
    assert {*loaded} == {*completed.splits}  # type: ignore[misc]
    for split in loaded:
        part = completed.split(split)
        labels = np.stack([loaded[split][name] for name in part.classes], axis=1)
        expected = (part.dense() > 0).astype(object)
        expected[part.dense() == 0] = None
        assert (labels == expected).all()
        first = np.asarray(loaded[split][0]["image"].convert("RGB"))
        assert (first == np.asarray(Image.open(scene / "images" / part.ids[0]))).all()
    back = read_labels(tmp_path / "set")
    names = zip(completed.splits or [], completed.ids, strict=True)
    order = back.ids.find([f"{split}/{name}" for split, name in names])
    back = back.subset(order).with_classes(list(completed.classes))
    assert (back.dense() == completed.dense()).all()


# ---- cleanlab


def test_cleanlab_finds_flipped_labels_in_held_out_probabilities(tmp_path: Path) -> None:
    issues: Any = pytest.importorskip("cleanlab.multilabel_classification.filter")
    generator = np.random.default_rng(0)
    labels = np.where(generator.random((300, 3)) < 0.4, 1, -1)
    vectors = labels + generator.normal(0, 0.3, labels.shape)
    flipped = np.arange(0, 300, 30)
    given = labels.copy()
    given[flipped, 0] *= -1
    ids = [f"{n:03}" for n in range(300)]
    np.savez(tmp_path / "v.npz", ids=np.array(ids), vectors=vectors.astype(np.float32))
    run = partlabel.train(
        LabelTable(ids, ["a", "b", "c"], given),
        features=tmp_path / "v.npz",
        out=tmp_path / "run",
        folds=3,
        budget=3,
    )
    done = partlabel.export(run, tmp_path / "c.json", "cleanlab")
    assert done.notes == ["300 images with all labels known"]
    data = json.loads((tmp_path / "c.json").read_text())
    found = issues.find_label_issues(data["labels"], np.array(data["pred_probs"]))
    named = {data["ids"][row] for row in np.flatnonzero(found)}
    right = {ids[row] for row in flipped}
    assert len(named & right) >= 8
    assert len(named - right) <= 5


def test_only_images_with_all_labels_known_are_written(run: Run, tmp_path: Path) -> None:
    partlabel.export(run, tmp_path / "c.json", "cleanlab")
    data = json.loads((tmp_path / "c.json").read_text())
    table = run.selection.table
    rows = table.ids.find(data["ids"])
    assert (table.dense(rows) != 0).all()
    for row, present in zip(rows, data["labels"], strict=True):
        assert np.flatnonzero(table.dense([row])[0] == 1).tolist() == present
    assert np.isin(rows, np.concatenate([run.selection.val, run.selection.reserved])).all()
