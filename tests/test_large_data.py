"""Very many images: cells in bins, files that are written as they are made, and bounded memory."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet
from scipy import sparse

import partlabel
from partlabel import read_labels, write_labels
from partlabel.base.errors import InputError, JobError
from partlabel.cli import main
from partlabel.judging import image_scores
from partlabel.judging.completion import Completion, complete_run, survey
from partlabel.judging.completion.completed_parts import Filling
from partlabel.judging.completion.meters import (
    BINS,
    BinMeter,
    Calibrated,
    Grid,
    bins_of,
)
from partlabel.judging.image_scores import ComputedScores, KeptScores, scores_of
from partlabel.judging.predicted_labels import PredictedLabels
from partlabel.judging.scoring import thresholds_or_half
from partlabel.labels import ABSENT, MODEL, PRESENT, LabelTable
from partlabel.metrics.calibration import Calibration
from partlabel.output.report.sample import take_sample
from partlabel.training.run import Run

IMAGES, CLASSES, FEATURES = 1500, 6, 24


def make_run(folder: Path, **settings: Any) -> Run:
    """A run on features, whose labels have origins, splits, and a class that is not learned."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(IMAGES, FEATURES)).astype(np.float32)
    logits = 0.7 * features @ rng.normal(size=(FEATURES, CLASSES)) - 1
    truth = np.where(rng.logistic(size=logits.shape) < logits, PRESENT, ABSENT)
    labels = np.where(rng.random(truth.shape) < 0.4, truth, 0)
    labels[:, -1] = np.where(rng.random(IMAGES) < 0.1, ABSENT, 0)
    names = [f"i{i:04}" for i in range(IMAGES)]
    splits = ["train"] * 1300 + ["other"] * 200
    table = LabelTable(names, [f"c{j}" for j in range(CLASSES)], labels, splits)
    origins = (1 + (table.cells.rows > 700)).astype(np.uint8)
    cells = table.cells.with_details(origins=origins)
    table = LabelTable.from_cells(names, table.classes, cells, splits, ["north", "south"])
    np.savez(folder / "x.npz", ids=names, features=features)
    solver: dict[str, Any] = {"optimizer": "lbfgs", "weight_decay": 1e-3, "epochs": 4}
    given: dict[str, Any] = {"method": "bce", "drop_empty": True, **solver, **settings}
    return partlabel.train(table, out=folder / "run", features=folder / "x.npz", **given)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("large"))


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All data are very large."""
    monkeypatch.setattr(image_scores, "KEPT", 0)


def completed(run: Run, precision: float = 0.8, **options: Any) -> Completion:
    return complete_run(run, precision, **options)


# ---- bins


def test_bins_fill_in_about_what_exact_logits_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = completed(run)
    monkeypatch.setattr(image_scores, "KEPT", 0)
    binned = completed(run)
    assert isinstance(exact.assessment.material.scores, KeptScores)
    assert isinstance(binned.assessment.material.scores, ComputedScores)
    assert isinstance(binned.assessment.material.meter, BinMeter)
    for value in (PRESENT, ABSENT):
        assert exact.total[value] > 100
        assert binned.total[value] == pytest.approx(exact.total[value], rel=0.1)
    assert binned.suspects == exact.suspects
    known = exact.table.dense() == exact.filling.table.with_more_classes(["c5"]).dense()
    assert np.array_equal(exact.table.dense()[known & (exact.table.dense() != 0)],
                          binned.table.dense()[known & (exact.table.dense() != 0)])  # fmt: skip


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("settings", [{}, {"method": "auto", "budget": "2", "folds": 3}])
def test_what_is_counted_is_what_is_filled_in(
    settings: dict[str, Any], run: Run, tmp_path: Path
) -> None:
    """Numbers are counted in the first pass, labels are filled in in the second."""
    used = run
    if settings:
        nothing = {"optimizer": None, "weight_decay": None, "epochs": None}
        used = make_run(tmp_path, **{**nothing, **settings})
    done = completed(used)
    paths = done.save(tmp_path / "done.csv")
    table = read_labels(paths[0])
    filled = table.cells.where(table.cells.sources_or_human() == MODEL)
    assert sum(done.total.values()) > 100
    for value in (PRESENT, ABSENT):
        columns = filled.columns[filled.values == value]
        names = [table.classes[int(j)] for j in columns]
        counts = {name: names.count(name) for name in done.filling.table.classes}
        assert list(counts.values()) == done.filled[value].tolist()
    with paths[1].open() as stream:
        lines = list(csv.DictReader(stream))
    for name in done.filling.table.classes:  # no label is filled in below its threshold
        for value, digit in ((PRESENT, "1"), (ABSENT, "0")):
            ours = [line for line in lines if (line["class"], line["value"]) == (name, digit)]
            limits = [value * float(line["threshold"]) for line in ours if line["threshold"]]
            least = min(limits, default=np.inf)
            own = filled.columns == table.classes.find([name])[0]
            scores = filled.scores_or_nan()[own & (filled.values == value)]
            assert (value * scores >= least - 1e-6).all()
    with paths[-1].open() as stream:
        by_origin = list(csv.DictReader(stream))
    for value, column in ((PRESENT, "present"), (ABSENT, "absent")):
        assert sum(int(line[column]) for line in by_origin) == done.total[value]


@pytest.mark.parametrize("classes", [[1, 2, 3], [0, 2, 4]])
def test_cells_are_counted_in_bins(classes: list[int]) -> None:
    rng = np.random.default_rng(0)
    bins, total = rng.integers(0, BINS, size=(5, 300)), np.ones((5, BINS), dtype=np.int32)
    wanted = total.copy()
    for j in classes:
        wanted[j] += np.bincount(bins[j], minlength=BINS).astype(np.int32)
    survey._add(total, np.array(classes), torch.from_numpy(bins.astype(np.int16)))
    assert np.array_equal(total, wanted)


def test_a_limit_is_a_bin_that_is_confident_enough() -> None:
    rng = np.random.default_rng(0)
    own = np.ones(3, dtype=np.bool_)
    rough = Calibration(rng.uniform(0.5, 2, 3), rng.normal(size=3), own)
    final = Calibration(rng.uniform(0.5, 2, 3), rng.normal(size=3), own)
    meter = BinMeter(Grid(rough), Calibrated(final))
    logits = rng.normal(0, 4, (2000, 3)).astype(np.float32)
    rows, columns = np.divmod(np.arange(logits.size), 3)
    low, high = meter.ends(rows, columns, logits.reshape(-1))
    exact = final.of_class(columns)
    calibrated = logits.reshape(-1) * exact.slopes + exact.intercepts
    assert (low <= calibrated + 1e-5).all()
    assert (calibrated <= high + 1e-5).all()
    assert (high - low).max() < 0.1
    thresholds = np.array([0.3, 1.7, np.inf])
    numbers = meter.values(np.arange(2000), torch.from_numpy(logits)).numpy()
    for value, ends in ((PRESENT, low), (ABSENT, -high)):
        limits = meter.limits(value, thresholds)
        beyond = numbers >= limits if value == PRESENT else numbers <= limits
        assert np.array_equal(beyond.reshape(-1), ends >= thresholds[columns])
    counts = np.zeros((3, BINS), dtype=np.int64)
    bins = np.clip(numbers, 0, BINS - 1).astype(np.int64)
    np.add.at(counts, (columns, bins.reshape(-1)), 1)
    spread = meter.spread(counts)
    for value, ends in ((PRESENT, low), (ABSENT, -high)):
        number = [int((ends[columns == j] >= thresholds[j]).sum()) for j in range(3)]
        assert spread.beyond(value, thresholds).tolist() == number


@pytest.mark.usefixtures("large")
def test_scores_of_images_are_kept_in_a_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take long to compute; here as if the features were image files."""
    expected = {
        tuple(rows): logits for rows, logits in scores_of(run, run.selection.known).blocks()
    }
    monkeypatch.setitem(vars(run), "features", None)
    passes: list[int] = []

    def count(*arguments: Any, **more: Any) -> Any:
        passes.append(1)
        return iter([(np.array(rows), logits) for rows, logits in expected.items()])

    monkeypatch.setattr(image_scores, "score_blocks", count)
    kept = scores_of(run, run.selection.known)
    assert isinstance(kept, KeptScores)
    assert isinstance(kept.logits, np.memmap)
    for _ in range(2):
        for rows, logits in kept.blocks():
            assert np.array_equal(logits, expected[tuple(rows)])
    assert len(passes) == 1
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 10})())
    with pytest.raises(JobError, match="TMPDIR"):
        scores_of(run, run.selection.known)


