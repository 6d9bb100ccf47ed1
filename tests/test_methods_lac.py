"""lac: conformance, losses against a plain computation, queue, stages, diary."""

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
from partlabel.learning.methods.assume_negative import AssumeNegative
from partlabel.learning.methods.em import EntropyMaximization
from partlabel.learning.methods.em_apl import EmApl
from partlabel.learning.methods.lac import LabelAwareConsistency
from partlabel.learning.pseudo_labels.diary import Diary
from partlabel.learning.queue import EmbeddingQueue
from partlabel.models import Classifier
from partlabel.models.heads import LabelDecoder
from partlabel.models.heads.decoder import QueryAttention
from partlabel.training.arguments import make_settings
from partlabel.training.checkpoint import load_state, same
from partlabel.training.train import train
from partlabel.training.trainer import Trainer
from test_contrastive import by_hand
from trained import tiny_model

ONE_EACH = MethodConformance.tiny | {"epochs": 1}  # of two stages
SMALL = {"width": 16, "delta": 0.5, "queue": 8, "base": "an"}


class TestLac(MethodConformance):
    """The second epoch is the second stage, with a queue."""

    name = "lac"
    options: ClassVar[dict[str, Any]] = SMALL | {"delta2": 0.5}
    tiny = ONE_EACH


class TestPaper(MethodConformance):
    """The preset of the paper, with the parts of the authors' decoder."""

    name = "lac"
    options: ClassVar[dict[str, Any]] = {
        "preset": "paper",
        "width": 16,
        "layers": 2,
        "feedforward": 24,
        "positions": True,
    }
    tiny = ONE_EACH


class TestEndToEnd(MethodConformance):
    name = "lac"
    options: ClassVar[dict[str, Any]] = SMALL | {"stages": 1, "denominator": "inter"}


class TestWithEmApl(MethodConformance):
    name = "lac"
    options: ClassVar[dict[str, Any]] = {"base": "em-apl", "warmup": 1, "width": 16}
    tiny = ONE_EACH


class TestWithEm(MethodConformance):
    """By default the most likely unknown labels count as present."""

    name = "lac"
    options: ClassVar[dict[str, Any]] = {"width": 16, "queue": 8, "expected": 3}
    tiny = ONE_EACH


class TestFrozen(MethodConformance):
    name = "lac"
    options = TestLac.options
    tiny = ONE_EACH | {"frozen": "all", "view_bank": 1}


class TestBaseAlone(MethodConformance):
    """The base method with the decoder: one view."""

    name = "lac"
    options: ClassVar[dict[str, Any]] = {"lambda_plc": 0, "lambda_lac": 0, "width": 16}


