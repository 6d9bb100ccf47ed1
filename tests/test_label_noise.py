"""How many known labels are wrong: estimates on generated labels of which some were flipped."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.worlds import CLASSES, IMAGES, LEARNERS, make_world
from scipy.special import expit

import partlabel
from partlabel.judging.completion import complete_run
from partlabel.judging.completion.doubts import ShareWrong, Suspect, find_suspects
from partlabel.judging.completion.notes import about_suspects
from partlabel.labels import LabelTable
from partlabel.metrics import label_noise
from partlabel.metrics.calibration import calibrate
from partlabel.metrics.label_noise import chance_wrong
from partlabel.models.features.vector_writing import write_vectors

LISTED = np.log(4)  # suspects are right with a probability below 20%


def flipped(truth: Any, share: float, rng: Any) -> tuple[Any, Any]:
    """Labels [n, C] of which a share is wrong, and which are."""
    wrong = rng.random(truth.shape) < share
    return np.where(wrong, -truth, truth).astype(np.int8), wrong


def held_out(features: Any, labels: Any, learner: str, rng: Any) -> Any:
    """Calibrated logits [n, C] of models that were not trained on an image."""
    fold = rng.integers(5, size=len(labels))
    scores = np.zeros(labels.shape)
    for k in range(5):
        held = fold == k
        train = features[~held], labels[~held]
        scores[held] = LEARNERS[learner](*train, features[held], rng)
    return calibrate(scores, labels).logits(scores)


def cells(labels: Any) -> tuple[Any, Any]:
    """Labels [n * C], and the image of each."""
    return labels.reshape(-1), np.repeat(np.arange(len(labels)), labels.shape[1])


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.05])
def test_the_share_of_wrong_suspects_is_about_right(share: float, seed: int) -> None:
    """A tenth of the images misleads the model in all classes at once: these are not wrong labels.

    By calibrated scores alone, about 90% of the suspects would be wrong in each case.
    """
    rng = np.random.default_rng([7, seed])
    world = make_world(rng)
    labels, wrong = flipped(world.truth, share, rng)
    logits = held_out(world.features, labels, "linear", rng)
    values, images = cells(labels)
    listed = values * logits.reshape(-1) < -LISTED
    true = wrong.reshape(-1)[listed].mean()
    chance = chance_wrong(logits.reshape(-1), values, images)
    assert listed.sum() > 200
    if not share:
        assert chance is None
    else:
        assert chance is not None
        assert chance[listed].mean() == pytest.approx(true, abs=0.16)
        assert chance.sum() == pytest.approx(wrong.sum(), rel=0.6)
    by_scores = expit(np.abs(logits.reshape(-1)))[listed].mean()
    assert by_scores > true + 0.15


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_nothing_is_said_if_scores_know_nothing(share: float) -> None:
    """Labels are wrong or not: scores cannot tell, and the estimate does not pretend to."""
    rng = np.random.default_rng(1)
    world = make_world(rng)
    labels, _ = flipped(world.truth, share, rng)
    logits = held_out(world.features, labels, "noise", rng)
    values, images = cells(labels)
    assert chance_wrong(logits.reshape(-1), values, images) is None


def test_no_labels_say_nothing() -> None:
    assert chance_wrong(np.zeros(0), np.zeros(0, np.int8), np.zeros(0, np.int64)) is None


def test_the_origin_with_wrong_labels_is_told_from_the_others() -> None:
    rng = np.random.default_rng(2)
    world = make_world(rng)
    labels, wrong = flipped(world.truth, 0.08, rng)
    careful = np.arange(IMAGES) % 3 > 0
    labels[careful], wrong[careful] = world.truth[careful], False
    logits = held_out(world.features, labels, "linear", rng)
    values, images = cells(labels)
    origins = careful[images].astype(np.int64)
    chance = chance_wrong(logits.reshape(-1), values, images, origins)
    assert chance is not None
    found = np.bincount(origins, chance)
    assert found[0] == pytest.approx(wrong.sum(), rel=0.3)
    assert found[1] < 0.2 * found[0]


def test_a_part_of_many_labels_gives_the_same_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    world = make_world(rng)
    labels, _ = flipped(world.truth, 0.05, rng)
    logits = held_out(world.features, labels, "linear", rng)
    values, images = cells(labels)
    every = chance_wrong(logits.reshape(-1), values, images)
    monkeypatch.setattr(label_noise, "_MOST", 6000)
    some = chance_wrong(logits.reshape(-1), values, images)
    assert every is not None
    assert some is not None
    assert len(some) == len(every)
    assert some.sum() == pytest.approx(every.sum(), rel=0.4)
    assert not np.array_equal(some, every)


@pytest.mark.parametrize("parameters", [5, 9])
def test_the_gradient_is_that_of_the_likelihood(parameters: int) -> None:
    rng = np.random.default_rng(4)
    labels = label_noise._Labels(
        rng.normal(0, 3, 400),
        rng.random(400) < 0.4,
        np.arange(400) // 8,
        rng.integers(2, size=400),
    )
    at = rng.normal(0, 1, parameters)
    _, slope = label_noise._log_posterior(at, labels, 2)
    for i in range(parameters):
        step = 1e-5 * np.eye(parameters)[i]
        ends = [label_noise._log_posterior(at + side * step, labels, 2)[0] for side in (1, -1)]
        assert slope[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-3)


# ---- completions


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_a_completion_states_an_estimate_or_that_there_is_none(
    tmp_path: Path, share: float
) -> None:
    rng = np.random.default_rng(5)
    world = make_world(rng)
    labels, wrong = flipped(world.truth, share, rng)
    table = LabelTable([f"i{i}" for i in range(IMAGES)], [f"c{j}" for j in range(CLASSES)], labels)
    write_vectors(tmp_path / "v.npz", world.features.astype(np.float32), list(table.ids))
    settings: dict[str, Any] = {"method": "bce", "val": 0.5, "lr": 0.02, "epochs": 20}
    run = partlabel.train(table, features=tmp_path / "v.npz", out=tmp_path / "run", **settings)
    completion = complete_run(run)
    note = next(note for note in completion.notes if "look wrong" in note)
    honest = [one for one in completion.suspects if not one.trained]
    assert len(honest) > 50
    if not share:
        assert "Scores cannot tell how many" in note
        assert "%" not in note
        return
    rows, columns = (
        names.find([getattr(one, field) for one in honest])
        for names, field in ((table.ids, "image"), (table.classes, "name"))
    )
    said = int(note.split("about ")[1].split("%")[0]) / 100
    assert f"Of {len(honest):,} of them, about" in note
    assert said == pytest.approx(wrong[rows, columns].mean(), abs=0.2)


def test_what_is_said_about_suspects() -> None:
    known = LabelTable(["a", "b"], ["x"], [[1], [1]])
    suspects = [Suspect(name, "x", 1, 0.01, trained=False) for name in "ab"]
    assert "Of these, about 40% are (an estimate" in about_suspects(
        suspects, known, ShareWrong(0.4, 2)
    )
    assert "Of 1 of them, about 40%" in about_suspects(suspects, known, ShareWrong(0.4, 1))
    assert "per label are in the class 'x'" in about_suspects(suspects, known)
    assert about_suspects([], known) == ""


def test_labels_of_a_class_with_one_kind_of_label_are_no_suspects() -> None:
    """No probability can be told for classes that are known to be present only, such as tags."""
    table = LabelTable(
        ["a", "b", "c"], ["both", "tag", "never"], [[1, 1, -1], [-1, 1, -1], [0, 0, 0]]
    )
    known, against = table.cells, -5 * table.cells.values.astype(np.float64)
    trained = np.zeros(len(known.values), dtype=np.bool_)
    found = find_suspects(table, known, against, trained, 0.95)
    assert {(one.image, one.name, one.value) for one in found} == {
        ("a", "both", 1),
        ("b", "both", -1),
    }
