"""Completion: labels filled in are right as often as guaranteed, and known ones stay."""

import csv
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from partlabel import read_labels, train
from partlabel.base.errors import InputError
from partlabel.cli import main
from partlabel.judging.completion import Completion, complete_run
from partlabel.judging.completion.assessment import as_unknown
from partlabel.labels import ABSENT, MODEL, PRESENT, LabelTable, scenes, simulate
from partlabel.metrics.guarantee import at_least
from partlabel.training.run import Run

WORLD = scenes.World(classes=12, size=128, seed=0, difficulty=0.0, objects=1.3)
HOW: dict[str, Any] = {
    "frozen": "all",
    "size": 128,
    "epochs": 10,
    "lr": 3e-3,
    "weight_decay": 1e-3,
}


@dataclass
class Place:
    """Pictures whose features are kept, so that a training takes a second or two."""

    folder: Path
    truth: LabelTable

    def train(self, labels: LabelTable, name: str, **more: Any) -> Run:
        own = {"cache": self.folder / "cache", **HOW, **more}
        return train(labels, self.folder / "images", self.folder / name, **own)

    def complete(self, run: Run, precision: float = 0.95, **more: Any) -> Completion:
        return complete_run(run, precision, **more)

    def right(self, done: Completion) -> Any:
        """[n, C] where the completed table says what is true."""
        at = self.truth.ids.find(done.table.ids)
        return self.truth.dense()[at] == done.table.dense()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("completion") / "s"
    return Place(folder, scenes.write(folder, 1500, WORLD, test=0.0))


@pytest.mark.parametrize(
    ("strategy", "proportion", "method", "present"),
    [("partial", 0.4, "bce", True), ("single-positive", None, "em", False)],
)
def test_guarantees_hold(
    place: Place, strategy: str, proportion: float | None, method: str, present: bool
) -> None:
    """Over draws of the hidden labels, the holdout and the weights; the truth is known here."""
    made = broken = pairs = below = 0
    shares, found = [], 0
    for seed in range(6):
        labels = simulate.hide(place.truth, strategy, proportion, seed, holdout=0.4)
        options = {"alpha": "auto"} if method == "em" else {}
        name = f"{method}-{seed}"
        done = place.complete(place.train(labels, name, method=method, options=options, seed=seed))
        right, values = place.right(done), done.table.dense()
        filled = labels.dense() == 0
        assert np.array_equal(values[~filled], labels.dense()[~filled])
        filled &= values != 0
        assert filled.sum() == sum(numbers.sum() for numbers in done.filled.values())
        shares.append(done.share)
        found += int((filled & (values == PRESENT)).sum())
        for value, basis, classes in done.groups():
            for group in [[j] for j in classes] if basis == "class" else [classes]:
                here = filled[:, group] & (values[:, group] == value)
                made += here.any()
                broken += here.any() and right[:, group][here].mean() < 0.95
        for j in range(len(labels.classes)):
            pairs += filled[:, j].any()
            below += filled[:, j].any() and right[filled[:, j], j].mean() < 0.95
    # 5% may be wrong; more than this would happen by chance once in a hundred times
    assert broken <= binom.ppf(0.99, made, 0.05)
    assert below <= binom.ppf(0.99, pairs, 0.05)
    assert pairs > 40
    assert np.mean(shares) > 0.5
    assert (found > 100) or not present


def test_a_wrong_label_is_a_suspect(place: Place) -> None:
    rng = np.random.default_rng(0)
    labels = simulate.hide(place.truth, "partial", 1.0, 0, holdout=0.4)
    values = labels.dense()
    rows = np.flatnonzero(labels.in_split("train"))
    wrong = {
        (int(i), int(j))
        for i, j in zip(rng.choice(rows, 60), rng.integers(12, size=60), strict=True)
    }
    for i, j in wrong:
        values[i, j] *= -1
    given = LabelTable(labels.ids, labels.classes, values, labels.splits)
    done = place.complete(place.train(given, "wrong", method="bce", seed=1))
    assert np.array_equal(done.table.dense(), values)  # known labels stay, right or wrong
    assert done.unknown == 0
    names = list(given.classes)
    told = [(given.ids.find([s.image]).item(), names.index(s.name)) for s in done.suspects]
    found = sum(cell in wrong for cell in told)
    assert found > len(wrong) / 2
    assert found / len(told) > 20 * len(wrong) / values.size
    sure = [abs(suspect.score - 0.5) for suspect in done.suspects]
    assert sure == sorted(sure, reverse=True)
    trained = labels.in_split("train")
    for (i, j), suspect in zip(told, done.suspects, strict=True):
        assert suspect.trained == trained[i]
        assert suspect.value == values[i, j]
        assert (suspect.score > 0.5) == (values[i, j] == ABSENT)


