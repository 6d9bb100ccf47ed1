"""Comparisons that must not mislead: resampled test images, biased test labels, near-duplicates."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ttest_1samp, ttest_rel

import partlabel
from partlabel.base.errors import FileError, InputError
from partlabel.cli import main
from partlabel.labels import LabelTable, simulate
from partlabel.labels.formats import read_labels, write_labels
from partlabel.labels.groups import Groups
from partlabel.metrics import evaluate
from partlabel.metrics.known_cells import known_cells
from partlabel.metrics.resampling import resampled_map
from partlabel.output.bench import read_spec, tables
from partlabel.output.bench.jobs import usable_rows
from partlabel.output.bench.label_bias import bias_notes
from partlabel.output.bench.own_labels import SPEC, spec_for
from partlabel.output.bench.spec import Spec
from partlabel.output.bench.spec_labels import read_table
from partlabel.output.bench.uncertainty import draw_samples, sureness
from partlabel.training.run import Run


def table_of(values: NDArray[np.int64], splits: list[str] | None = None) -> LabelTable:
    names = [f"i{n}" for n in range(len(values))]
    return LabelTable(names, [f"c{j}" for j in range(values.shape[1])], values, splits)


# -- resampled test images -------------------------------------------------------------------------


@pytest.mark.parametrize("decimals", [1, 9])
def test_the_map_of_samples_is_that_of_repeated_images(decimals: int) -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((40, 6)).round(decimals)  # with equal scores, and without
    labels = rng.choice([-1, -1, 0, 1], size=(40, 6)).astype(np.int8)
    labels[:, 5] = np.minimum(labels[:, 5], 0)  # a class that is never present
    labels[1:, 4] = np.minimum(labels[1:, 4], 0)  # and one that some samples do not have
    labels[0, 4] = 1
    times = rng.multinomial(40, np.full(40, 1 / 40), size=30)
    wanted = [
        evaluate(np.repeat(scores, drawn, axis=0), np.repeat(labels, drawn, axis=0))["mAP"]
        for drawn in times
    ]
    np.testing.assert_allclose(resampled_map(known_cells(scores, labels), times), wanted)


def test_no_known_label_has_no_map() -> None:
    empty = np.zeros((5, 2), dtype=np.int8)
    cells = known_cells(np.ones((5, 2)), empty)
    assert np.isnan(resampled_map(cells, np.ones((3, 5), dtype=np.int64))).all()


def test_without_spread_over_images_the_p_value_is_that_of_a_paired_test() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.random(6), rng.random(6)
    same = [np.full(50, value) for value in second - first]
    sure = sureness(list(second - first), same, same_images=True, folds=0)
    assert sure is not None
    assert sure.p_value == pytest.approx(ttest_rel(second, first).pvalue)
    low, high = ttest_1samp(second - first, 0).confidence_interval(0.95)
    assert (sure.low, sure.high) == pytest.approx((low, high))


def test_a_difference_that_other_test_images_would_undo_is_not_sure() -> None:
    """Three seeds agree, because they have the same hundred test images."""
    rng = np.random.default_rng(1)
    values = [0.0055, 0.0048, 0.0060]
    assert ttest_1samp(values, 0).pvalue < 0.01
    samples = rng.normal(0, 0.01, size=200)
    resampled = [value + samples for value in values]
    sure = sureness(values, resampled, same_images=True, folds=0)
    assert sure is not None
    assert sure.p_value > 0.5
    assert sure.low < 0 < sure.high
    alone = sureness(values[:1], resampled[:1], same_images=True, folds=0)
    assert alone is not None
    assert alone.high - alone.low == pytest.approx(2 * 1.97 * samples.std(ddof=1), rel=0.01)


def test_folds_are_corrected_for_shared_training_images() -> None:
    values = [0.01, 0.03, 0.02, 0.04, 0.03]
    resampled = [np.zeros(10)] * 5
    sure = sureness(values, resampled, same_images=False, folds=5)
    assert sure is not None
    error = (np.var(values, ddof=1) * (1 / 5 + 1 / 4)) ** 0.5  # Nadeau and Bengio
    assert (sure.high - sure.low) / 2 == pytest.approx(2.776445 * error, rel=1e-5)
    assert sureness([0.1, 0.1], [np.zeros(4)] * 2, same_images=True, folds=0) is None


def test_samples_are_drawn_with_replacement() -> None:
    times = draw_samples(50)
    assert (times.sum(axis=1) == 50).all()
    assert times.max() > 1
    assert abs(times.mean(axis=0) - 1).max() < 0.4


# -- biased test labels ----------------------------------------------------------------------------


def test_random_gaps_are_no_bias() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice([-1, -1, -1, 1], size=(400, 8))
    for share in (0.1, 0.5):
        known = np.where(rng.random(truth.shape) < share, truth, 0)
        assert bias_notes(table_of(known)) == []
    assert bias_notes(table_of(truth)) == []


def test_images_with_tags_only_are_a_bias() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice([-1, -1, -1, 1], size=(400, 8))
    whole = rng.random(400) < 0.3
    known = np.where(whole[:, None], truth, np.maximum(truth, 0))
    (note,) = bias_notes(table_of(known))
    assert "100% of them are present in images with fewer than 8 known labels" in note
    assert "mAP_whole" in note


def test_sources_and_classes_that_differ_are_a_bias() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice([-1, -1, -1, 1], size=(300, 4))
    first, second = truth.copy(), np.maximum(truth, 0)
    first[100:], second[:100] = 0, 0
    merged = table_of(first).with_origin("team").merge(table_of(second).with_origin("web"))
    assert any("'web'" in note and "100%" in note for note in bias_notes(merged))
    uneven = truth.copy()
    uneven[30:, 2] = 0
    (note,) = bias_notes(table_of(uneven))
    assert "c2" in note
    assert "30" in note


# -- the misleading case ---------------------------------------------------------------------------


def mixed_case(folder: Path) -> NDArray[np.int64]:
    """Features and labels of a mixed file, in which only what catches the eye is tagged.

    A class shows in two ways. Of most images only labels of the first way are known, and some
    absences; some images have all labels. To take unknown labels for absent is then better by the
    known labels of the test images, and far worse by the truth.
    """
    rng = np.random.default_rng(2)
    images, classes = 1600, 5
    x = rng.normal(size=(images, 24))
    salient, hidden = rng.normal(size=(2, classes, 24)) / 24**0.5
    eye = x @ salient.T + 0.6 * rng.normal(size=(images, classes)) > 1.3
    truth = np.where(eye | (x @ hidden.T + 0.6 * rng.normal(size=eye.shape) > 1.0), 1, -1)
    whole = rng.random(images) < 0.1
    tagged = eye & (rng.random(eye.shape) < 0.8)
    noted = (truth < 0) & (rng.random(eye.shape) < 0.1)
    known = np.where(whole[:, None], truth, np.where(tagged, 1, np.where(noted, -1, 0)))
    splits = np.where(np.arange(images) % 4 == 0, "test", "train").tolist()
    write_labels(table_of(known, splits), folder / "labels.csv")
    np.savez(folder / "x.npz", ids=[f"i{n}" for n in range(images)], vectors=x.astype(np.float32))
    return truth


def test_the_misleading_comparison_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = mixed_case(tmp_path)
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "strategies: [{strategy: full}]\nseeds: [0, 1, 2]\nbaseline: bce\n"
        "settings: {frozen: all, epochs: 4, optimizer: lbfgs, weight_decay: 0.003}\n"
        "methods: [{name: bce, method: bce}, {name: an, method: an}]\n"
    )
    labels, features = tmp_path / "labels.csv", tmp_path / "x.npz"
    found = partlabel.bench(spec, tmp_path / "out", labels=labels, features=features)
    mean = {
        (method, name): np.mean([one[name] for one in found.results if one["method"] == method])
        for method in ("an", "bce")
        for name in ("mAP", "mAP_whole")
    }
    assert mean["an", "mAP"] > mean["bce", "mAP"] + 0.002  # by the known labels
    tested = table_of(truth).subset(np.flatnonzero(read_labels(labels).in_split("test")))
    by_truth: dict[str, list[float]] = {"an": [], "bce": []}
    for one in found.results:
        run = next((tmp_path / "out" / "cells").glob(f"{one['method']}-*-seed{one['seed']}-*/run"))
        by_truth[one["method"]].append(partlabel.evaluate(run, tested)["mAP"])
    assert np.mean(by_truth["an"]) < np.mean(by_truth["bce"]) - 0.01  # by all labels
    assert mean["an", "mAP_whole"] < mean["bce", "mAP_whole"] - 0.01  # as the bench shows
    text = found.tables.markdown()
    assert "not a random sample" in text
    assert "| val\\_mAP | full |" in text or "| val_mAP | full |" in text
    gaps = [a["mAP"] - b["mAP"] for a, b in zip(found.results[3:], found.results[:3], strict=True)]
    difference = next(s for s in found.tables.sheets if s.header[0] == "mAP, difference to bce")
    p_value = float(difference.rows[0][1].split("p = ")[1].rstrip(")"))
    assert p_value > ttest_1samp(gaps, 0).pvalue
    assert p_value > 0.05
    assert (
        "note: the known labels of test images are not a random sample" in capsys.readouterr().out
    )


# -- without a spec --------------------------------------------------------------------------------


def test_without_a_spec_a_portfolio_is_compared_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed_case(tmp_path)
    table = read_labels(tmp_path / "labels.csv").subset(np.arange(240))
    write_labels(LabelTable(table.ids, table.classes, table.dense()), tmp_path / "small.csv")
    monkeypatch.chdir(tmp_path)
    spec = spec_for("small.csv", features="x.npz")
    assert "bce" in [entry.method for entry in spec.methods]
    small = SPEC.read_text().replace("seeds: [0, 1, 2, 3, 4]", "seeds: [0, 1]")
    small = small.replace("budget: small", "budget: 5, folds: 2")
    (tmp_path / "packaged.yaml").write_text(small)
    monkeypatch.setattr("partlabel.output.bench.own_labels.SPEC", tmp_path / "packaged.yaml")
    call = ["bench", "--labels", "small.csv", "--features", "x.npz", "-o", "out"]
    assert main(call) == 0
    text = (tmp_path / "out" / "table.md").read_text()
    for name in ("an", "bce", "em", "auto"):
        assert f"| {name} | " in text
    assert "failed" not in text
    assert main(["bench", "-o", "other"]) == 2
    assert "--labels" in capsys.readouterr().err


def test_methods_that_need_absences_are_left_out_without(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.choice([-1, 1], size=(40, 3))
    values[:30] = np.maximum(values[:30], 0)
    write_labels(table_of(values, ["train"] * 30 + ["val"] * 10), tmp_path / "l.csv")
    spec = spec_for(tmp_path / "l.csv", features=tmp_path / "x.npz")
    assert spec.test_split == "val"
    assert "bce" not in [entry.method for entry in spec.methods]
    write_labels(table_of(np.maximum(values, 0)), tmp_path / "present.csv")
    with pytest.raises(FileError, match="of one kind"):
        spec_for(tmp_path / "present.csv", features=tmp_path / "x.npz")
    write_labels(table_of(values, ["a"] * 20 + ["b"] * 20), tmp_path / "ab.csv")
    with pytest.raises(FileError, match="rename them"):
        spec_for(tmp_path / "ab.csv", features=tmp_path / "x.npz")
    with pytest.raises(InputError, match="--labels"):
        spec_for(None)


def test_each_seed_tests_on_another_fold(tmp_path: Path) -> None:
    write_labels(table_of(np.random.default_rng(0).choice([-1, 1], (60, 3))), tmp_path / "l.csv")
    spec = spec_for(tmp_path / "l.csv", features=tmp_path / "x.npz")
    groups = Groups.of_codes(np.arange(60) // 3)
    tested = [read_table(spec, seed, groups).in_split("test") for seed in spec.seeds]
    assert (np.sum(tested, axis=0) == 1).all()
    assert all(np.array_equal(one, one[groups.first]) for one in tested)


# -- near-duplicates -------------------------------------------------------------------------------


def test_training_images_that_belong_to_test_images_are_left_out() -> None:
    spec = Spec.model_validate({"strategies": [{"strategy": "full"}], "methods": []})
    splits = ["train", "test", simulate.HOLDOUT, "train", simulate.HOLDOUT, "train"]
    table = table_of(np.ones((6, 1), dtype=int), splits)
    groups = Groups.of_codes(np.array([0, 0, 1, 1, 2, 3]))
    assert usable_rows(table, spec, groups).tolist() == [2, 4, 5]
    assert usable_rows(table, spec, Groups.none(6)).tolist() == [0, 2, 3, 4, 5]


def test_a_copy_of_a_test_image_is_not_trained_on(scene: Path, tmp_path: Path) -> None:
    table, images = read_labels(scene / "labels.csv"), tmp_path / "images"
    shutil.copytree(scene / "images", images)
    tested = [n for n, split in zip(table.ids, table.splits or [], strict=True) if split == "test"]
    copies = [f"copy-{name}" for name in tested]
    for name, copy in zip(tested, copies, strict=True):
        shutil.copy(images / name, images / copy)
    values = np.concatenate([table.dense(), table.split("test").dense()])
    splits = [*(table.splits or []), *["train"] * len(copies)]
    doubled = LabelTable([*table.ids, *copies], table.classes, values, splits)
    write_labels(doubled, tmp_path / "labels.csv")
    (tmp_path / "spec.yaml").write_text(
        "strategies: [{strategy: full}]\nlabels: labels.csv\nimages: images\n"
        "settings: {backbone: test_efficientnet, weights: none, size: 64, frozen: all, epochs: 1}\n"
        "methods: [{name: bce, method: bce}]\n"
    )
    found = partlabel.bench(tmp_path / "spec.yaml", tmp_path / "out", cache=tmp_path / "cache")
    assert f"{len(copies)} training images left out" in found.tables.markdown()
    run = Run(next((tmp_path / "out" / "cells").glob("bce-*/run")))
    assert not set(copies) & set(run.selection.labels.ids)


def test_validation_stands_beside_test() -> None:
    labels = {"method": "a", "strategy": "full", "proportion": None, "seed": 0}
    found = tables([{**labels, "mAP": 0.5, "val_mAP": 0.6}])
    assert [sheet.header[0] for sheet in found.sheets] == ["mAP", "val_mAP"]
    assert read_spec(SPEC, "l.csv", features="x.npz").folds == 5
