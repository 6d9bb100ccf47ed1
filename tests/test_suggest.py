"""``partlabel suggest`` and rounds of labelling, on features that are generated."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partlabel
from partlabel import LabelTable, read_labels, write_labels
from partlabel.base.errors import InputError, StoppedError
from partlabel.cli import main
from partlabel.judging.suggestion.questions import Question
from partlabel.labels import CHOSEN, MODEL, RANDOM, simulate
from partlabel.output.bench import Benchmark
from partlabel.output.bench.round_tables import answers_needed, tables_of_rounds
from partlabel.output.bench.rounds import answer
from partlabel.training.run import Run

IMAGES, CLASSES = 300, ["ant", "bee", "cow"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features, all labels with splits, labels with holes, and a run on them."""
    path = tmp_path_factory.mktemp("suggest")
    draw = np.random.default_rng(0)
    features = draw.normal(size=(IMAGES, 10)).astype(np.float32)
    truth = np.where(features[:, :3] + 0.3 * draw.normal(size=(IMAGES, 3)) > [0.3, 0.8, 1.2], 1, -1)
    ids = [f"{i:03}.jpg" for i in range(IMAGES)]
    np.savez(path / "features.npz", features=features, ids=np.array(ids))
    splits = ["train"] * 200 + ["val"] * 100
    full = LabelTable(ids, CLASSES, truth, splits)
    write_labels(full, path / "full.csv", "csv")
    holes = simulate.partial(full.split("train"), 0.2, seed=0)
    write_labels(holes, path / "labels.csv", "csv")
    train(path, holes, path / "run")
    return path


def train(folder: Path, labels: LabelTable, out: Path, **more: Any) -> Run:
    return partlabel.train(
        labels,
        out=out,
        features=folder / "features.npz",
        method="bce",
        optimizer="lbfgs",
        epochs=3,
        weight_decay=1e-3,
        val=0,
        **more,
    )


def suggest(folder: Path, *arguments: str) -> int:
    return main(["suggest", str(folder / "run"), *arguments])


def test_answers_to_questions_are_merged_and_keep_how_they_were_asked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, merged = tmp_path / "questions.csv", tmp_path / "merged.parquet"
    assert suggest(folder, "--budget", "40", "-o", str(file), "--for", "promises") == 0
    assert "40 questions" in capsys.readouterr().out.replace("\n", " ")
    truth, known = read_labels(folder / "full.csv"), read_labels(folder / "labels.csv")
    with file.open(newline="") as stream:
        questions = list(csv.DictReader(stream))
    drawn = [question["asked"] for question in questions].count("random")
    assert drawn == 12
    for question in questions:
        row, column = truth.ids.index(question["image"]), CLASSES.index(question["class"])
        assert truth.splits is not None
        assert truth.splits[row] == "train"
        assert known.dense()[known.ids.index(question["image"]), column] == 0
        assert (question["score"] == "") == (question["asked"] == "random")
        assert (question["probability"] == "") == (question["asked"] == "chosen")
        question["value"] = str((truth.dense()[row, column] + 1) // 2)
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, questions[0])
        writer.writeheader()
        writer.writerows(questions)
    labels = str(folder / "labels.csv")
    assert (
        main(["merge", labels, str(file), "-o", str(merged), "--to", "cells", "--corrections"]) == 0
    )
    table = read_labels(merged)
    asked = table.cells.asked_or_not()
    assert (asked == RANDOM).sum() == 12
    assert (asked == CHOSEN).sum() == 28
    run = train(folder, table, tmp_path / "run")
    training = run.selection.training.cells
    assert (training.asked_or_not() != RANDOM).all()
    assert (training.asked_or_not() == CHOSEN).sum() == 28


