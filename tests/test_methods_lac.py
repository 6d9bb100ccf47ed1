"""lac: its losses by hand, its queue, its stages, and what every method must do."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance import MethodConformance
from partlabel.base.errors import FileError, InputError
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning import losses
from partlabel.learning.extensions import FollowsStages
from partlabel.learning.methods import METHODS, Method, Task
from partlabel.learning.methods.lac import LabelAwareConsistency
from partlabel.learning.pseudo_labels.diary import Diary
from partlabel.learning.queue import EmbeddingQueue
from partlabel.models import Classifier
from partlabel.models.heads import LabelDecoder
from partlabel.training.arguments import make_settings
from partlabel.training.checkpoint import load_state, same
from partlabel.training.train import train
from partlabel.training.trainer import Trainer
from test_contrastive import by_hand
from trained import tiny_model

SMALL = {"width": 16, "delta": 0.5, "queue": 8, "base": "an"}


class TestLac(MethodConformance):
    """Its second epoch is its second stage, with a queue."""

    name = "lac"
    options: ClassVar[dict[str, Any]] = SMALL | {"delta2": 0.5}


class TestEndToEnd(MethodConformance):
    name = "lac"
    options: ClassVar[dict[str, Any]] = SMALL | {"stages": 1, "denominator": "inter"}


class TestWithEmApl(MethodConformance):
    name = "lac"
    options: ClassVar[dict[str, Any]] = {"base": "em-apl", "warmup": 1, "width": 16}


class TestAsItIs(MethodConformance):
    """On EM: labels are believed by rank."""

    name = "lac"
    options: ClassVar[dict[str, Any]] = {"width": 16, "queue": 8, "expected": 3}


class TestFrozen(MethodConformance):
    name = "lac"
    options = TestLac.options
    tiny = MethodConformance.tiny | {"frozen": "all", "view_bank": 1}


class TestBaseAlone(MethodConformance):
    """The decoder without what lac adds: one view."""

    name = "lac"
    options: ClassVar[dict[str, Any]] = {"lambda_plc": 0, "lambda_lac": 0, "width": 16}


class Maps(torch.nn.Module):
    """In place of a backbone: its inputs are maps already."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps


def task(labels: Any) -> Task:
    names = [f"c{j}" for j in range(labels.shape[1])]
    table = LabelTable([f"{i}" for i in range(len(labels))], names, labels)
    return Task(table, table, epochs=4)


def ready(method: Method, stage: int) -> Classifier:
    torch.manual_seed(0)
    model = Classifier(Maps(), method.head(6, 5), [f"c{j}" for j in range(5)])  # type: ignore[arg-type]
    model.double().eval()
    method.double()
    if isinstance(method, FollowsStages):
        method.begin_stage(stage, model)
    return model


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("denominator", ["all", "inter"])
def test_losses_by_hand(stage: int, denominator: Any) -> None:
    method = LabelAwareConsistency(
        delta=0.55, delta2=0.6, base="an", width=8, denominator=denominator
    )
    model = ready(method, stage)
    head = model.head
    assert isinstance(head, LabelDecoder)
    delta = (0.55, 0.6)[stage]
    labels = np.array([[1, 0, 0, -1, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]])
    weak, strong = (3 * torch.randn(3, 6, 2, 2, dtype=torch.float64) for _ in range(2))
    method.prepare(task(labels))
    past = torch.nn.functional.normalize(torch.randn(3, 2, 128, dtype=torch.float64), dim=2)
    method.queue.push(past, torch.tensor([0, 1, 1]))
    batch = Batch(
        torch.arange(3), torch.from_numpy(labels).double(), {"weak": weak, "strong": strong}
    )
    parts = {name: float(part.detach()) for name, part in method.loss(model, batch).items()}
    with torch.no_grad():
        p, q = (torch.sigmoid(head(view)).numpy() for view in (weak, strong))
        z = [head.project(head.embed(view)).numpy() for view in (weak, strong)]
    an, plc, chosen = 0.0, [], []
    for cell in np.ndindex(labels.shape):
        an -= np.log(p[cell] if labels[cell] == 1 else 1 - p[cell]) / labels.size
        if labels[cell] == 0 and p[cell] >= delta:
            plc.append(-np.log(q[cell]))
        if labels[cell] == 0 and 1 - p[cell] >= delta:
            plc.append(-np.log(1 - q[cell]))
        if labels[cell] == 1 or (labels[cell] == 0 and p[cell] >= delta):
            chosen.append(cell)
    assert len(plc) > 3
    assert len(chosen) > 4
    expected = an + np.mean(plc)
    if stage == 1:
        now = np.array([z[view][cell] for cell in chosen for view in (0, 1)])
        classes = np.repeat([cell[1] for cell in chosen], 2)
        kept = past.flatten(0, 1).numpy(), np.repeat([0, 1, 1], 2)
        lac = by_hand(now, classes, *kept, 0.5, denominator, 2 * labels.size)
        assert parts["lac"] == pytest.approx(lac, rel=1e-6)
        expected += lac
    assert parts["base"] == pytest.approx(an)
    assert parts["plc"] == pytest.approx(np.mean(plc))
    assert parts["loss"] == pytest.approx(expected, rel=1e-6)
    assert int(method.queue.pushed) == 3 + (len(chosen) if stage == 1 else 0)


