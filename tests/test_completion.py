"""Completion: labels filled in are right as often as guaranteed, and known ones stay."""

import csv
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from partlabel import read_labels, train, write_labels
from partlabel.base.errors import InputError
from partlabel.cli import main
from partlabel.judging.completion import Completion, complete_run
from partlabel.judging.completion.notes import classes_without_labels
from partlabel.labels import ABSENT, MODEL, PRESENT, LabelTable, scenes, simulate
from partlabel.metrics.known_cells import KnownCells
from partlabel.training.run import Run

WORLD = scenes.World(classes=12, size=128, seed=0, difficulty=0.0, objects=1.3)
SETTINGS: dict[str, Any] = {
    "backbone": "tf_efficientnet_lite0",
    "frozen": "all",
    "size": 128,
    "epochs": 10,
    "lr": 3e-3,
    "weight_decay": 1e-3,
    "split_duplicates": True,  # generated images look alike
}


@dataclass
class Dataset:
    """Generated images with cached features, so that a training takes a second or two."""

    folder: Path
    truth: LabelTable

    def train(self, labels: LabelTable, name: str, **more: Any) -> Run:
        settings = {"cache": self.folder / "cache", **SETTINGS, **more}
        return train(labels, self.folder / "images", self.folder / name, **settings)

    def complete(self, run: Run, precision: float = 0.95, **more: Any) -> Completion:
        return complete_run(run, precision, **more)

    def correct(self, completion: Completion) -> Any:
        """[n, C] where the completed table agrees with the truth."""
        rows = self.truth.ids.find(completion.table.ids)
        return self.truth.dense()[rows] == completion.table.dense()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("completion") / "s"
    return Dataset(folder, scenes.write(folder, 1500, WORLD, test=0.0))


@pytest.mark.parametrize(
    ("strategy", "proportion", "method", "present"),
    [("partial", 0.4, "bce", True), ("single-positive", None, "em", False)],
)
def test_guarantees_hold(
    dataset: Dataset, strategy: str, proportion: float | None, method: str, present: bool
) -> None:
    """Over random hidden labels, holdouts and weights; the true labels are known here."""
    guarantees = wrong = classes_filled = classes_below = present_filled = 0
    shares = []
    for seed in range(6):
        labels = simulate.hide(dataset.truth, strategy, proportion, seed, holdout=0.4)
        options = {"alpha": "auto"} if method == "em" else {}
        name = f"{method}-{seed}"
        run = dataset.train(labels, name, method=method, options=options, seed=seed)
        completion = dataset.complete(run)
        correct, values = dataset.correct(completion), completion.table.dense()
        unknown = labels.dense() == 0
        assert np.array_equal(values[~unknown], labels.dense()[~unknown])
        filled = unknown & (values != 0)
        assert filled.sum() == sum(numbers.sum() for numbers in completion.filled.values())
        shares.append(completion.share)
        present_filled += int((filled & (values == PRESENT)).sum())
        for group in completion.groups():
            assert group.unit == "image"  # images of the holdout test
            cells = completion.cells_of(group)
            assert cells.sum() == group.filled
            guarantees += bool(cells.any())
            wrong += bool(cells.any() and correct[cells].mean() < 0.95)
        for j in range(len(labels.classes)):
            classes_filled += filled[:, j].any()
            classes_below += filled[:, j].any() and correct[filled[:, j], j].mean() < 0.95
    # 5% may be wrong; more than this would happen by chance once in a hundred times
    assert wrong <= binom.ppf(0.99, guarantees, 0.05)
    assert classes_below <= binom.ppf(0.99, classes_filled, 0.05)
    assert classes_filled > 40
    assert np.mean(shares) > 0.5
    assert (present_filled > 100) or not present


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_reserved_labels_test_the_unknown_ones(dataset: Dataset, share: float) -> None:
    """No image is fully labelled; reserved labels are hidden from training and validation."""
    guarantees = wrong = present_filled = 0
    for seed in range(3):
        labels = simulate.hide(dataset.truth, "partial", share, seed)
        name = f"reserved-{share}-{seed}"
        run = dataset.train(labels, name, method="bce", seed=seed)
        selection = run.selection
        hidden = selection.tested.dense() != 0
        assert hidden.any()
        assert not selection.table.dense()[hidden].any()
        assert not selection.training.dense()[hidden[selection.train]].any()
        completion = dataset.complete(run, 0.9)
        correct, values = dataset.correct(completion), completion.table.dense()
        unknown = labels.dense() == 0
        assert np.array_equal(values[~unknown], labels.dense()[~unknown])  # reserved ones too
        present_filled += int((unknown & (values == PRESENT)).sum())
        for group in completion.groups():
            assert group.unit == "cell"
            cells = completion.cells_of(group)
            assert unknown[cells].all()
            guarantees += bool(cells.any())
            wrong += bool(cells.any() and correct[cells].mean() < 0.9)
    assert guarantees > 3
    assert wrong <= binom.ppf(0.99, guarantees, 0.05)
    assert present_filled > 50


