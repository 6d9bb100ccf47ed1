"""Storage and rounds of pseudo-labels: blocks, stopped rounds, unreadable images, damaged files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partlabel.base.errors import FileError, JobError
from partlabel.labels import LabelTable
from partlabel.learning.pseudo_labels import LabelMemory, Round, choose, quota
from partlabel.learning.pseudo_labels import memory as module


def table(labels: Any) -> LabelTable:
    labels = np.asarray(labels)
    names = [f"c{j}" for j in range(labels.shape[1])]
    return LabelTable([f"{i}" for i in range(len(labels))], names, labels)


def sort_and_take(scores: Any, free: Any, lowest: Any, highest: Any) -> Any:
    """The same choice, class by class, with Python's stable sort."""
    chosen = np.zeros(scores.shape, dtype=np.int8)
    for j in range(scores.shape[1]):
        rows = [i for i in range(len(scores)) if free[i, j]]
        for i in sorted(rows, key=lambda i: scores[i, j])[: lowest[j]]:
            chosen[i, j] = -1
        rest = [i for i in rows if not chosen[i, j]]
        for i in sorted(rest, key=lambda i: -scores[i, j])[: highest[j]]:
            chosen[i, j] = 1
    return chosen


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 5))
def test_choose_equals_a_sort(seed: int, images: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    # few different scores, so that ties, zeros and ones are common
    scores = rng.choice([0.0, 0.25, 0.5, 1.0], (images, classes)).astype(np.float32)
    free = rng.random((images, classes)) < 0.7
    lowest, highest = rng.integers(0, images + 2, (2, classes))
    expected = sort_and_take(scores, free, lowest, highest)
    np.testing.assert_array_equal(choose(scores, free, lowest, highest), expected)


@given(st.integers(0, 1000), st.floats(0, 1), st.integers(1, 30))
def test_quotas_add_up(total: int, share: float, rounds: int) -> None:
    parts = [int(quota(np.array([total]), share, n, rounds)[0]) for n in range(1, rounds + 1)]
    assert sum(parts) == round(total * share)
    assert max(parts) - min(parts) <= 1


@pytest.fixture(params=["one block", "one block per class", "in memory"])
def folder(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    if request.param == "one block per class":
        monkeypatch.setattr(module, "_BLOCK", 1)
    return None if request.param == "in memory" else tmp_path / "memory"


def run_round(memory: LabelMemory, number: int, scores: Any, lowest: Any, **options: Any) -> int:
    this_round = Round(memory, number)
    for rows in np.array_split(np.arange(len(scores)), 3):
        this_round.score(rows, scores[rows])
    return this_round.give(lowest, **options)


def test_labels_of_earlier_rounds_stay(folder: Path | None) -> None:
    labels = table([[1, 0, 0], [0, 0, -1], [0, 1, 0], [0, 0, 0]])
    memory = LabelMemory(labels, folder)
    first = np.array([[0.0, 0.9, 0.2], [0.1, 0.8, 0.0], [0.3, 0.0, 0.4], [0.2, 0.7, 0.3]])
    assert run_round(memory, 1, first, [1, 1, 1]) == 3
    signs, values = memory.read(np.arange(4), 1)
    assert signs.tolist() == [[0, 0, -1], [-1, 0, 0], [0, 0, 0], [0, -1, 0]]
    assert values[1, 0] == np.float32(0.1)
    assert run_round(memory, 2, 1 - first, [1, 9, 0], highest=[0, 0, 1]) == 1 + 2 + 1
    signs, values = memory.read(np.arange(4), 2)
    assert signs.tolist() == [[0, -1, -1], [-1, -1, 0], [-1, 0, 0], [0, -1, 1]]
    assert values[1, 0] == np.float32(0.1)  # of the first round
    assert values[2, 0] == np.float32(0.7)
    signs_before, _ = memory.read(np.array([3, 1]), 1)  # as they were after the first round
    assert signs_before.tolist() == [[0, -1, 0], [-1, 0, 0]]


def test_a_score_of_zero_is_a_label(folder: Path | None) -> None:
    memory = LabelMemory(table([[0], [0]]), folder)
    run_round(memory, 1, np.array([[0.0], [0.5]]), 1)
    signs, values = memory.read(np.arange(2), 1)
    assert signs.tolist() == [[-1], [0]]
    assert values[0, 0] == 0


def test_hard_labels(folder: Path | None) -> None:
    memory = LabelMemory(table([[0], [0], [0]]), folder)
    run_round(memory, 1, np.array([[0.2], [0.5], [0.9]]), 1, highest=1, values=(0.0, 1.0))
    signs, values = memory.read(np.arange(3), 1)
    assert signs[:, 0].tolist() == [-1, 0, 1]
    assert values[[0, 2], 0].tolist() == [0, 1]


def test_images_without_scores_get_no_label(folder: Path | None) -> None:
    memory = LabelMemory(table([[0], [0], [0]]), folder)
    this_round = Round(memory, 1)
    this_round.score(np.array([0, 2]), np.array([[0.4], [0.2]]))
    assert this_round.give(3) == 2
    assert memory.read(np.arange(3), 1)[0][:, 0].tolist() == [-1, 0, -1]


def test_a_stopped_round_is_repeated(folder: Path | None) -> None:
    rng = np.random.default_rng(0)
    labels = table(rng.integers(-1, 2, (40, 5)) * (rng.random((40, 5)) < 0.3))
    scores = rng.random((3, 40, 5))  # of three rounds

    def run_rounds(memory: LabelMemory, last_round: int) -> None:
        for number in range(1, last_round + 1):
            run_round(memory, number, scores[number - 1], 4, highest=1)

    whole = LabelMemory(labels)
    run_rounds(whole, 3)
    cut = LabelMemory(labels, folder)
    run_rounds(cut, 1)
    run_round(cut, 2, scores[0], 7)  # other scores, and then the process is stopped
    Round(cut, 3).score(np.arange(5), scores[2][:5])
    if folder is not None:
        cut = LabelMemory(labels, folder)
    for number in (2, 3):
        run_round(cut, number, scores[number - 1], 4, highest=1)
    for last_round in range(4):
        signs, values = whole.read(np.arange(40), last_round)
        signs_cut, values_cut = cut.read(np.arange(40), last_round)
        np.testing.assert_array_equal(signs, signs_cut)
        np.testing.assert_array_equal(values[signs != 0], values_cut[signs != 0])


def test_tally_against_truth(tmp_path: Path) -> None:
    memory = LabelMemory(table([[0, 0], [0, 0], [1, 0]]), tmp_path / "m")
    run_round(memory, 1, np.array([[0.1, 0.5], [0.3, 0.4], [0.0, 0.9]]), [1, 1], highest=[0, 1])
    run_round(memory, 2, np.array([[0.1, 0.5], [0.3, 0.4], [0.0, 0.9]]), [1, 0])
    truth = table([[-1, 1], [1, 0], [1, 1]])
    tally = LabelMemory.open(tmp_path / "m").tally(2, truth)
    assert tally.given.tolist() == [[[1, 1], [0, 1]], [[1, 0], [0, 0]]]
    assert tally.judged.tolist() == [[[1, 0], [0, 1]], [[1, 0], [0, 0]]]
    assert tally.right.tolist() == [[[1, 0], [0, 1]], [[0, 0], [0, 0]]]
    assert memory.tally(1).given.sum() == 3


def test_a_memory_of_other_labels_is_an_error(tmp_path: Path) -> None:
    LabelMemory(table([[0], [0]]), tmp_path / "m")
    for other in ([[0], [0], [1]], [[0], [1]]):
        with pytest.raises(FileError, match="other labels"):
            LabelMemory(table(other), tmp_path / "m")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    LabelMemory(table([[0], [0]]), tmp_path / "m")
    (tmp_path / "m" / "values").write_bytes(b"12345")
    with pytest.raises(FileError, match="values"):
        LabelMemory.open(tmp_path / "m")
    with pytest.raises(FileError, match="values"):
        LabelMemory(table([[0], [0]]), tmp_path / "m")
    true = '{"images": 2, "classes": 1, "width": true, "known": "x"}'
    for text in ("", "[]", true, '{"images": -1, "classes": 1, "width": 1}', '{"images": 1}'):
        (tmp_path / "m" / "shape.json").write_text(text)
        with pytest.raises(FileError, match="shape"):
            LabelMemory.open(tmp_path / "m")


def test_too_large_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(
        JobError, match="need 12 bytes, but only 10 bytes are free; put --out on a larger disk"
    ):
        LabelMemory(table([[0], [0]]), tmp_path / "m")


def test_scores_that_are_nan(folder: Path | None) -> None:
    memory = LabelMemory(table([[0], [1]]), folder)
    with pytest.raises(JobError, match="NaN"):
        Round(memory, 1).score(np.arange(2), np.array([[np.nan], [0.5]]))


def test_many_rounds(folder: Path | None) -> None:
    memory = LabelMemory(table([[0], [0]]), folder)
    run_round(memory, 1000, np.array([[0.2], [0.5]]), 1)
    assert memory.read(np.arange(2), 1000)[0].tolist() == [[-1], [0]]
    assert memory.read(np.arange(0), 1000)[0].shape == (0, 1)


def test_images_without_marks_lose_labels_of_a_stopped_round() -> None:
    memory = LabelMemory(table(np.zeros((600, 2), dtype=np.int8)), None)
    all_present = np.ones((600, 2), dtype=np.int8)
    Round(memory, 1).mark(np.arange(600), all_present)  # stopped: no end
    repeated = Round(memory, 1)
    repeated.mark(np.arange(10), all_present[:10])
    repeated.end()
    signs, _ = memory.read(np.arange(600), 1)
    assert signs[:10].all()
    assert not signs[10:].any()
