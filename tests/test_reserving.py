"""Labels that are reserved to test: which may, how many, and hidden from everything else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partlabel import train
from partlabel.judging.scoring import score
from partlabel.labels import ABSENT, PRESENT, LabelTable, simulate
from partlabel.labels.cells import CHOSEN, MODEL
from partlabel.labels.groups import Groups as Together
from partlabel.metrics import known_cells
from partlabel.metrics.shift import measure_shift
from partlabel.training.out_of_fold import out_of_fold
from partlabel.training.reserving import (
    draw_reserved,
    evidence,
    groups_without_reserved,
    image_groups,
    may_test,
    numbers_to_reserve,
)
from partlabel.training.run_record import decision_figures
from partlabel.training.run_split import load_selection, select
from partlabel.training.settings import Settings


def make_table(images: int = 2000, classes: int = 6, seed: int = 0) -> LabelTable:
    """A fully labelled table; a fifth of the labels is present."""
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((images, classes)) < 0.2, PRESENT, ABSENT)
    return LabelTable([f"i{i}" for i in range(images)], [f"c{j}" for j in range(classes)], values)


FULL = make_table()


def without_origins(table: LabelTable) -> LabelTable:
    return LabelTable(table.ids, table.classes, table.dense())


def labelled_for(classes: list[int]) -> LabelTable:
    """Parts of the images, each labelled for so many classes of its own."""
    part = np.repeat(np.arange(len(classes)), classes)
    image = np.arange(len(FULL)) % len(classes)
    return LabelTable(FULL.ids, FULL.classes, np.where(part == image[:, None], FULL.dense(), 0))


def test_labels_of_models_and_answers_to_their_questions_do_not_test() -> None:
    table = simulate.partial(FULL, 0.5, 0)
    size = len(table.cells.values)
    sources, asked = np.zeros(size, dtype=np.int8), np.zeros(size, dtype=np.int8)
    sources[: size // 4], asked[size // 4 : size // 2] = MODEL, CHOSEN
    marked = table.with_cells(table.cells.with_details(sources=sources, asked=asked))
    expected = np.arange(size) >= size // 2
    assert np.array_equal(may_test(marked), expected)
    reserved = draw_reserved(marked, np.arange(len(table)), 0, 0.3)
    assert reserved.any()
    assert not reserved[~expected].any()


def test_an_origin_that_notes_presences_only_does_not_test() -> None:
    table = simulate.mixed(FULL, 0, full=0.4, tags=0.4)
    tags = table.cells.origins_or_none() == list(table.origins).index("tags") + 1
    assert np.array_equal(may_test(table), ~tags)
    assert evidence(table).cells.values.size == (~tags).sum()


@pytest.mark.parametrize("method", ["bce", "auto"])
def test_tags_do_not_calibrate_a_run(method: str, tmp_path: Path) -> None:
    """The thresholds and the calibration of a run are those of the labels that may test."""
    rng = np.random.default_rng(0)
    table = simulate.mixed(make_table(images=500), 0, full=0.4, tags=0.5)
    vectors = rng.normal(size=(len(table), 4)).astype(np.float32)
    np.savez(tmp_path / "x.npz", ids=list(table.ids), vectors=vectors)
    settings: dict[str, Any] = {"budget": 2, "folds": 2}
    if method == "bce":
        settings = {"epochs": 2, "val": 0.4}
    run = train(
        table,
        features=tmp_path / "x.npz",
        out=tmp_path / "run",
        method=method,
        reserve=0,
        split_duplicates=True,
        **settings,
    )
    selection, record, folds = run.selection, run.record, out_of_fold(run)
    images = selection.train if folds else selection.val
    scores = folds.scores if folds else score(run, selection.table.subset(images)).scores
    known = known_cells(scores, evidence(selection.table).subset(images).dense())
    expected = decision_figures(known)["calibration"]
    assert record.calibration is not None
    assert record.calibration.slopes == pytest.approx(expected.slopes, rel=1e-3)
    assert record.calibration.intercepts == pytest.approx(expected.intercepts, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(
    ("hide", "groups", "random"),
    [
        (lambda: simulate.partial(FULL, 0.1, 0), 1, [True]),
        (lambda: simulate.partial(FULL, 0.5, 0, per_image=True), 1, [False]),
        (lambda: simulate.dense(FULL, 0.3, 0), 2, [False, False]),
        (lambda: simulate.merged(FULL, 0), 2, [False, False]),
        (lambda: without_origins(simulate.merged(FULL, 0)), 1, [False]),
        (lambda: without_origins(labelled_for([4, 2])), 1, [False]),
        (lambda: without_origins(labelled_for([3, 2, 1])), 1, [False]),
        (lambda: simulate.mixed(FULL, 0), 3, None),
    ],
    ids=["partial", "per image", "dense", "merged", "one file", "4 and 2", "3, 2 and 1", "mixed"],
)
def test_how_labels_are_missing_is_seen(hide: Any, groups: int, random: list[bool] | None) -> None:
    found = image_groups(hide())
    assert len(found.random) == groups
    assert random is None or found.random.tolist() == random


@pytest.mark.parametrize("images", [100, 2000])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_labels_that_are_missing_at_random_are_seen_as_such(images: int, share: float) -> None:
    """Also if classes differ in how often they are known, and with few images."""
    seen = 0
    for seed in range(20):
        full = make_table(images, 8, seed)
        shares = np.random.default_rng(seed).uniform(0.5, 1.0, 8) * share
        known = np.random.default_rng([seed, 1]).random(full.shape) < shares
        table = LabelTable(full.ids, full.classes, np.where(known, full.dense(), 0))
        found = image_groups(table)
        seen += bool(found.random[np.bincount(found.of_image).argmax()])
    assert seen >= 19


def test_reserved_labels_are_a_random_sample_of_what_training_does_not_see() -> None:
    """As many are present as among the unknown labels, and classes have equal ratios."""
    shares = []
    for seed in range(30):
        table = simulate.partial(FULL, 0.4, seed)
        reserved = draw_reserved(table, np.arange(len(table)), seed, None)
        cells = table.cells
        shares.append((cells.values[reserved] == PRESENT).mean())
        number = np.bincount(cells.columns[reserved], minlength=6)
        unknown = table.counts().unknown
        assert np.ptp(number / unknown) < 0.05
    error = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) == pytest.approx(0.2, abs=4 * error + 0.002)


def test_an_image_is_in_no_group_because_of_a_reserved_label() -> None:
    """Otherwise an image with one label, which is reserved, is known to have one: no random sample.

    Of 4,000 images, half were never labelled. The others have a label or two each.
    """
    rng = np.random.default_rng(2)
    known = (rng.random((4000, 6)) < 0.2) & (np.arange(4000) < 2000)[:, None]
    full = make_table(4000)
    table = LabelTable(full.ids, full.classes, np.where(known, full.dense(), 0))
    selection = select(table, Settings(method="bce", seed=3, reserve=0.3))
    seen, tested = selection.table.dense() != 0, selection.tested.dense() != 0
    groups = groups_without_reserved(selection.learnable, selection.used, 3)
    inside = groups.random[groups.of_image]
    assert seen[inside].any(axis=1).all()
    # among the labels that no training sees, reserved ones lie in images with as many others
    others = seen.sum(axis=1)
    hidden = ~seen & inside[:, None]
    rows, columns = np.nonzero(hidden)
    number, is_tested = others[rows], tested[rows, columns]
    assert is_tested.sum() > 300
    error = number.std() / np.sqrt(is_tested.sum())
    assert number[is_tested].mean() == pytest.approx(number.mean(), abs=4 * error)


def test_labels_of_images_that_belong_together_are_reserved_together() -> None:
    """A burst of three photos of each tenth scene: no label tests a copy that was trained on."""
    table = simulate.partial(FULL, 0.5, 4)
    burst = np.where(np.arange(2000) % 10 < 3, np.arange(2000) // 10, -1)
    groups = Together.of_codes(burst)
    for share in (None, 0.3):
        selection = select(table, Settings(method="bce", seed=4, reserve=share), groups)
        seen, tested = selection.table.dense() != 0, selection.tested.dense() != 0
        copies = groups.sizes > 1
        assert tested[copies].any()
        assert tested[~copies].any()
        for first in np.unique(groups.first[copies]):
            members = groups.first == first
            assert not (seen[members].any(axis=0) & tested[members].any(axis=0)).any()
        alike = groups_without_reserved(selection.learnable, selection.used, 4, groups)
        assert alike.random[alike.of_image].tolist() == (~copies).tolist()
    apart = select(table, Settings(method="bce", seed=4, reserve=0.3))
    seen, tested = apart.table.dense() != 0, apart.tested.dense() != 0
    both = [seen[burst == one].any(axis=0) & tested[burst == one].any(axis=0) for one in range(9)]
    assert np.any(both)


def test_more_labels_are_not_reserved_than_needed() -> None:
    known, unknown = np.full((1, 4), 50_000), np.full((1, 4), 200_000)
    numbers = numbers_to_reserve(known, unknown, np.full(4, 0.1))
    assert 500 < (0.1 * numbers).sum() < 540  # present labels, of all classes together
    few = numbers_to_reserve(known // 200, unknown // 200, np.full(4, 0.1))
    assert (few <= 0.3 * known / 200).all()
    assert not numbers_to_reserve(known // 10_000, unknown, np.full(4, 0.1)).any()
    assert numbers_to_reserve(known, unknown, np.full(4, 0.1), 0.2).tolist() == [[10_000] * 4]


def test_hidden_labels_are_hidden_and_stored(tmp_path: Path) -> None:
    table = simulate.partial(FULL, 0.4, 1)
    selection = select(table, Settings(method="bce", seed=1))
    hidden = selection.tested.dense() != 0
    assert hidden.sum() > 59
    assert not selection.table.dense()[hidden].any()
    assert np.array_equal(selection.known.dense(), table.dense())
    assert not (selection.validation.dense() * selection.tested.dense()[selection.val]).any()
    selection.save(tmp_path / "split.safetensors")
    again = load_selection(tmp_path / "split.safetensors", table, selection.classes, None)
    assert again.tested == selection.tested
    assert select(table, Settings(method="bce", seed=1, reserve=0.0)).hidden is None


def test_nothing_is_reserved_if_all_labels_are_known_or_only_presences_are() -> None:
    for table in (FULL, simulate.single_positive(FULL, 0)):
        assert select(table, Settings(method="bce")).hidden is None


def test_auto_reserves_enough_labels_or_none() -> None:
    """With few labels, all of them test models that were not trained on their images."""
    many, few = (select(simulate.partial(FULL, share, 0), Settings()) for share in (0.6, 0.1))
    assert many.hidden is None or many.hidden.sum() > 1000
    assert few.hidden is None
    assert not len(few.val)
    plain = select(simulate.partial(FULL, 0.1, 0), Settings(method="bce"))
    assert plain.hidden is not None


def test_a_shift_is_an_effect_and_not_a_number_of_images() -> None:
    rng = np.random.default_rng(0)
    for images in (200, 4000):
        same = measure_shift(rng.normal(size=(images, 40)), rng.normal(size=(images, 40)))
        assert same.auc == pytest.approx(0.5, abs=0.1)
        assert same.effective > 0.7
        moved = rng.normal(size=(images, 40)) + np.r_[3.0, np.zeros(39)]
        other = measure_shift(rng.normal(size=(images, 40)), moved)
        assert other.auc > 0.9
        assert other.effective < same.effective


def test_a_share_is_also_reserved_of_classes_of_which_all_labels_are_known() -> None:
    """Nothing is to be filled in there, but reserved labels can test a model that is exported."""
    selection = select(FULL, Settings(method="bce", reserve=0.2))
    number = selection.tested.counts()
    assert (number.present + number.absent == 400).all()
    assert select(FULL, Settings(method="bce")).hidden is None
    labels = FULL.dense()
    labels[::2, 0] = 0
    partly = select(LabelTable(FULL.ids, FULL.classes, labels), Settings(method="bce", reserve=0.2))
    number = partly.tested.counts()
    assert (number.present + number.absent).tolist() == [200] + [400] * 5


def test_very_many_classes_reserve_one_label_each() -> None:
    """All together need less than half a label per class, which must not be rounded to nothing."""
    known = np.full((1, 5000), 2000)
    numbers = numbers_to_reserve(known, np.full((1, 5000), 200_000), np.full(5000, 0.3))
    assert numbers.tolist() == [[1] * 5000]