def test_a_wrong_label_is_a_suspect(dataset: Dataset) -> None:
    rng = np.random.default_rng(0)
    labels = simulate.hide(dataset.truth, "partial", 1.0, 0, holdout=0.4)
    values = labels.dense()
    rows = np.flatnonzero(labels.in_split("train"))
    wrong = {
        (int(i), int(j))
        for i, j in zip(rng.choice(rows, 60), rng.integers(12, size=60), strict=True)
    }
    for i, j in wrong:
        values[i, j] *= -1
    with_errors = LabelTable(labels.ids, labels.classes, values, labels.splits)
    completion = dataset.complete(dataset.train(with_errors, "wrong", method="bce", seed=1))
    assert np.array_equal(completion.table.dense(), values)  # known labels stay, right or wrong
    assert completion.unknown == 0
    suspects, names = completion.suspects, list(labels.classes)
    cells = [(labels.ids.find([one.image]).item(), names.index(one.name)) for one in suspects]
    hits = sum(cell in wrong for cell in cells)
    assert hits > len(wrong) / 2
    assert hits / len(cells) > 20 * len(wrong) / values.size
    certainties = [abs(suspect.score - 0.5) for suspect in suspects]
    assert certainties == sorted(certainties, reverse=True)
    trained = labels.in_split("train")
    for (i, j), suspect in zip(cells, suspects, strict=True):
        assert suspect.trained == trained[i]
        assert suspect.value == values[i, j]
        assert (suspect.score > 0.5) == (values[i, j] == ABSENT)
    confirm(dataset, completion, with_errors, cells[:3])


def confirm(
    dataset: Dataset, completion: Completion, labels: LabelTable, cells: list[tuple[int, int]]
) -> None:
    """Labels that a human confirms in the list of suspects are no suspects of the next run."""
    folder = dataset.folder
    _, _, path, *_ = completion.save(folder / "completed.csv")
    with path.open() as stream:
        rows = list(csv.DictReader(stream))
    for row in rows[: len(cells)]:
        row["checked"] = "x"
    with path.open("w") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    write_labels(labels, folder / "labels.csv")
    checked = folder / "checked.arrow"
    assert (
        main(["merge", f"{folder}/labels.csv", str(path), "--corrections", "-o", str(checked)]) == 0
    )
    confirmed = read_labels(checked)
    again = dataset.complete(dataset.train(confirmed, "confirmed", method="bce", seed=1))
    assert np.array_equal(again.table.dense(), completion.table.dense())
    assert len(again.suspects) == len(completion.suspects) - len(cells)
    assert again.suspects == completion.suspects[len(cells) :]