def test_tasks_for_label_studio_keep_how_they_were_asked(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    assert suggest(folder, "--budget", "20", "-o", str(file), "--for", "promises") == 0
    tasks = json.loads(file.read_text())
    asked = [name for task in tasks for name in task["data"]["asked"].values()]
    assert (asked.count("random"), asked.count("chosen")) == (6, 14)
    for task in tasks:
        names = task["data"]["questions"].split(", ")
        assert sorted(names) == sorted(task["data"]["asked"])
        result = [
            {
                "from_name": name,
                "to_name": "image",
                "type": "choices",
                "value": {"choices": ["absent"]},
            }
            for name in names
        ]
        task["annotations"] = [{"result": result}]
    file.write_text(json.dumps(tasks))
    table = read_labels(file)
    codes = table.cells.asked_or_not()
    assert ((codes == RANDOM).sum(), (codes == CHOSEN).sum()) == (6, 14)
    write_labels(table, tmp_path / "again.json", "label-studio")
    assert read_labels(tmp_path / "again.json").cells.equals(table.cells)
    tasks[0]["data"]["asked"] = {"ant": "perhaps"}
    file.write_text(json.dumps(tasks))
    with pytest.raises(InputError, match="'perhaps' is not one of random, chosen"):
        read_labels(file)


def test_whole_images_and_known_labels_that_look_wrong(folder: Path, tmp_path: Path) -> None:
    run, known = folder / "run", read_labels(folder / "labels.csv")
    images = partlabel.suggest(run, 5, per="image")
    assert images.seconds == 50
    assert len({question.image for question in images.questions}) == 5
    rows = known.ids.find({question.image for question in images.questions})
    assert len(images) == (known.dense(rows) == 0).sum()
    values = known.cells.values.copy()
    flipped = np.random.default_rng(1).choice(len(values), 8, replace=False)
    values[flipped] *= -1
    noisy = train(folder, known.with_cells(known.cells.with_values(values)), tmp_path / "noisy")
    found = {(q.image, q.name) for q in partlabel.suggest(noisy, 12, goal="errors").questions}
    cells = zip(known.cells.rows[flipped], known.cells.columns[flipped], strict=True)
    assert len(found & {(known.ids[int(row)], CLASSES[column]) for row, column in cells}) >= 4


def test_the_cost_decides_between_labels_and_images(folder: Path, tmp_path: Path) -> None:
    """An image has three labels: worth asking about at the price of one, not of nine."""
    run, known = folder / "run", read_labels(folder / "labels.csv")
    dear = partlabel.suggest(run, 60, per="best", image_cost=18)
    cells = partlabel.suggest(run, 60)
    assert {(q.image, q.name) for q in dear.questions} == {
        (q.image, q.name) for q in cells.questions
    }
    cheap = partlabel.suggest(run, 60, per="best", cost=3, image_cost=3)
    whole = [q for q in cheap.questions if "of the image" in q.why]
    images = {question.image for question in whole}
    assert len(images) > 30
    assert len(whole) == (known.dense(known.ids.find(images)) == 0).sum()
    single = len(cheap) - len(whole)
    assert cheap.seconds == 3 * len(images) + 3 * single <= 180
    gains = [question.gain for question in cheap.questions]
    assert gains == sorted(gains, reverse=True)
    assert len({(q.image, q.name) for q in cheap.questions}) == len(cheap)
    file = tmp_path / "q.csv"
    words = ["--budget", "20", "--per", "best", "--image-cost", "2", "-o", str(file)]
    assert suggest(folder, *words) == 0
    assert "the unknown labels of the image tell most" in file.read_text()


@pytest.mark.filterwarnings("ignore::partlabel.base.errors.PartlabelWarning")
def test_a_class_without_a_present_label_is_asked_about_until_there_is_one(
    folder: Path, tmp_path: Path
) -> None:
    known = read_labels(folder / "labels.csv")
    labels = known.dense()
    labels[:, 2] = np.minimum(labels[:, 2], 0)
    table = LabelTable(known.ids, CLASSES, labels)
    run = train(folder, table, tmp_path / "run", drop_empty=True)
    assert run.record.classes == CLASSES[:2]
    asked = partlabel.suggest(run, 45)
    about = [question for question in asked.questions if question.name == "cow"]
    assert 15 <= len(about) < 45
    assert len({question.score for question in about}) == 1
    assert "cow" in asked.notes[0]
    assert len({q.image for q in partlabel.suggest(run, 5, per="image").questions}) == 5
    tests = partlabel.suggest(run, 45, goal="promises")
    assert "cow" not in {question.name for question in tests.questions}
    answers = answer(table, read_labels(folder / "full.csv"), asked.questions)
    assert train(folder, answers, tmp_path / "next").record.classes == CLASSES


def test_answers_to_random_questions_fill_in_present_labels(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, truth = Run(folder / "run"), read_labels(folder / "full.csv")
    labels = run.selection.labels
    with pytest.raises(InputError, match="asked at random"):
        partlabel.complete(run, answers=answer(labels, truth, partlabel.suggest(run, 5).questions))
    answers = answer(labels, truth, partlabel.suggest(run, 150, goal="promises").questions)
    write_labels(answers, tmp_path / "answers.csv", "cells")
    out = tmp_path / "filled.csv"
    call = ["complete", str(folder / "run"), "--answers", str(tmp_path / "answers.csv")]
    assert main([*call, "-o", str(out), "--min-precision", "0.8"]) == 0
    assert [path.name for path in tmp_path.glob("filled*")] == ["filled.csv"]
    assert "At least 80% are correct" in " ".join(capsys.readouterr().out.split())
    filled = partlabel.complete(run, answers=answers, min_precision=0.8)
    table = read_labels(out).with_classes(CLASSES)
    np.testing.assert_array_equal(table.dense(), filled.table.dense())
    new = filled.table.cells.sources_or_human() == MODEL
    assert new.sum() == filled.guarantee.filled > 5
    assert (filled.table.cells.values[new] == 1).all()
    true = truth.dense()[truth.ids.find(filled.table.ids)]
    cells = filled.table.cells
    assert (true[cells.rows[new], cells.columns[new]] == 1).mean() >= 0.8
    known = answers.dense() != 0
    np.testing.assert_array_equal(filled.table.dense()[known], answers.dense()[known])


@pytest.mark.parametrize("option", ["--plan", "--only-labelled", "--despite-shift", "--guarantee"])
def test_options_that_do_nothing_with_answers_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    call = ["complete", str(folder / "run"), "--answers", str(folder / "labels.csv"), option]
    call += ["exact"] if option == "--guarantee" else []
    assert main([*call, "-o", str(tmp_path / "out.csv")]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert option in message
    assert "--answers" in message
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "600"], "a budget of 600: the run has only"),
        (["--budget", "0"], "ask at least one"),
        (["--budget", "5", "--strategy", "entropi"], "did you mean 'entropy'?"),
        (["--budget", "5", "--per", "picture"], "there is no unit 'picture'"),
        (["--budget", "5", "--for", "fun"], "there is no goal 'fun'"),
        (["--budget", "5", "--per", "image", "--for", "errors"], "its questions are cells"),
        (["--budget", "5", "--per", "image", "--strategy", "margin"], "has no effect"),
        (["--budget", "5", "--cost", "-1"], "must be above 0"),
        (["--budget", "5", "--per", "image", "--cost", "3"], "--image-cost has the seconds"),
        (["--budget", "5", "--image-cost", "3"], "no effect with --per cell"),
        (["--budget", "5", "--per", "best", "--for", "promises"], "its questions are cells"),
        (["--budget", "5", "--to", "coco"], "there is no format of questions 'coco'"),
    ],
)
def test_wrong_calls(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert suggest(folder, *arguments, "-o", str(tmp_path / "q.csv")) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "q.csv").exists()