@pytest.mark.parametrize(("stage", "delta"), [(0, 0.6), (1, 0.9)])
def test_on_em_the_likeliest_labels_are_believed(stage: int, delta: float) -> None:
    """A share 1 - delta of what is missing of those expected; each costs what a known one does."""
    method = LabelAwareConsistency(width=8, expected=4.0)
    model = ready(method, stage)
    labels = np.array([[1, 0, 0, -1, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]] * 4)
    method.prepare(task(labels))
    views = {n: 3 * torch.randn(12, 6, 2, 2, dtype=torch.float64) for n in ("weak", "strong")}
    batch = Batch(torch.arange(12), torch.from_numpy(labels).double(), views)
    parts = {name: float(part.detach()) for name, part in method.loss(model, batch).items()}
    with torch.no_grad():
        weak, strong = (model.head(views[name]).numpy() for name in ("weak", "strong"))
    number = int((1 - delta) * (4.0 - 1.0) * 12)
    unknown = np.flatnonzero(labels.ravel() == 0)
    likeliest = unknown[np.argsort(-weak.ravel()[unknown])[:number]]
    assert parts["believed"] == pytest.approx(number / 12)
    cost = np.log1p(np.exp(-strong.ravel()[likeliest])).sum() / labels.size
    assert parts["plc"] == pytest.approx(cost)
    assert set(method.diary.get_extra_state().tolist()) == set(likeliest.tolist())


def test_small_batches_believe_as_many_as_large_ones() -> None:
    """What is left of a number that is not whole counts in the next batch."""
    method = LabelAwareConsistency(width=8, expected=1.5)
    method.prepare(task(np.eye(5, dtype=int) - np.eye(5, k=1, dtype=int)))
    labels, logits = torch.zeros(2, 5), torch.randn(2, 5)
    found = [int(method._believe(logits, labels, 0.9).sum()) for _ in range(50)]
    assert sum(found) == pytest.approx(0.1 * 0.5 * 2 * 50, abs=1)
    assert set(found) == {0, 1}


def test_without_a_count_of_present_labels_it_says_what_to_set() -> None:
    labels = np.array([[1, 0], [0, 1]])
    with pytest.raises(InputError, match=r"expected=1\.5 \(your guess\) or base=an"):
        LabelAwareConsistency().prepare(task(labels))
    LabelAwareConsistency(lambda_plc=0, lambda_lac=0).prepare(task(labels))