def test_the_command_writes_labels_and_evidence(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = simulate.hide(dataset.truth, "partial", 0.4, 7, holdout=0.4)
    run = dataset.train(labels, "command", method="bce", seed=7)
    out, cache = tmp_path / "done.csv", ["--cache", str(dataset.folder / "cache")]
    assert (
        main(["complete", str(run.folder), "-o", str(out), "--min-precision", "0.9", *cache]) == 0
    )
    text = capsys.readouterr().out
    table = read_labels(out).with_classes(list(labels.classes))
    sources = np.zeros(table.shape, dtype=np.int8)
    sources[table.cells.rows, table.cells.columns] = table.cells.sources_or_human()
    values, unknown = table.dense(), labels.dense() == 0
    filled = unknown & (values != 0)
    assert (sources[filled] == MODEL).all()
    assert f"filled in {filled.sum():,} of {unknown.sum():,} unknown labels" in text
    assert "least 90% of the labels" in text
    scored = ~np.isnan(table.scores())
    assert np.array_equal(scored, values != 0)  # of known labels, and of those filled in
    everything, call = tmp_path / "all.csv", ["complete", str(run.folder), "--all-scores", *cache]
    assert main([*call, "-o", str(everything), "--min-precision", "0.9"]) == 0
    capsys.readouterr()
    whole = read_labels(everything).with_classes(list(labels.classes))
    assert np.array_equal(whole.dense(), values)
    assert not np.isnan(whole.scores()).any()
    assert np.array_equal(whole.scores()[scored], table.scores()[scored])
    with (tmp_path / "done.guarantees.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    total = 0
    assert {(line["class"], line["value"]) for line in lines} == {
        (name, value) for name in labels.classes for value in "01"
    }
    for line in lines:
        j, value = labels.classes.find([line["class"]]).item(), 2 * int(line["value"]) - 1
        rows = filled[:, j] & (values[:, j] == value)
        assert rows.sum() == int(line["filled"])
        if line["rests_on"] == "nothing":
            assert line["filled"] == "0"
            assert line["threshold"] == line["at_least"] == ""
            continue
        total += int(rows.sum())
        threshold, scores = float(line["threshold"]), table.scores()[rows, j]
        assert (value * (scores - threshold) >= -1e-5).all()
        assert float(line["at_least"]) >= 0.9
        assert line["rests_on"] in ("class", "pooled")
        assert (int(line["classes"]) > 1) <= (line["rests_on"] == "pooled")
        assert line["drawn"] == "image"
        assert int(line["right"]) <= int(line["tested"])
        truth = dataset.truth.dense()[dataset.truth.ids.find(table.ids), j]
        share = (truth[unknown[:, j]] == PRESENT).mean()
        ends = float(line["prevalence_from"]), float(line["prevalence_to"])
        assert ends[0] - 0.1 <= share <= ends[1] + 0.1
        assert 0 <= float(line["recall_at_least"]) <= 1
    assert total == filled.sum()
    assert (
        (tmp_path / "done.suspects.csv")
        .read_text()
        .startswith("image,class,value,score,trained_on,asked,checked\n")
    )
    doubtful = (tmp_path / "done.doubtful.csv").read_text().splitlines()
    assert doubtful[0] == "image,class,value,score,asked"
    assert len(doubtful) > 1 or (values != 0).all()
    alone = dataset.complete(run, 0.9, guarantee="class")
    assert {group.basis for group in alone.groups()} == {"class"}
    pooled = dataset.complete(run, 0.9, guarantee="pooled")
    assert {group.basis for group in pooled.groups()} == {"pooled"}
    for wrong, message in (
        ("--guarantee=all", "pooled"),
        ("--min-precision=1", "between 0 and 1"),
        ("--min-precision=95", "did you mean 0.95"),
        ("--to=yolo", "yolo"),
        ("--out=/dev/null", "five files"),
        ("--guarantee=cross", "not trained on an image"),
        (f"--out={tmp_path}/no/such.csv", "its folder does not exist"),
    ):
        call = ["complete", str(run.folder), "-o", str(out), "--overwrite", wrong, *cache]
        assert main(call) == 2
        assert message in capsys.readouterr().err
    before = out.read_bytes()
    assert main(["complete", str(run.folder), "-o", str(out), *cache]) == 2
    assert "exists" in capsys.readouterr().err
    assert out.read_bytes() == before


def test_better_options_are_named_if_little_is_filled_in(dataset: Dataset) -> None:
    """The note states the share that is filled in with such an option."""
    labels = simulate.hide(dataset.truth, "partial", 0.4, 3, holdout=0.1)
    run = dataset.train(labels, "little", method="bce", seed=3)
    strict, lenient = dataset.complete(run, 0.99), dataset.complete(run, 0.9)
    assert strict.share < 0.5
    assert lenient.share > strict.share
    notes = [note for note in strict.notes if "other options would fill in more" in note]
    assert notes
    assert f"{100 * lenient.share:.0f}% with --min-precision 0.9" in notes[0]


@pytest.mark.parametrize(
    ("strategy", "more", "why"),
    [
        ("single-positive", {}, "the known labels are all present"),
        ("partial", {"reserve": 0.0}, "without --reserve 0"),
    ],
)
def test_without_evidence_nothing_is_guaranteed(
    dataset: Dataset, strategy: str, more: dict[str, Any], why: str
) -> None:
    proportion = 0.4 if strategy == "partial" else None
    labels = simulate.hide(dataset.truth.subset(np.arange(300)), strategy, proportion, 0)
    name = why.replace(" ", "-")
    method = "bce" if proportion else "an"
    warns: Any = pytest.warns(match="all of one kind") if method == "an" else nullcontext()
    with warns:
        run = dataset.train(labels, name, method=method, **{**more, "epochs": 1})
    completion = dataset.complete(run)
    assert why in completion.notes[0]
    assert completion.share == 0
    assert np.array_equal(completion.table.dense(), labels.dense())
    _, path, *_ = completion.save(dataset.folder / f"{name}.csv")
    with path.open() as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == 2 * len(labels.classes)
    assert {(line["filled"], line["rests_on"], line["tested"]) for line in lines} == {
        ("0", "nothing", "")
    }


def test_a_biased_sample_of_labels_is_reported(dataset: Dataset) -> None:
    """All absent labels and one present label are known, so all unknown labels are present."""
    labels = simulate.hide(dataset.truth, "positive+negatives", None, 0)
    run = dataset.train(labels, "no-sample", method="bce", val=0.4)
    notes = dataset.complete(run).notes
    assert any("not a random sample" in note and "may not hold" in note for note in notes)


def test_the_origin_of_a_biased_sample_is_named(dataset: Dataset) -> None:
    """Labels of both origins are missing at random, but one notes few of its present labels."""
    truth, rng = dataset.truth.dense(), np.random.default_rng(0)
    south = np.arange(len(truth)) % 3 == 0
    share = np.where(south[:, None] & (truth == PRESENT), 0.1, 0.5)
    labels = np.where(rng.random(truth.shape) < share, truth, 0)
    parts = [
        LabelTable(np.array(dataset.truth.ids)[rows].tolist(), dataset.truth.classes, labels[rows])
        for rows in (~south, south)
    ]
    table = parts[0].with_origin("north").merge(parts[1].with_origin("south"))
    notes = dataset.complete(dataset.train(table, "one-biased", method="bce")).notes
    assert any("may not hold" in note and "of origin 'south'" in note for note in notes)


@pytest.mark.parametrize(
    ("present", "said"),
    [
        (20, "20 of the labels that test are present, and about 517 are needed to show 95%"),
        (600, "600 of the labels that test are present, which is usually enough to show 95%"),
    ],
)
def test_why_no_present_label_is_filled_in(present: int, said: str) -> None:
    labels = np.repeat(np.array([1, -1], dtype=np.int8), [present, 900])
    rows, zeros = np.arange(len(labels)), np.zeros(len(labels), dtype=np.int64)
    held = KnownCells(rows, zeros, labels, zeros.astype(float), 1)
    material = SimpleNamespace(fillable=np.array([50]), choosing=held, tested=held)
    filled = {PRESENT: np.array([0])}
    assessment: Any = SimpleNamespace(precision=0.95, material=material, filled=filled)
    selection: Any = SimpleNamespace(classes=["cat"])
    note = classes_without_labels(assessment, selection)
    assert f"no present label is filled in for 1 class. 'cat': {said}" in note
    assert ("more known labels" in note) == (present < 517)


def test_precision_must_be_a_share() -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        complete_run(Run("nowhere"), 95)


@pytest.mark.parametrize("format", ["cells", "arrow"])
def test_origins_of_classes_that_were_not_learned_are_kept(dataset: Dataset, format: str) -> None:
    labels = simulate.partial(dataset.truth, 0.3, 0)
    never = np.where(np.arange(len(labels))[:, None] < 50, ABSENT, 0)
    others = LabelTable(labels.ids, ["never"], never).with_origin("team")
    run = dataset.train(labels.merge(others), f"origins-{format}", method="bce", drop_empty=True)
    path, *_ = dataset.complete(run).save(dataset.folder / f"origins.{format}", format)
    stored = read_labels(path)
    assert list(stored.origins) == ["team"]
    assert np.count_nonzero(stored.cells.origins_or_none()) == 50