class Maps(torch.nn.Module):
    """A backbone whose inputs are feature maps already."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps


def task(labels: Any) -> Task:
    names = [f"c{j}" for j in range(labels.shape[1])]
    table = LabelTable([f"{i}" for i in range(len(labels))], names, labels)
    return Task(table, table, epochs=4)


def make_model(method: Method, stage: int) -> Classifier:
    """A model for a method that is at the beginning of a stage."""
    torch.manual_seed(0)
    model = Classifier(Maps(), method.head(6, 5), [f"c{j}" for j in range(5)])  # type: ignore[arg-type]
    model.double().eval()
    method.double()
    if isinstance(method, FollowsStages):
        method.begin_stage(stage, model)
    return model


def test_the_settings_of_the_decoder_reach_it() -> None:
    method = LabelAwareConsistency(width=8, layers=2, feedforward=12, positions=True, dropout=0.3)
    head = method.head(16, 5)
    assert isinstance(head, LabelDecoder)
    blocks = [block for block in head.layers if isinstance(block, QueryAttention)]
    hidden = [w.shape for name, w in head.state_dict().items() if name.endswith("mlp.0.weight")]
    assert hidden == [torch.Size([12, 8])] * 2
    assert [block.dropout.p for block in blocks] == [0.3, 0.3]
    assert head.positions


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("denominator", ["all", "inter"])
def test_losses_by_hand(stage: int, denominator: Any) -> None:
    method = LabelAwareConsistency(
        delta=0.55, delta2=0.6, base="an", width=8, denominator=denominator
    )
    model = make_model(method, stage)
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
def test_with_em_the_most_likely_labels_count_as_present(stage: int, delta: float) -> None:
    """A share 1 - delta of the number that is missing; each has the cost of a known label."""
    method = LabelAwareConsistency(width=8, expected=4.0)
    model = make_model(method, stage)
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


def test_the_number_of_estimates_does_not_depend_on_the_batch_size() -> None:
    """The fraction of a label that is left in a batch is added in the next one."""
    method = LabelAwareConsistency(width=8, expected=1.5)
    method.prepare(task(np.eye(5, dtype=int) - np.eye(5, k=1, dtype=int)))
    labels, logits = torch.zeros(2, 5), torch.randn(2, 5)
    counts = [int(method._estimate(logits, labels, 0.9).sum()) for _ in range(50)]
    assert sum(counts) == pytest.approx(0.1 * 0.5 * 2 * 50, abs=1)
    assert set(counts) == {0, 1}


def test_if_present_labels_cannot_be_counted_the_error_says_what_to_set() -> None:
    labels = np.array([[1, 0], [0, 1]])
    with pytest.raises(InputError, match=r"expected=1\.5 \(your estimate\) or base=an"):
        LabelAwareConsistency().prepare(task(labels))
    LabelAwareConsistency(lambda_plc=0, lambda_lac=0).prepare(task(labels))


def test_plc_has_a_gradient_only_for_unknown_labels_of_the_strong_view() -> None:
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
def test_the_queue_holds_the_last_pairs(size: int, pushes: list[int]) -> None:
    queue = EmbeddingQueue(size, 1)
    pushed: list[int] = []
    for number in pushes:
        values = np.arange(len(pushed), len(pushed) + number)
        pushed += values.tolist()
        pairs = torch.from_numpy(np.stack([values, values + 0.5], axis=1)).float()[..., None]
        queue.push(pairs, torch.from_numpy(values))
    embeddings, classes = queue.read()
    last = pushed[max(len(pushed) - size, 0) :]
    expected = sorted(value + half for value in last for half in (0, 0.5))
    assert sorted(embeddings.flatten().tolist()) == expected
    np.testing.assert_array_equal(embeddings.flatten().floor().numpy(), classes.numpy())


class TrainerSpy:
    """Records a trainer's state at the start of each stage, and its weights after each epoch.

    Validation gives the scores of a list instead.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> None:
        self.started: list[dict[str, Any]] = []
        self.after: list[dict[str, torch.Tensor]] = []
        start, end = Trainer._begin_stage, Trainer._end_epoch
        spy = self

        def begin(self: Trainer) -> None:
            start(self)
            assert self.teacher is not None
            assert isinstance(self.model.head, LabelDecoder)
            assert self.model.head.projection is not None
            is_trained = {p.requires_grad for p in self.model.head.projection.parameters()}
            model, teacher = self.model.trained_weights(), self.teacher.trained_weights()
            steps = self.progress.teacher_steps
            spy.started.append(
                {"model": model, "teacher": teacher, "steps": steps, "projection": is_trained}
            )

        def finish(self: Trainer, *rest: Any) -> None:
            spy.after.append(self.model.trained_weights())
            end(self, *rest)

        def validate(self: Trainer, model: Classifier) -> float:
            return scores[self.progress.epoch] if model is self.model else 0.0

        monkeypatch.setattr(Trainer, "_begin_stage", begin)
        monkeypatch.setattr(Trainer, "_end_epoch", finish)
        monkeypatch.setattr(Trainer, "_validate", validate)


def test_the_second_stage_starts_from_the_best_weights_of_the_first(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = TrainerSpy(monkeypatch, [0.9, 0.1, 0.8, 0.95])
    arguments = {**MethodConformance.tiny, "method": "lac", "options": TestLac.options, "epochs": 2}
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **arguments)
    first, second = spy.started
    assert (first["projection"], second["projection"]) == ({False}, {True})
    assert not same(spy.after[0], spy.after[1])
    assert same(second["model"], spy.after[0])
    assert same(second["teacher"], spy.after[0])  # the running mean starts again
    assert second["steps"] == 0
    assert same(load_state(run.folder / "stages" / "1.safetensors"), spy.after[0])
    assert same(load_state(run.folder / "best.safetensors"), spy.after[3])
    history = run.history()
    assert [("lac" in line) for line in history] == [False, False, True, True]