def test_only_the_strong_view_learns_and_only_what_is_unknown() -> None:
    torch.manual_seed(0)
    weak, strong = (torch.randn(2, 4, requires_grad=True) for _ in range(2))
    labels = torch.tensor([[1, 0, -1, 0], [0, -1, 0, 1]])
    losses.plc(strong, labels, 0.5, teacher=weak).backward()  # type: ignore[no-untyped-call]
    assert weak.grad is None
    assert strong.grad is not None
    assert torch.equal(strong.grad != 0, labels == 0)


@given(
    size=st.integers(0, 5),
    pushes=st.lists(st.integers(0, 8), max_size=6),
)
def test_the_queue_holds_what_came_last(size: int, pushes: list[int]) -> None:
    queue = EmbeddingQueue(size, 1)
    everything: list[int] = []
    for number in pushes:
        values = np.arange(len(everything), len(everything) + number)
        everything += values.tolist()
        pairs = torch.from_numpy(np.stack([values, values + 0.5], axis=1)).float()[..., None]
        queue.push(pairs, torch.from_numpy(values))
    held, classes = queue.read()
    last = everything[max(len(everything) - size, 0) :]
    assert sorted(held.flatten().tolist()) == sorted(v + half for v in last for half in (0, 0.5))
    np.testing.assert_array_equal(held.flatten().floor().numpy(), classes.numpy())


