"""Groups and near-duplicates: found, read, and on one side of every split."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import partlabel
from partlabel.base.errors import FileError, InputError, PartlabelWarning
from partlabel.base.randomness import key, keys, uniform
from partlabel.labels import LabelTable
from partlabel.labels.formats import read_labels, write_labels
from partlabel.labels.formats.group_column import read_groups
from partlabel.labels.groups import Groups
from partlabel.models.features.vector_files import VectorFile
from partlabel.training import near_duplicates
from partlabel.training.arguments import make_settings
from partlabel.training.auto.folds import make_folds
from partlabel.training.near_duplicates import equal_files, similar, similar_images
from partlabel.training.run import Run
from partlabel.training.run_split import cut, select
from partlabel.training.settings import Execution, Settings

TINY: dict[str, Any] = {"backbone": "test_efficientnet", "weights": "none", "size": 64}


def table_of(images: int, classes: int = 4, seed: int = 0) -> LabelTable:
    rng = np.random.default_rng(seed)
    values = rng.choice([-1, 0, 1], size=(images, classes))
    return LabelTable([f"i{n}" for n in range(images)], [f"c{j}" for j in range(classes)], values)


def merged_by_hand(images: int, pairs: NDArray[np.int64]) -> list[int]:
    """The first row of each image's group, by merging sets."""
    sets = [{n} for n in range(images)]
    for one, other in pairs.tolist():
        union = sets[one] | sets[other]
        for member in union:
            sets[member] = union
    return [min(members) for members in sets]


# -- groups ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_pairs_make_the_groups_that_merging_sets_makes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, 40, size=(25, 2))
    groups = Groups.of_pairs(40, pairs)
    assert groups.first.tolist() == merged_by_hand(40, pairs)
    others = rng.integers(0, 40, size=(5, 2))
    both = groups.joined(Groups.of_pairs(40, others))
    assert both.first.tolist() == merged_by_hand(40, np.concatenate([pairs, others]))


def test_a_part_of_groups_keeps_who_belongs_together() -> None:
    groups = Groups.of_pairs(6, np.array([[0, 3], [3, 5], [1, 2]]))
    part = groups.part(np.array([5, 1, 3, 4]))
    assert part.first.tolist() == [0, 1, 0, 3]
    assert (part.images, part.groups, part.units) == (2, 1, 3)
    assert part.among(np.array([5, 1, 3, 4]), 7).first.tolist() == [0, 1, 2, 3, 4, 3, 6]


# -- near-duplicates -------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.9])
def test_similar_rows_are_those_of_the_whole_matrix(
    threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(60, 80)), 3, axis=0) + 0.4 * rng.normal(size=(180, 80))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    products = rows.astype(np.float64) @ rows.T
    wanted = Groups.of_pairs(180, np.argwhere(np.triu(products >= threshold, 1)))
    assert wanted.groups
    monkeypatch.setattr(near_duplicates, "_BLOCK", 7 * 180)  # 26 blocks
    monkeypatch.setattr(near_duplicates, "_PAIRS", 50)
    for dense in (0.0, 1.0):  # by whole products, and by bounds
        monkeypatch.setattr(near_duplicates, "_DENSE", dense)
        assert similar(rows, threshold).first.tolist() == wanted.first.tolist()


def test_similar_images_are_found_whatever_the_mean_of_the_features() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(300, 96)).astype(np.float32)
    features[7] = features[200] + 0.1 * rng.normal(size=96)
    groups, remark = similar_images(features + 50)  # all cosines are near 1 without centring
    assert np.flatnonzero(groups.sizes > 1).tolist() == [7, 200]
    assert not remark


def test_features_that_are_all_alike_group_nothing() -> None:
    rng = np.random.default_rng(2)
    direction = rng.normal(size=128)
    features = np.outer(rng.normal(size=200), direction).astype(np.float32)
    groups, remark = similar_images(features)
    assert not groups.groups
    assert "--group" in remark


