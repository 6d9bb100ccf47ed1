"""`predict`: answers that may be "don't know", cached features, and images that are no files."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import partlabel
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.cli import main
from partlabel.judging.decisions import final_decisions
from partlabel.judging.scoring import score
from partlabel.labels import ABSENT, PRESENT, UNKNOWN, scenes, simulate
from partlabel.training.run import Run

WORLD = scenes.World(classes=6, size=96, seed=0, difficulty=0.0, objects=1.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("abstaining") / "s"
    scenes.write(folder, 700, WORLD, test=0.1)
    return folder


def train(folder: Path, name: str, **more: Any) -> Run:
    labels = partlabel.read_labels(folder / "labels.csv")
    hidden = simulate.hide(labels, "partial", 0.6, 0, split="train", holdout=0.5)
    settings: dict[str, Any] = {
        "method": "bce",
        "frozen": "all",
        "size": 96,
        "epochs": 12,
        "lr": 3e-3,
        "split_duplicates": True,
        "cache": folder / "cache",
        **more,
    }
    return partlabel.train(hidden, folder / "images", folder / name, **settings)


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return train(folder, "run")


def test_answers_are_those_that_were_tested(run: Run, folder: Path) -> None:
    notes: list[str] = []
    cache = folder / "cache"
    table = partlabel.predict(
        run, folder / "images", abstain=True, min_precision=0.8, cache=cache, on_note=notes.append
    )
    assert ["at least 80% are right" in note for note in notes] == [True]
    values = table.dense()
    assert {PRESENT, ABSENT, UNKNOWN} == set(np.unique(values))
    decisions = final_decisions(run, 0.8)
    scored = score(run, run.selection.known)
    expected = decisions.decide(scored.scores)
    rows = table.ids.find(run.selection.known.ids)
    assert np.array_equal(values[rows], expected)
    tested = np.zeros(expected.shape, dtype=np.bool_)
    tested[run.selection.reserved] = True
    known = run.selection.known.dense()
    for value in (PRESENT, ABSENT):
        answered = tested & (known != 0) & (expected == value)
        assert (known[answered] == value).mean() >= 0.8


def test_the_command_writes_empty_values_where_it_does_not_know(
    run: Run, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["predict", str(run.folder), str(folder / "images"), "--cache", str(folder / "cache")]
    out = tmp_path / "cells.csv"
    assert main([*call, "-o", str(out), "--abstain", "--min-precision", "0.8"]) == 0
    assert "at least 80% are right" in capsys.readouterr().out
    with out.open() as stream:
        lines = list(csv.DictReader(stream))
    assert {line["value"] for line in lines} == {"1", "0", ""}
    assert all(line["score"] for line in lines)
    wide = tmp_path / "wide.csv"
    options = ["--abstain", "--min-precision", "0.8", "--to", "csv"]
    assert main([*call, "-o", str(wide), *options]) == 0
    again, first = partlabel.read_labels(wide), partlabel.read_labels(out)
    assert np.array_equal(again.dense(), first.dense()[first.ids.find(again.ids)])
    assert main([*call, "-o", str(tmp_path / "no.csv"), "--min-precision", "0.8"]) == 2
    assert main([*call, "-o", str(tmp_path / "no.csv"), "--abstain", "--threshold", "0.5"]) == 2


def test_without_a_test_there_is_no_guarantee(folder: Path) -> None:
    run = train(folder, "unreserved", reserve=0.0, epochs=2)
    with pytest.warns(PartlabelWarning, match="no guarantee"):
        table = partlabel.predict(run, folder / "images", abstain=True, cache=folder / "cache")
    probabilities = table.cells.scores_or_nan().reshape(table.shape)
    assert ((table.dense() == PRESENT) == (probabilities >= 0.95)).mean() > 0.999


def test_cached_features_give_the_scores_of_the_images(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    some = sorted((folder / "images").iterdir())[:20]
    plain = partlabel.load(run.folder).predict(some)
    cache = tmp_path / "cache"
    for _ in range(2):  # computed, then read
        table = partlabel.predict(run, some, threshold=0.5, cache=cache)
        scores = table.cells.scores_or_nan().reshape(table.shape)
        assert np.abs(scores - plain).max() < 1e-4
    assert any(cache.iterdir())


def test_images_may_be_paths_contents_or_pixels(run: Run, folder: Path) -> None:
    model, paths = partlabel.load(run.folder), sorted((folder / "images").iterdir())[:3]
    expected = model.predict(paths)
    contents = [path.read_bytes() for path in paths]
    pixels = [np.asarray(Image.open(io.BytesIO(one)).convert("RGB")) for one in contents]
    mixed: list[Any] = [str(paths[0]), contents[1], pixels[2]]
    many: list[Any] = [contents, pixels, mixed]
    for images in many:
        assert np.allclose(model.predict(images), expected)
    wrong: Any
    for wrong, match in (
        ([b"no image"], "image 0"),
        ([pixels[0], pixels[0].astype(np.float32)], "image 1: an array of float32"),
        (contents[0], "list of images"),
    ):
        with pytest.raises(InputError, match=match):
            model.predict(wrong)