def test_commands_write_what_it_rests_on(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = simulate.hide(place.truth, "partial", 0.4, 7, holdout=0.4)
    run = place.train(labels, "command", method="bce", seed=7)
    out, cache = tmp_path / "done.csv", ["--cache", str(place.folder / "cache")]
    assert (
        main(["complete", str(run.folder), "-o", str(out), "--min-precision", "0.9", *cache]) == 0
    )
    said = capsys.readouterr().out
    table = read_labels(out).with_classes(list(labels.classes))
    sources = np.zeros(table.shape, dtype=np.int8)
    sources[table.cells.rows, table.cells.columns] = table.cells.sources_or_human()
    values, given = table.dense(), labels.dense()
    filled = (given == 0) & (values != 0)
    assert (sources[filled] == MODEL).all()
    assert f"filled in {filled.sum():,} of {(given == 0).sum():,} unknown labels" in said
    assert "least 90% of the labels" in said
    assert not np.isnan(table.scores()).any()
    with (tmp_path / "done.guarantees.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    total = 0
    for line in lines:
        j, value = labels.classes.find([line["class"]]).item(), 2 * int(line["value"]) - 1
        here = filled[:, j] & (values[:, j] == value)
        assert here.sum() == int(line["filled"])
        total += int(here.sum())
        limit, scores = float(line["threshold"]), table.scores()[here, j]
        assert (value * (scores - limit) >= -1e-5).all()
        assert float(line["at_least"]) >= 0.9
        assert line["rests_on"] in ("class", "pooled")
        assert (int(line["classes"]) > 1) <= (line["rests_on"] == "pooled")
        counted = int(line["right"]) * float(line["counted_as"]) / int(line["tested"])
        bound = at_least(counted, float(line["counted_as"]))
        assert float(line["at_least"]) == pytest.approx(bound, abs=5e-3)
    assert total == filled.sum()
    assert (
        (tmp_path / "done.suspects.csv")
        .read_text()
        .startswith("image,class,value,score,trained_on\n")
    )
    alone = place.complete(run, 0.9, guarantee="class")
    assert {basis for _, basis, _ in alone.groups()} == {"class"}
    pooled = place.complete(run, 0.9, guarantee="pooled")
    assert {basis for _, basis, _ in pooled.groups()} == {"pooled"}
    for wrong, word in (
        ("--guarantee=all", "pooled"),
        ("--min-precision=1", "between 0 and 1"),
        ("--min-precision=95", "did you mean 0.95"),
        ("--to=yolo", "yolo"),
        ("--out=/dev/null", "three files"),
        (f"--out={tmp_path}/no/such.csv", "its folder does not exist"),
    ):
        call = ["complete", str(run.folder), "-o", str(out), "--overwrite", wrong, *cache]
        assert main(call) == 2
        assert word in capsys.readouterr().err
    before = out.read_bytes()
    assert main(["complete", str(run.folder), "-o", str(out), *cache]) == 2
    assert "exists" in capsys.readouterr().err
    assert out.read_bytes() == before


def test_other_ways_to_ask_are_told(place: Place) -> None:
    """Where little is filled in: what would be, as it then is."""
    labels = simulate.hide(place.truth, "partial", 0.4, 3, holdout=0.1)
    run = place.train(labels, "little", method="bce", seed=3)
    done = place.complete(run, 0.99)
    assert done.share < 0.5
    told = [note for note in done.notes if "other options would fill in more" in note]
    less = place.complete(run, 0.9)
    assert less.share > done.share
    assert told
    assert f"{100 * less.share:.0f}% with --min-precision 0.9" in told[0]


@pytest.mark.parametrize(
    ("strategy", "more", "why"),
    [
        ("single-positive", {}, "the known validation labels are all present"),
        ("partial", {"reserve": 0.0}, "without --reserve 0"),
        ("partial", {"val": 0.0}, "no validation images"),
    ],
)
def test_without_evidence_nothing_is_guaranteed(
    place: Place, strategy: str, more: dict[str, Any], why: str
) -> None:
    proportion = 0.4 if strategy == "partial" else None
    labels = simulate.hide(place.truth.subset(np.arange(300)), strategy, proportion, 0)
    name = why.replace(" ", "-")
    method = "bce" if proportion else "an"
    warns: Any = pytest.warns(match="all of one kind") if method == "an" else nullcontext()
    with warns:
        run = place.train(labels, name, method=method, **{**more, "epochs": 1})
    done = place.complete(run)
    assert why in done.notes[0]
    assert done.share == 0
    assert np.array_equal(done.table.dense(), labels.dense())


def world() -> tuple[LabelTable, LabelTable]:
    """Full labels of images to hold out and to train on; each has one positive at least."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random((6000, 6)) < rng.choice([0.05, 0.5], (6000, 1)), PRESENT, ABSENT)
    values[np.arange(6000), rng.integers(6, size=6000)] = PRESENT
    full = LabelTable([f"i{i}" for i in range(6000)], [f"c{j}" for j in range(6)], values)
    return full.subset(np.arange(3000)), full.subset(np.arange(3000, 6000))


def test_single_positives_leave_one_positive_fewer() -> None:
    held, others = world()
    left = as_unknown(held, simulate.single_positive(others, 0), 0)
    present = (held.dense() == PRESENT).sum(axis=1)
    assert np.array_equal((left == PRESENT).sum(axis=1), present - 1)
    assert np.array_equal(left == ABSENT, held.dense() == ABSENT)


def tags(full: LabelTable, share: float) -> LabelTable:
    """Of what is present, a share; nothing is known to be absent."""
    draw = np.random.default_rng(1).random(len(full.cells.values))
    return full.with_cells(full.cells.where((full.cells.values == PRESENT) & (draw < share)))


@pytest.mark.parametrize(
    "hide",
    [
        lambda full: simulate.single_positive(full, 0),
        lambda full: simulate.positive_and_negatives(full, 0),
        lambda full: simulate.partial(full, 0.1, 0),
        lambda full: simulate.partial(full, 0.8, 0),
        lambda full: tags(full, 0.5),
        lambda full: tags(full, 0.9),
    ],
    ids=["single", "positive+negatives", "10%", "80%", "half of the tags", "most tags"],
)
def test_full_labels_are_made_as_those_to_be_completed(hide: Any) -> None:
    """As many are present among them as among what is unknown in the training images."""
    held, others = world()
    given = hide(others)
    unknown = others.dense()[given.dense() == 0]
    left = as_unknown(held, given, 0)
    share = (left[left != 0] == PRESENT).mean()
    assert share == pytest.approx((unknown == PRESENT).mean(), abs=0.05)
    assert (left != 0).mean() == pytest.approx((given.dense() == 0).mean(), abs=0.02)


def test_labels_of_the_same_kind_are_a_sample_as_they_are() -> None:
    held, others = world()
    for share in (0.1, 0.5):
        alike = simulate.partial(held, share, 1)
        assert np.array_equal(
            as_unknown(alike, simulate.partial(others, share, 0), 0), alike.dense()
        )


def test_labels_that_are_no_sample_are_noticed(place: Place) -> None:
    """All absences and one positive are known: what is unknown is present, without exception."""
    labels = simulate.hide(place.truth, "positive+negatives", None, 0)
    run = place.train(labels, "no-sample", method="bce", val=0.4)
    notes = place.complete(run).notes
    assert any("no random sample" in note and "may not hold" in note for note in notes)


def test_precision_must_be_a_share() -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        complete_run(Run("nowhere"), 95)