def test_short_vectors_are_not_compared() -> None:
    groups, _ = similar_images(np.ones((30, 8), dtype=np.float32))
    assert not groups.groups


def test_equal_files_are_one_group(tmp_path: Path) -> None:
    contents = [b"one", b"two", b"one", b"six", b"other"]
    paths = [tmp_path / str(n) for n in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    assert equal_files([*paths, tmp_path / "missing"]).first.tolist() == [0, 1, 0, 3, 4, 5]


# -- splits ----------------------------------------------------------------------------------------


def test_a_cut_without_groups_is_the_lowest_draws() -> None:
    table, rows = table_of(50), np.arange(3, 50)
    order = rows[np.argsort(uniform(key(0, "x"), keys(table.ids.take(rows))))]
    chosen, others = cut(table, rows, 0.3, key(0, "x"))
    assert chosen.tolist() == sorted(order[:14].tolist())
    assert others.tolist() == sorted(order[14:].tolist())
    again, _ = cut(table, rows, 0.3, key(0, "x"), Groups.none(50))
    assert again.tolist() == chosen.tolist()


@pytest.mark.parametrize("seed", range(10))
def test_no_group_is_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = Groups.of_codes(rng.integers(0, 30, size=100))
    rows = np.sort(rng.permutation(100)[:80])
    chosen, others = cut(table_of(100), rows, 0.25, seed, groups)
    assert not set(groups.first[chosen]) & set(groups.first[others])
    assert sorted([*chosen, *others]) == rows.tolist()
    assert 15 <= len(chosen) <= 20


def test_a_group_larger_than_the_share_stays_with_the_others() -> None:
    groups = Groups.of_codes(np.where(np.arange(100) < 60, 0, -1))
    for seed in range(10):
        chosen, others = cut(table_of(100), np.arange(100), 0.2, seed, groups)
        assert len(chosen) == 20
        assert set(range(60)) <= set(others.tolist())


@pytest.mark.parametrize("seed", range(6))
def test_no_group_crosses_folds_or_parts(seed: int) -> None:
    rng, table = np.random.default_rng(seed), table_of(200, seed=seed)
    groups = Groups.of_codes(np.where(rng.random(200) < 0.4, rng.integers(0, 25, 200), -1))
    folds = make_folds(table, 5, seed, groups)
    assert np.array_equal(folds, folds[groups.first])
    sizes = np.bincount(folds, minlength=5)
    assert sizes.max() - sizes.min() <= 12
    selection = select(table, make_settings(method="bce", val=0.3, seed=seed), groups)
    assert 50 < len(selection.val) <= 60
    assert not set(groups.first[selection.train]) & set(groups.first[selection.val])
    # images are reserved of a split of their own
    values = np.concatenate([table.dense(), np.ones((1, 4), dtype=int)])
    splits = [*["holdout"] * 200, "train"]
    held_out = LabelTable([*table.ids, "more"], table.classes, values, splits)
    parts = select(
        held_out, make_settings(method="bce", seed=seed), groups.among(np.arange(200), 201)
    )
    assert min(len(parts.val), len(parts.reserved)) > 80
    assert not set(groups.first[parts.val]) & set(groups.first[parts.reserved])


def test_folds_of_groups_only_spread_the_labels() -> None:
    table = table_of(240, seed=3)
    groups = Groups.of_codes(np.arange(240) // 6)  # 40 patients with 6 images each
    folds, values = make_folds(table, 5, 0, groups), table.dense()
    assert np.array_equal(folds, folds[groups.first])
    for column in range(values.shape[1]):
        for sign in (1, -1):
            share = np.bincount(folds[values[:, column] == sign], minlength=5)
            assert share.min() > 0.6 * share.mean()


def test_a_group_larger_than_a_fold_is_one_fold() -> None:
    groups = Groups.of_codes(np.where(np.arange(100) < 50, 0, -1))
    folds = make_folds(table_of(100), 5, 0, groups)
    assert len(set(folds[:50].tolist())) == 1
    assert np.bincount(folds, minlength=5).min() >= 8


def test_groups_are_stored_with_the_split(tmp_path: Path) -> None:
    from partlabel.training.run_split import load_selection

    table, groups = table_of(30), Groups.of_codes(np.arange(30) // 3)
    selection = select(table, make_settings(method="bce"), groups)
    selection.save(tmp_path / "split.safetensors")
    loaded = load_selection(tmp_path / "split.safetensors", table, selection.classes, None)
    assert loaded.groups.first.tolist() == groups.first.tolist()
    assert loaded.same_images(selection)


# -- the option ------------------------------------------------------------------------------------


def write_patients(path: Path, groups: list[str]) -> LabelTable:
    lines = [f"i{n},{group},{n % 2},{(n + 1) % 2}" for n, group in enumerate(groups)]
    path.write_text("\n".join(["image,patient,cat,dog", *lines]) + "\n")
    return read_labels(path, ignore_columns=["patient"])


def test_a_column_with_holes_groups_the_others(tmp_path: Path) -> None:
    table = write_patients(tmp_path / "labels.csv", ["a", "", "b", "a", "", "b"])
    groups = read_groups("patient", tmp_path / "labels.csv", table)
    assert groups.first.tolist() == [0, 1, 2, 0, 4, 2]


def test_a_file_of_groups(tmp_path: Path) -> None:
    table = write_patients(tmp_path / "labels.csv", ["a"] * 5)
    path = tmp_path / "scenes.csv"
    path.write_text("scene,filename\nx,i4\ny,elsewhere\nx,i1\ny,i2\n")
    assert read_groups(str(path), None, table).first.tolist() == [0, 1, 2, 3, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,group\ni1,a\ni1,b\n", "image 'i1' is in two groups"),
        ("image,group\nj1,a\n", "no image of the labels is in it"),
        ("image,scene,place\ni1,a,b\n", "the column 'group' is missing"),
    ],
)
def test_wrong_files_of_groups_are_refused(tmp_path: Path, text: str, message: str) -> None:
    table = write_patients(tmp_path / "labels.csv", ["a"] * 5)
    (tmp_path / "groups.csv").write_text(text)
    with pytest.raises(FileError, match=message):
        read_groups(str(tmp_path / "groups.csv"), None, table)


def test_a_missing_column_is_refused(tmp_path: Path) -> None:
    table = write_patients(tmp_path / "labels.csv", ["a"] * 5)
    with pytest.raises(InputError, match="patent"):
        read_groups("patent", tmp_path / "labels.csv", table)


# -- whole runs ------------------------------------------------------------------------------------


@pytest.fixture
def doubled(scene: Path, tmp_path: Path) -> Path:
    """The training images of the scene, and a copy of each: every other one is compressed again."""
    table = read_labels(scene / "labels.csv").split("train")
    names = list(table.ids)
    for number, name in enumerate(names):
        source, copy = scene / "images" / name, tmp_path / "images" / f"copy-{name}"
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy.with_name(name))
        if number % 2:
            shutil.copy(source, copy)
        else:
            with Image.open(source) as image:
                image.convert("RGB").save(copy.with_suffix(".jpg"), quality=95, subsampling=0)
    copies = [f"copy-{n}" if i % 2 else f"copy-{Path(n).stem}.jpg" for i, n in enumerate(names)]
    values = np.concatenate([table.dense()] * 2)
    write_labels(
        LabelTable([*names, *copies], table.classes, values), tmp_path / "labels.csv", "csv"
    )
    return tmp_path


def crossing(run: Run, images: int) -> int:
    """How many images are in another part of the run than their copy."""
    part = np.zeros(2 * images, dtype=int)
    part[run.selection.val], part[run.selection.reserved] = 1, 2
    return int((part[:images] != part[images:]).sum())


def test_copies_never_cross_a_split(doubled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = len(read_labels(doubled / "labels.csv")) // 2
    sources = doubled / "labels.csv", doubled / "images"
    small: dict[str, Any] = {"method": "bce", "frozen": "all", "epochs": 1, "size": 128, "val": 0.4}
    run = partlabel.train(*sources, doubled / "run", **small)
    assert f"{2 * images} images in {images} groups of near-duplicates" in capsys.readouterr().err
    assert crossing(run, images) == 0
    apart = partlabel.train(*sources, doubled / "apart", split_duplicates=True, **small)
    assert crossing(apart, images) > 0
    trained = partlabel.train(
        *sources, doubled / "trained", method="bce", epochs=1, val=0.4, **TINY
    )
    part = trained.selection.groups
    assert part.groups == images // 2  # only equal files: the backbone is not frozen


def test_groups_never_cross_the_folds_of_auto(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "partial.csv")
    lines = [f"{name},{n % 9}" for n, name in enumerate(table.ids)]
    (tmp_path / "groups.csv").write_text("\n".join(["image,group", *lines]) + "\n")
    arguments: dict[str, Any] = {
        "group": str(tmp_path / "groups.csv"),
        "budget": 5,
        "folds": 3,
        **TINY,
    }
    run = partlabel.train(table, scene / "images", tmp_path / "run", val=0.2, **arguments)
    assert run.selection.groups.units == 9
    again = partlabel.train(
        table, scene / "images", tmp_path / "run", val=0.2, resume=True, **arguments
    )
    assert again.finished


def test_splits_that_separate_a_group_are_told(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "partial.csv")  # has a split holdout
    lines = [f"{name},{n % 9}" for n, name in enumerate(table.ids)]
    (tmp_path / "groups.csv").write_text("\n".join(["image,group", *lines]) + "\n")
    arguments: dict[str, Any] = {
        "group": str(tmp_path / "groups.csv"),
        "method": "bce",
        "epochs": 1,
        **TINY,
    }
    with pytest.warns(PartlabelWarning, match="belong together with validation images"):
        partlabel.train(table, scene / "images", tmp_path / "run", frozen="all", **arguments)


def test_a_column_of_the_label_file_is_no_class(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "labels.csv")
    names = ["image", "split", "place", *table.classes]
    rows = [
        [name, split, f"place {n % 7}", *(str(int(v > 0)) for v in values)]
        for n, (name, split, values) in enumerate(
            zip(table.ids, table.splits or [], table.dense().tolist(), strict=True)
        )
    ]
    (tmp_path / "l.csv").write_text("\n".join(",".join(row) for row in [names, *rows]) + "\n")
    run = partlabel.train(
        tmp_path / "l.csv", scene / "images", tmp_path / "run", method="bce", epochs=1,
        frozen="all", group="place", **TINY,
    )  # fmt: skip
    assert run.record.classes == list(table.classes)
    assert run.selection.groups.units == 7


def test_features_of_too_many_images_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would not fit into memory, and are not compared."""
    from partlabel.training import together

    def fail(*_: object) -> None:
        raise AssertionError("the features are read")

    monkeypatch.setattr(together, "MOST", 2)
    monkeypatch.setattr(together, "_mean_features", fail)
    np.savez(tmp_path / "x.npz", ids=["a", "b", "c"], features=np.zeros((3, 64), np.float32))
    table, notes = LabelTable(["a", "b", "c"], ["cat"], [[1], [0], [0]]), list[str]()
    vectors = VectorFile(tmp_path / "x.npz")
    settings = Settings(method="bce", backbone="none", frozen="all")
    found = together.near_duplicates(table, [], vectors, settings, Execution(), notes.append)
    assert found.groups == 0
    assert "takes too long" in notes[0]