def test_runs_with_nothing_to_ask_or_nothing_to_go_by(folder: Path, tmp_path: Path) -> None:
    full = read_labels(folder / "full.csv").split("train")
    train(folder, full, tmp_path / "full")
    with pytest.raises(InputError, match="all labels of the training images are known"):
        partlabel.suggest(tmp_path / "full", 5)
    (tmp_path / "q.csv").write_text("precious")
    assert suggest(folder, "--budget", "5", "-o", str(tmp_path / "q.csv")) == 2
    assert suggest(folder, "--budget", "5", "-o", str(tmp_path / "none" / "q.csv")) == 2
    assert (tmp_path / "q.csv").read_text() == "precious"


SPEC = """
split: train
test_split: val
strategies: [{strategy: partial, proportions: [0.1]}]
seeds: [0, 1]
settings: {val: 0, optimizer: lbfgs, epochs: 2, weight_decay: 1.0e-3}
methods: [{name: bce, method: bce}]
rounds:
  answers: [20, 30]
  ways:
    - {name: random, strategy: random}
    - {name: ours}
    - {name: promises, for: promises, answers: [40]}
"""


def test_rounds(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    out = tmp_path / "out"

    def bench(resume: bool) -> Benchmark:
        return partlabel.bench(
            tmp_path / "spec.yaml",
            out,
            resume=resume,
            labels=folder / "full.csv",
            features=folder / "features.npz",
        )

    lines = bench(False).results
    assert "epoch" not in capsys.readouterr().err
    assert [line.get("error") for line in lines] == [None] * len(lines)
    by_way = {way: [one for one in lines if one["method"] == way] for way in ("random", "ours")}
    for own in by_way.values():
        assert [line["answers"] for line in own] == [0, 20, 50] * 2
        assert [line["seconds"] for line in own] == [0, 40, 100] * 2
        gained = np.diff([line["known"] for line in own[:3]])
        assert gained.tolist() == [20, 30]
    starts = [[one["mAP"] for one in own if one["answers"] == 0] for own in by_way.values()]
    assert starts[0] == starts[1]  # all ways start from the same model
    promised = [line for line in lines if line.get("promised") is not None]
    assert len(promised) == 2
    text = (out / "table.md").read_text()
    assert "answers to reach the mAP of random after 50" in text
    assert (out / "curves.svg").read_text().startswith("<svg")
    times = {file: file.stat().st_mtime_ns for file in out.rglob("*.safetensors")}
    assert bench(True).results == lines
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*.safetensors")} == times


def test_a_signal_between_trainings_stops_the_comparison(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise StoppedError("stopped by SIGTERM", 15)

    monkeypatch.setattr("partlabel.output.bench.rounds.mean_precision", stopped)
    (tmp_path / "spec.yaml").write_text(SPEC)
    with pytest.raises(StoppedError):
        partlabel.bench(
            tmp_path / "spec.yaml",
            tmp_path / "out",
            labels=folder / "full.csv",
            features=folder / "features.npz",
        )
    assert not list((tmp_path / "out").rglob("error.txt"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("strategy: random}", "strategy: rnd}", "there is no strategy 'rnd'"),
        ("name: ours", "name: random", "two ways have the same name"),
        ("answers: [20, 30]", "answers: [0]", "must be more than 0"),
        ("methods: [", "methods: [{name: an, method: an}, ", "rounds need one method"),
        ("strategy: partial, proportions: [0.1]", "strategy: full", "hides labels"),
    ],
)
def test_wrong_rounds(folder: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC.replace(old, new))
    with pytest.raises(InputError, match=message):
        partlabel.bench(
            tmp_path / "spec.yaml",
            tmp_path / "out",
            labels=folder / "full.csv",
            features=folder / "features.npz",
        )


def test_answers_come_from_the_truth() -> None:
    truth = LabelTable(["a", "b"], ["x", "y"], [[1, -1], [0, 1]])
    labels = LabelTable(["b", "a"], ["y", "x"], [[0, 0], [-1, 0]])
    question = Question
    asked = [
        question("a", "x", 0.5, "chosen", None, 1.0, ""),
        question("b", "x", 0.5, "chosen", None, 1.0, ""),
        question("b", "y", None, "random", 0.1, 0.0, ""),
    ]
    table = answer(labels, truth, asked)
    assert table.dense().tolist() == [[1, 0], [-1, 1]]
    assert table.cells.asked_or_not().tolist() == [RANDOM, 0, CHOSEN]


def test_what_answers_save() -> None:
    assert np.isnan(answers_needed([(0, 0.1), (10, 0.2)], 0.3))
    assert answers_needed([(0, 0.4)], 0.3) == 0
    start = {"strategy": "partial", "proportion": 0.1, "asked": 0}
    lines = [
        {**start, "method": way, "seed": seed, "answers": n, "seconds": 2 * n, "mAP": value}
        for seed in (0, 1)
        for way, curve in {"random": [0.2, 0.3, 0.4], "ours": [0.2, 0.4, 0.5]}.items()
        for n, value in zip((0, 100, 200), curve, strict=True)
    ]
    sheets = tables_of_rounds(lines, "random").sheets
    assert sheets[1].rows == [
        ["random", "200", "35.00", "0 of 2"],
        ["ours", "100", "45.00", "2 of 2"],
    ]