class Watched:
    """What a trainer has at the start of each stage, and each epoch's weights when it is over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> None:
        self.started: list[dict[str, Any]] = []
        self.after: list[dict[str, torch.Tensor]] = []
        start, end = Trainer._begin_stage, Trainer._end_epoch
        watched = self

        def begin(self: Trainer) -> None:
            start(self)
            assert self.teacher is not None
            assert isinstance(self.model.head, LabelDecoder)
            assert self.model.head.projection is not None
            moves = {p.requires_grad for p in self.model.head.projection.parameters()}
            model, teacher = self.model.trained_weights(), self.teacher.trained_weights()
            steps = self.progress.teacher_steps
            watched.started.append(
                {"model": model, "teacher": teacher, "steps": steps, "projection": moves}
            )

        def finish(self: Trainer, *rest: Any) -> None:
            watched.after.append(self.model.trained_weights())
            end(self, *rest)

        def validate(self: Trainer, model: Classifier) -> float:
            return scores[self.progress.epoch] if model is self.model else 0.0

        monkeypatch.setattr(Trainer, "_begin_stage", begin)
        monkeypatch.setattr(Trainer, "_end_epoch", finish)
        monkeypatch.setattr(Trainer, "_validate", validate)


def test_the_second_stage_starts_from_the_best_of_the_first(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch, [0.9, 0.1, 0.8, 0.95])
    call = {**MethodConformance.tiny, "method": "lac", "options": TestLac.options, "epochs": 4}
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **call)
    first, second = watched.started
    assert (first["projection"], second["projection"]) == ({False}, {True})
    assert not same(watched.after[0], watched.after[1])
    assert same(second["model"], watched.after[0])
    assert same(second["teacher"], watched.after[0])  # not a mean that began in the first stage
    assert second["steps"] == 0
    assert same(run.stage_weights(1), watched.after[0])
    assert same(load_state(run.folder / "best.safetensors"), watched.after[3])
    history = run.history()
    assert [("lac" in line) for line in history] == [False, False, True, True]


def test_it_is_said_if_the_second_stage_had_no_effect(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Watched(monkeypatch, [0.9, 0.1])
    call = {**MethodConformance.tiny, "method": "lac", "options": TestLac.options}
    train(scene / "partial.csv", scene / "images", tmp_path / "run", **call)
    said = " ".join("".join(capsys.readouterr()).split())
    assert "epoch 1, of stage 1 of 2, was the best and is kept" in said


@pytest.mark.parametrize(
    ("name", "options"), [("lac", {"delta": 0.5, "width": 16, "base": "an"}), ("sr", {"tau": 0.5})]
)
def test_the_diary_holds_what_the_weak_view_believed(name: str, options: Any) -> None:
    method = METHODS[name](**options)
    labels = np.array([[1, 0, 0, -1, 0], [0, 0, 1, 0, 0], [0, -1, 0, 0, 0]])
    method.prepare(task(labels))
    model = ready(method, 0)
    views = {n: 3 * torch.randn(3, 6, 3, 3, dtype=torch.float64) for n in ("weak", "strong")}
    rows = torch.tensor([2, 0, 1])
    method.loss(model, Batch(rows, torch.from_numpy(labels[rows]).double(), views))
    with torch.no_grad():
        p = torch.sigmoid(model.head(views["weak"])).numpy()
    expected = {
        5 * int(rows[i]) + j
        for i, j in np.ndindex(3, 5)
        if labels[rows[i], j] == 0 and p[i, j] >= 0.5
    }
    assert isinstance(method.diary, Diary)
    assert set(method.diary.get_extra_state().tolist()) == expected
    assert 0 < len(expected) < 10


def test_half_of_the_epochs_each() -> None:
    method = LabelAwareConsistency()
    assert [(s.epochs, s.patience) for s in method.stages(9, None)] == [(5, 5), (4, None)]
    assert [(s.epochs, s.patience) for s in method.stages(9, 2)] == [(5, 2), (4, 2)]
    assert [s.epochs for s in LabelAwareConsistency(lambda_lac=0).stages(9, None)] == [9]
    with pytest.raises(InputError, match="two stages need"):
        method.stages(1, None)
    with pytest.raises(InputError, match="patience"):
        LabelAwareConsistency(base="em-apl").stages(8, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lambda_lac": 0, "tau": 1}, "tau would have no effect without lambda_lac"),
        ({"stages": 1, "delta2": 0.8}, "delta2 would have no effect without a second stage"),
        ({"base": "an", "alpha": 0.2}, "alpha would have no effect without base=em"),
        ({"base": "an", "expected": 2}, "expected would have no effect without base=em"),
        ({"base": "em", "beta": 0.1}, "beta would have no effect without base=em-apl"),
        ({"delta": 0.4}, "greater than or equal to 0.5"),
        (
            {"lambda_plc": 0, "lambda_lac": 0, "delta": 0.8},
            "delta would have no effect without lambda_plc",
        ),
        ({"lambda_plc": 0, "delta": 0.8}, "delta would have no effect without lambda_plc"),
        (
            {"lambda_plc": 0, "lambda_lac": 0, "expected": 2},
            "expected would have no effect without lambda_plc",
        ),
    ],
)
def test_settings_that_would_do_nothing_are_refused(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_settings(method="lac", options=options)


def test_a_diary_of_another_run_is_refused(tmp_path: Path) -> None:
    diary = Diary()
    labels = LabelTable([f"{i}" for i in range(5)], ["a", "b"], np.zeros((5, 2), dtype=np.int8))
    diary.prepare(Task(labels, labels, 2, tmp_path))
    diary.note(torch.tensor([4, 2]), torch.tensor([[False, True], [True, False]]))
    diary.turn(1)
    diary.note(torch.tensor([1]), torch.tensor([[True, True]]))
    pages = diary.pages(2)
    assert {number: page.tolist() for number, page in pages.items()} == {1: [9, 4], 2: [2, 3]}
    diary.cells = 9
    with pytest.raises(FileError, match="other labels"):
        diary.pages(2)
    diary.cells = 10
    (tmp_path / "diary" / "1.npy").write_bytes(b"nonsense")
    with pytest.raises(FileError, match="not a page"):
        diary.pages(2)
    with (tmp_path / "diary" / "1.npy").open("wb") as stream:
        np.savez(stream, cells=np.zeros(1, dtype=np.int64))
    with pytest.raises(FileError, match="not a page"):
        diary.pages(2)


def test_every_base_trains_the_same_head() -> None:
    for base in ("an", "em", "em-apl"):
        method = LabelAwareConsistency(base=base)
        assert isinstance(tiny_model(method, 3).head, LabelDecoder)