# ---- files that are written as they are made


@pytest.mark.parametrize("name", ["done.parquet", "done.csv", "done.arrow"])
@pytest.mark.parametrize("all_scores", [False, True])
def test_a_file_written_in_parts_equals_one_written_at_once(
    name: str, all_scores: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_scores, "_BLOCK", 100)
    monkeypatch.setattr("partlabel.labels.formats.cell_list._GROUP", 700)
    done, form = completed(run, all_scores=all_scores), Path(name).suffix[1:]
    target = "arrow" if form == "arrow" else "cells"
    done.save(tmp_path / name, target)
    assert "table" not in vars(done)  # it was never in memory
    at_once = tmp_path / f"at_once.{form}"
    write_labels(done.table, at_once, target)
    assert read_labels(tmp_path / name) == read_labels(at_once) == done.table
    assert done.table.splits is not None
    assert list(done.table.origins) == ["north", "south"]
    if form == "parquet":
        parts, whole = (parquet.read_table(path) for path in (tmp_path / name, at_once))
        named = parts.filter(parts["image"].is_valid())
        assert named.equals(whole.filter(whole["image"].is_valid()))
        assert parquet.read_metadata(tmp_path / name).num_row_groups > 5


@pytest.mark.parametrize("name", ["new.parquet", "new.csv", "new.arrow"])
def test_predictions_are_written_while_they_are_computed(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, form = run.folder.parent / "x.npz", Path(name).suffix[1:]
    target = "arrow" if form == "arrow" else "cells"
    table, at_once = partlabel.predict(run, features=features), tmp_path / f"at_once.{form}"
    write_labels(table, at_once, target)
    monkeypatch.setattr(PredictedLabels, "whole", None)  # all labels are never in memory
    call = ["predict", str(run.folder), "--features", str(features), "--to", target]
    assert main([*call, "-o", str(tmp_path / name)]) == 0
    assert read_labels(tmp_path / name) == read_labels(at_once)
    if form == "csv":  # with the same lines: no class has to be named before the first image
        assert (tmp_path / name).read_text() == at_once.read_text()
    weights = {
        part: value.double().numpy() for part, value in run.classifier().state_dict().items()
    }
    weight, bias = (weights[f"head.classifier.{part}"] for part in ("weight", "bias"))
    with np.load(features) as content:
        logits = content["features"].astype(np.float64) @ weight.T + bias
    assert run.record.calibration is not None
    wanted = run.record.calibration.open().probabilities(1 / (1 + np.exp(-logits)))
    scores = table.cells.scores_or_nan().reshape(wanted.shape)
    np.testing.assert_allclose(scores, wanted, rtol=1e-4)
    thresholds = thresholds_or_half(run)
    clear = np.abs(1 / (1 + np.exp(-logits)) - thresholds) > 1e-5
    present = 1 / (1 + np.exp(-logits)) > thresholds
    assert np.array_equal(table.dense()[clear] == PRESENT, present[clear])


def test_what_scores_given_features_imports_no_network(run: Run) -> None:
    """Importing timm and Lightning takes longer than scoring a hundred thousand images."""
    call = ["evaluate", str(run.folder), "--reserved"]
    code = (
        f"import sys; from partlabel.cli import main; assert main({call!r}) == 0; "
        "found = {'timm', 'torchvision', 'lightning_fabric'} & set(sys.modules); "
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_most_doubtful_labels_do_not_depend_on_parts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partlabel.judging.completion.doubts._MOST_DOUBTFUL", 50)
    whole = completed(run).doubtful
    monkeypatch.setattr(image_scores, "_BLOCK", 7)
    assert completed(run).doubtful == whole
    assert len(whole) == 50
    logits = [abs(np.log(one.score / (1 - one.score))) for one in whole]
    assert logits == sorted(logits)


KILLED = """
import os, signal, sys
from partlabel.judging import image_scores
from partlabel.judging.completion.completed_parts import Filling
image_scores.KEPT, image_scores._BLOCK = 0, 100
parts, made = Filling.parts, []
def some_parts(self):
    for part in parts(self):
        made.append(part)
        if len(made) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield part
Filling.parts = some_parts
from partlabel.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("name", ["done.parquet", "done.arrow"])
def test_a_completion_that_is_killed_leaves_nothing_torn(
    name: str, run: Run, tmp_path: Path
) -> None:
    form = ["--to", "arrow"] if name.endswith("arrow") else []
    call = [
        "complete",
        str(run.folder),
        "-o",
        str(tmp_path / name),
        "--min-precision",
        "0.8",
        *form,
    ]
    for before in (False, True):
        if before:
            (tmp_path / name).write_bytes(b"old")
        killed = subprocess.run([sys.executable, "-c", KILLED, *call, "--overwrite"], check=False)
        assert killed.returncode == -signal.SIGKILL
        seen = [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")]
        assert seen == ([name] if before else [])
    assert (tmp_path / name).read_bytes() == b"old"
    assert main([*call, "--overwrite"]) == 0
    assert len(read_labels(tmp_path / name)) == IMAGES


def test_an_error_while_labels_are_made_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Filling) -> Any:
        yield from ()
        raise OSError("the disk is gone")

    monkeypatch.setattr(Filling, "parts", fail)
    with pytest.raises(JobError, match="the disk is gone"):
        completed(run).save(tmp_path / "done.parquet")
    assert not list(tmp_path.iterdir())


# ---- memory

MEASURED = """
import json, sys, pyarrow.parquet, scipy.special, scipy.optimize, scipy.stats, scipy.sparse.linalg
import partlabel.judging.labelling, partlabel.training.train, partlabel.output.display
from partlabel.cli import main
def status(name):
    return int(open("/proc/self/status").read().split(name)[1].split()[0]) * 1024
before = status("VmRSS:")
code = main(sys.argv[1:])
print(json.dumps([code, status("VmHWM:") - before]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_memory_does_not_grow_with_images_times_classes(tmp_path: Path) -> None:
    """An array of single precision for all labels would take 180 MB here, and there were many."""
    images, classes = 150_000, 300
    rng = np.random.default_rng(0)
    features = rng.standard_normal((images, 8), dtype=np.float32)
    np.save(tmp_path / "x.npy", features)
    ids = [f"{i:07}" for i in range(images)]
    (tmp_path / "x.npy.ids.txt").write_text("\n".join(ids) + "\n")
    rows = np.repeat(np.arange(images), 2)
    columns = (rows * 7 + np.tile([0, 150], images) + rng.integers(0, 50, len(rows))) % classes
    values = np.where(features[rows, columns % 8] + rng.normal(size=len(rows)) > 0, 1, -1)
    matrix = sparse.csr_array((values.astype(np.int8), (rows, columns)), shape=(images, classes))
    table = LabelTable(ids, [f"c{j}" for j in range(classes)], matrix)
    table.save(tmp_path / "y.arrow")
    assert images * classes > image_scores.KEPT
    given = ["--features", str(tmp_path / "x.npy")]
    solver = ["--method", "bce", "--optimizer", "lbfgs", "--weight-decay", "1e-5", "--epochs", "1"]
    calls = {
        "train": ["train", f"{tmp_path}/y.arrow", *given, *solver, "--out", f"{tmp_path}/run"],
        "evaluate": ["evaluate", f"{tmp_path}/run", f"{tmp_path}/y.arrow", *given],
        "complete": ["complete", f"{tmp_path}/run", *given, "-o", f"{tmp_path}/done.parquet"],
    }
    peaks = {}
    for name, call in calls.items():
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *call], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        code, peaks[name] = json.loads(done.stdout.splitlines()[-1])
        assert code == 0, done.stderr
    assert max(peaks.values()) < 800e6, peaks


def test_auto_says_before_it_begins_that_images_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partlabel.training.auto.memory_check.physical_memory", lambda: 10**5)
    nothing = {"optimizer": None, "weight_decay": None, "epochs": None}
    with pytest.raises(InputError, match=r"--method auto keeps .* Name another --method"):
        make_run(tmp_path, **nothing, method="auto", budget="2", folds=3)
    assert not (tmp_path / "run" / "run.json").exists()
    assert make_run(tmp_path).record.finished  # others need no such memory


def test_a_report_on_very_many_images_takes_a_sample(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures are then those of a part of the validation images, which the page says."""
    images = len(run.selection.val)
    assert "random sample of" not in partlabel.report(run).read_text()
    monkeypatch.setattr("partlabel.output.report.sample._MOST_TRAINING", 50)
    monkeypatch.setattr("partlabel.output.report.sample._MOST_SCORES", 5 * 100)
    sample = take_sample(run)
    assert (len(sample.val_labels), sample.drawn_from) == (100, 0)  # single labels are reserved
    monkeypatch.setattr("partlabel.output.report.sample._held_labels", lambda run: None)
    page = partlabel.report(run).read_text()
    assert "labels of 100 validation images" in page
    assert f"These are a random sample of {images}." in page


def test_what_lies_beyond_the_bins_is_never_confident() -> None:
    """Bins are made for a rough calibration; the final one may be far from it."""
    some = np.ones(1, dtype=np.bool_)
    rough = Calibration(np.ones(1), np.zeros(1), some)
    final = Calibration(np.full(1, 0.05), np.full(1, 2.0), some)
    meter = BinMeter(Grid(rough), Calibrated(final))
    logits = torch.tensor([[-60.0], [-35.0], [-31.0], [10.0]])
    numbers = meter.values(np.arange(4), logits)
    counts = np.zeros((1, BINS), dtype=np.int64)
    np.add.at(counts[0], bins_of(numbers.numpy()[:, 0]), 1)
    spread, threshold = meter.spread(counts), np.array([0.3])
    filled = numbers[:, 0].double() >= meter.limits(PRESENT, threshold)[0]
    assert filled.tolist() == [False, False, True, True]  # truly -1, 0.25, 0.45 and 2.5
    assert spread.beyond(PRESENT, threshold).tolist() == [2]