def test_a_note_if_the_second_stage_had_no_effect(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    TrainerSpy(monkeypatch, [0.9, 0.1])
    arguments = {**ONE_EACH, "method": "lac", "options": TestLac.options, "keep": "best-of-all"}
    train(scene / "partial.csv", scene / "images", tmp_path / "run", **arguments)
    output = " ".join("".join(capsys.readouterr()).split())
    assert "epoch 1, of stage 1 of 2, was the best and is kept" in output


@pytest.mark.parametrize(
    ("name", "options"), [("lac", {"delta": 0.5, "width": 16, "base": "an"}), ("sr", {"tau": 0.5})]
)
def test_the_diary_holds_the_labels_that_counted_as_present(name: str, options: Any) -> None:
    method = METHODS[name](**options)
    labels = np.array([[1, 0, 0, -1, 0], [0, 0, 1, 0, 0], [0, -1, 0, 0, 0]])
    method.prepare(task(labels))
    model = make_model(method, 0)
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


def test_each_stage_has_all_epochs_and_stops_early() -> None:
    method = LabelAwareConsistency()
    assert [(s.epochs, s.patience) for s in method.stages(9, None)] == [(9, 8), (9, 8)]
    assert [(s.epochs, s.patience) for s in method.stages(9, 2)] == [(9, 2), (9, 2)]
    assert [s.epochs for s in LabelAwareConsistency(lambda_lac=0).stages(9, None)] == [9]
    settings = make_settings(method="lac")
    assert (settings.schedule, settings.rise) == ("onecycle", 0.2)


def test_pseudo_labels_of_the_base_are_planned_for_both_stages() -> None:
    method = LabelAwareConsistency(base="em-apl", warmup=3, expected=2.0)
    method.prepare(task(np.eye(5, dtype=int)))  # 4 epochs in each stage
    assert isinstance(method.base, EmApl)
    assert method.base.rounds == 2 * 4 - 3


def test_the_preset_of_the_paper() -> None:
    """Its losses are those of base=an, which test_losses_by_hand computes; both signs count."""
    paper, ours = LabelAwareConsistency(preset="paper"), LabelAwareConsistency()
    assert type(paper.base) is AssumeNegative
    assert type(ours.base) is EntropyMaximization
    assert paper.by_score
    logits, labels = torch.tensor([[2.0, -2.0, 0.1]]), torch.zeros(1, 3)
    assert paper._estimate(logits, labels, 0.6).tolist() == [[1, -1, 0]]
    assert (paper.deltas, paper.tau, paper.queue.size) == ((0.6, 0.9), 0.5, 512)
    assert (paper.lambda_plc, paper.lambda_lac) == (1, 1)
    with pytest.raises(InputError, match="preset=paper has base=an"):
        LabelAwareConsistency(preset="paper", base="em")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lambda_lac": 0, "tau": 1}, "tau would have no effect without lambda_lac"),
        ({"stages": 1, "delta2": 0.8}, "delta2 would have no effect without a second stage"),
        ({"base": "an", "alpha": 0.2}, "alpha would have no effect without base=em"),
        ({"base": "an", "expected": 2}, "expected would have no effect without base=em"),
        ({"base": "em", "beta": 0.1}, "beta would have no effect without base=em-apl"),
        ({"delta": 0.4}, "must be at least 0.5"),
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
def test_settings_without_effect_are_errors(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_settings(method="lac", options=options)


def test_a_diary_of_another_run_is_an_error(tmp_path: Path) -> None:
    diary = Diary()
    labels = LabelTable([f"{i}" for i in range(5)], ["a", "b"], np.zeros((5, 2), dtype=np.int8))
    diary.prepare(Task(labels, labels, 2, tmp_path))
    diary.add(torch.tensor([4, 2]), torch.tensor([[False, True], [True, False]]))
    diary.begin_epoch(1)
    diary.add(torch.tensor([1]), torch.tensor([[True, True]]))
    pages = diary.pages(2)
    assert {number: page.tolist() for number, page in pages.items()} == {1: [9, 4], 2: [2, 3]}
    diary.cells = 9
    with pytest.raises(FileError, match="other labels"):
        diary.pages(2)
    diary.cells = 10
    np.savez(tmp_path / "archive.npz", np.zeros(2, dtype=np.int64))
    for content in (b"nonsense", b"", (tmp_path / "archive.npz").read_bytes()):
        (tmp_path / "diary" / "1.npy").write_bytes(content)
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
