"""Tags in a file of other labels, without an origin: seen, and random labels are none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partlabel
from partlabel import LabelTable, write_labels
from partlabel.cli import main
from partlabel.judging.completion import complete_run
from partlabel.labels import ABSENT, CHOSEN, PRESENT, simulate
from partlabel.labels.inspection import inspect
from partlabel.labels.mixed_tags import find_mixed_tags
from partlabel.models.features.vector_writing import write_vectors


def make_full(images: int = 1500, classes: int = 10, present: float = 0.15, seed: int = 0) -> Any:
    """All labels. Images differ in how much they show, so that classes come together."""
    rng = np.random.default_rng(seed)
    busy = rng.choice([0.4, 1.6], (images, 1))
    values = np.where(rng.random((images, classes)) < present * busy, PRESENT, ABSENT)
    return table_of(values)


def table_of(values: Any) -> LabelTable:
    names = [f"i{i:04}" for i in range(len(values))], [f"c{j}" for j in range(values.shape[1])]
    return LabelTable(*names, values.astype(np.int8))


def with_tags(full: LabelTable, known: LabelTable, images: int, most: int = 1) -> LabelTable:
    """Labels in which the first images have a few tags instead: some of what is present."""
    rng = np.random.default_rng(1)
    values, truth = known.dense(), full.dense()
    for i in range(images):
        values[i] = 0
        values[i, rng.permutation(np.flatnonzero(truth[i] == PRESENT))[:most]] = PRESENT
    return table_of(values)


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize(
    "hide",
    [
        lambda full: full,
        lambda full: simulate.partial(full, 0.5, 0),
        lambda full: table_of(np.where(np.arange(10) < 3, full.dense(), 0)),
    ],
    ids=["full", "half", "three classes"],
)
def test_tags_among_other_labels_are_found(hide: Any, most: int) -> None:
    full = make_full()
    known = hide(full)
    both = (known.dense() != 0).any(axis=0)  # a class without absent labels is no secret
    full = table_of(np.where(both, full.dense(), ABSENT))
    mixed = with_tags(full, known, 300, most)
    (found,) = find_mixed_tags(mixed)
    tagged = int((mixed.dense()[:300] == PRESENT).any(axis=1).sum())
    assert found.images > 0.9 * tagged > 2 * found.by_chance
    assert found.origin == "(none)"
    assert f"{found.images} images have present labels only" in found.describe()
    assert "tags.csv:origin=tags" in found.describe()


@pytest.mark.parametrize("present", [0.02, 0.15, 0.6])
@pytest.mark.parametrize("share", [0.03, 0.2, 0.6, 1.0])
def test_labels_at_random_are_not_taken_for_tags(share: float, present: float) -> None:
    for seed in range(5):
        full = make_full(present=present, seed=seed)
        assert find_mixed_tags(simulate.partial(full, share, seed)) == []
        assert find_mixed_tags(simulate.partial(full, share, seed, per_image=True)) == []


def test_classes_that_always_come_together_are_no_tags() -> None:
    """Half of the images show nearly everything, the others nearly nothing."""
    rng = np.random.default_rng(0)
    for classes in (2, 3, 6):
        chance = rng.choice([0.05, 0.95], (1000, 1))
        full = table_of(np.where(rng.random((1000, classes)) < chance, PRESENT, ABSENT))
        for share in (0.3, 0.6, 0.8, 1.0):
            assert find_mixed_tags(simulate.partial(full, share, 0)) == []


@pytest.mark.parametrize("strategy", ["single-positive", "positive+negatives", "dense", "merged"])
def test_other_ways_to_label_are_not_taken_for_tags(strategy: str) -> None:
    share = 0.4 if strategy == "dense" else None
    hidden = simulate.hide(make_full(), strategy, share, 0)
    assert find_mixed_tags(hidden) == []
    assert find_mixed_tags(table_of(hidden.dense())) == []  # without origins


def test_tags_with_an_origin_of_their_own_are_no_secret() -> None:
    mixed = with_tags(make_full(), make_full(), 300)
    cells = mixed.cells
    named = mixed.cells.with_details(origins=np.where(cells.rows < 300, 2, 1).astype(np.uint8))
    apart = LabelTable.from_cells(mixed.ids, mixed.classes, named, None, ["team", "tags"])
    assert find_mixed_tags(apart) == []
    wrong = mixed.cells.with_details(origins=np.ones(len(cells.values), dtype=np.uint8))
    together = LabelTable.from_cells(mixed.ids, mixed.classes, wrong, None, ["team", "tags"])
    assert [one.origin for one in find_mixed_tags(together)] == ["team"]
    assert "images of 'team' have" in find_mixed_tags(together)[0].describe()


def test_answers_to_questions_of_a_model_are_no_tags() -> None:
    """A model asks where it expects something, and is right."""
    mixed = with_tags(make_full(), make_full(), 300)
    asked = np.where(mixed.cells.rows < 300, CHOSEN, 0).astype(np.int8)
    marked = mixed.with_cells(mixed.cells.with_details(asked=asked))
    assert find_mixed_tags(marked) == []


def test_inspect_and_complete_name_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    full = make_full()
    honest = simulate.partial(full, 0.5, 0)
    mixed = with_tags(full, honest, 300)
    features = full.dense() + np.random.default_rng(0).normal(size=full.shape)
    write_vectors(tmp_path / "v.npz", features.astype(np.float32), list(full.ids))
    (found,) = find_mixed_tags(mixed)
    said = f"{found.images} images have present labels only, about {found.by_chance:.0f} would"
    for name, table in (("honest", honest), ("mixed", mixed)):
        path = tmp_path / f"{name}.csv"
        write_labels(table, path)
        assert main(["inspect", str(path)]) == 0
        assert (said in capsys.readouterr().out) == (name == "mixed")
        run = partlabel.train(
            table, features=tmp_path / "v.npz", out=tmp_path / name, method="bce", lr=0.02
        )
        notes = complete_run(run, 0.9).notes
        assert any(said in note for note in notes) == (name == "mixed")
    text = json.dumps(inspect(mixed).as_json())
    assert json.loads(text)["mixed_tags"][0]["images"] == found.images
