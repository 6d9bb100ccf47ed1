"""partial-bce: conformance, strategies of the curriculum against plain computations, rounds."""

import csv
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logit

from conformance import CLASSES, SIZE, MethodConformance, assert_same_memory
from partlabel.base.errors import InputError, JobError, PartlabelWarning
from partlabel.images.batches import Batch
from partlabel.judging.pseudo_label_rates import judge, read_tally
from partlabel.labels import LabelTable
from partlabel.labels.formats import read_labels
from partlabel.learning import losses
from partlabel.learning.methods import Task
from partlabel.learning.methods.partial_bce import PartialBce
from partlabel.learning.pseudo_labels import LabelMemory
from partlabel.learning.pseudo_labels.curriculum import (
    Curriculum,
    certain,
    large,
    largest_share,
    present_only,
)
from partlabel.models.heads import GraphRefiner, Linear, Refined, Weldon
from partlabel.output.report.round_table import round_table
from partlabel.training.arguments import make_settings
from partlabel.training.build import build
from partlabel.training.checkpoint import load_state, same
from partlabel.training.progress import Progress
from partlabel.training.run import Run
from partlabel.training.train import train
from partlabel.training.trainer import Trainer
from trained import tiny_model


class TestPartialBce(MethodConformance):
    name = "partial-bce"


class TestGraph(MethodConformance):
    name = "partial-bce"
    options: ClassVar[dict[str, Any]] = {"gnn": True, "curriculum": "two-step"}
    tiny = MethodConformance.tiny | {"head": "weldon", "head_options": {"k_max": 2}}


class TestBayesian(MethodConformance):
    name = "partial-bce"
    options: ClassVar[dict[str, Any]] = {
        "curriculum": "e",
        "gnn": True,
        "passes": 3,
        "theta": 10.0,
        "redecide": True,
    }


class TestEnsemble(MethodConformance):
    name = "partial-bce"
    options: ClassVar[dict[str, Any]] = {"curriculum": "d", "members": 2, "theta": 0.01}

    def test_members_are_in_the_folder_of_the_run(self, scene: Path, tmp_path: Path) -> None:
        run = self.train(scene, tmp_path / "run")
        other = Run(run.folder / "members" / "2")
        with (other.folder / "log.csv").open() as log:
            assert [line["epoch"] for line in csv.DictReader(log)] == [
                "1"
            ]  # later epochs are not needed
        first, second = (load_state(each.checkpoint)["model"] for each in (run, other))
        weight = "head.classifier.weight"
        assert not torch.equal(first[weight], second[weight])

    def test_the_mean_score_of_an_ensemble_decides(
        self, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Stopped at the end of the round, when the weights of all members are on disk."""

        def stop(self: Curriculum, number: int) -> None:
            raise KeyError("stop")

        monkeypatch.setattr(Curriculum, "end_round", stop)
        with pytest.raises(KeyError, match="stop"):
            self.train(scene, tmp_path / "run", seed=3)
        run = Run(tmp_path / "run")
        training = run.task().labels
        scores = []
        for folder in (run.folder, run.folder / "members" / "2"):
            model, _ = build(run.settings, list(training.classes), pretrained=False)
            model.load_state_dict(load_state(folder / "last.safetensors")["model"])
            probabilities = model.predict(scene / "images" / name for name in training.ids)
            scores.append(logit(probabilities.astype(np.float64)))
        memory = LabelMemory.open(run.folder / "memory")
        signs, _ = memory.read(np.arange(len(training)), 1)
        mean = np.mean(scores, axis=0)
        clear = (training.dense() == 0) & (np.abs(np.abs(mean) - 0.01) > 1e-4)
        np.testing.assert_array_equal(signs[clear], large(mean, 0.01)[clear])
        assert (large(scores[0], 0.01)[clear] != signs[clear]).any()  # one member differs

    def test_members_use_as_many_workers_as_the_run(
        self, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        workers: list[int | None] = []
        fit = Trainer.fit

        def spy(trainer: Trainer) -> Progress:
            workers.extend(each.workers for each in (trainer, *trainer.members))
            return fit(trainer)

        monkeypatch.setattr(Trainer, "fit", spy)
        self.train(scene, tmp_path / "run", workers=0, epochs=2)
        assert workers == [0, 0]

    def test_members_train_on_the_labels_of_the_leader(self) -> None:
        labels = table(KNOWN)
        leader, member = (PartialBce(curriculum="d", relabel_at=[2]) for _ in range(2))
        member.follow(leader)
        for method in (leader, member):
            method.prepare(Task(labels, labels, epochs=3))
        leader.before_epoch(1, predict_with(FIRST))
        batch = Batch(torch.arange(4), torch.from_numpy(labels.dense()).float(), {})
        logits = torch.randn(4, 3)
        assert member.before_epoch(1, predict_with(FIRST)) == {}
        torch.testing.assert_close(member.cost(logits, batch), leader.cost(logits, batch))
        assert float(member.cost(logits, batch)) != float(losses.partial_bce(logits, batch.labels))


ROUNDS = {"relabel_at": [2, 3, 4], "theta": 0.01}


@pytest.mark.exact
@pytest.mark.parametrize(
    ("options", "stop"),
    [
        ({"curriculum": "a", **ROUNDS}, ("run", 2)),
        ({"curriculum": "a", "redecide": True, **ROUNDS}, ("run", 3)),
        ({"curriculum": "d", "members": 2, **ROUNDS}, ("2", 2)),
        ({"curriculum": "d", "members": 2, "redecide": True, **ROUNDS}, ("2", 3)),
    ],
)
def test_killed_between_rounds(
    options: dict[str, Any],
    stop: tuple[str, int],
    scene: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed after an epoch, without saving a checkpoint. ``stop`` is the member and the epoch."""
    from partlabel.training import trainer

    conformance = MethodConformance()
    conformance.name, conformance.options = "partial-bce", options  # type: ignore[misc]
    whole = conformance.train(scene, tmp_path / "whole" / "run", epochs=4)
    original = trainer.Trainer._end_epoch

    def end_and_die(self: trainer.Trainer, record: dict[str, Any]) -> None:
        original(self, record)
        assert self.checkpoint is not None
        if (self.checkpoint.parent.name, self.progress.epoch) == stop:
            raise KeyError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(trainer.Trainer, "_end_epoch", end_and_die)
        with pytest.raises(KeyError, match="killed"):
            conformance.train(scene, tmp_path / "cut" / "run", epochs=4)
    cut = conformance.train(scene, tmp_path / "cut" / "run", epochs=4, resume=True)
    states = [load_state(run.checkpoint) for run in (whole, cut)]
    for state in states:
        for record in state["progress"]["history"]:
            record.pop("images_per_second")
    assert same(*states)
    name = "memory-3" if options.get("redecide") else "memory"
    assert_same_memory(*(LabelMemory.open(run.folder / name) for run in (whole, cut)))
    assert not (cut.folder / "memory-1").exists()


def table(labels: Any) -> LabelTable:
    labels = np.asarray(labels)
    names = [f"c{j}" for j in range(labels.shape[1])]
    return LabelTable([f"{i}" for i in range(len(labels))], names, labels)


def predict_with(*scores: Any) -> Any:
    """A ``predict`` function that yields these logits in two batches, the last images first."""
    logits = torch.tensor(np.asarray(scores), dtype=torch.float32)

    def predict(forward: Any = None) -> Any:
        middle = logits.shape[-2] // 2
        for rows in (np.arange(middle, logits.shape[-2]), np.arange(middle)):
            yield rows, logits[..., rows, :].squeeze(0)

    return predict


def labels_after(curriculum: Curriculum, labels: LabelTable, *scores: Any, epochs: int = 9) -> Any:
    """The labels to train on after one round for each of the scores."""
    curriculum.prepare(Task(labels, labels, epochs))
    for epoch, round_scores in zip(curriculum.epochs, scores, strict=True):
        figures = curriculum.before_epoch(epoch - 1, predict_with(round_scores))
    dense = torch.from_numpy(labels.dense()).float()
    trained_on = curriculum.labels(Batch(torch.arange(len(dense)), dense, {})).numpy()
    assert figures["label_share"] == pytest.approx(np.mean(trained_on != 0))
    return trained_on.tolist()


KNOWN = [[1, 0, 0], [0, -1, 0], [0, 0, 0], [0, 0, 0]]
FIRST = [[-9, 3, -0.5], [0.4, 9, -3], [-1, 0.1, 6], [2, -2, 0]]


def test_strategies_by_hand() -> None:
    labels = table(KNOWN)
    assert labels_after(Curriculum("a", 2, [2]), labels, FIRST) == [
        [1, 1, 0], [0, -1, -1], [0, 0, 1], [1, -1, 0],
    ]  # fmt: skip
    assert labels_after(Curriculum("c", 3, [2]), labels, FIRST) == [
        [1, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, 0],
    ]  # fmt: skip
    assert labels_after(Curriculum("two-step"), labels, FIRST) == [
        [1, 1, -1], [1, -1, -1], [-1, 1, 1], [1, -1, 1],
    ]  # fmt: skip
    # a quarter of the four unknown cells of one batch, and of the six of the other
    assert labels_after(Curriculum("b", 0.25, [2]), labels, FIRST) == [
        [1, 1, 0], [0, -1, 0], [0, 0, 1], [1, 0, 0],
    ]  # fmt: skip


def test_the_uncertainty_chooses_cells_and_the_mean_labels_them() -> None:
    labels = table(KNOWN)
    uncertainty = np.where(np.array(FIRST) == 9, 0, 1.0)  # 0 for a cell that is known
    uncertainty[0, 2] = uncertainty[3, 2] = 0.25
    assert labels_after(Curriculum("e", 0.25, [2]), labels, [FIRST, uncertainty]) == [
        [1, 0, -1], [0, -1, 0], [0, 0, 0], [0, 0, 1],
    ]  # fmt: skip


def test_labels_stay_unless_redecided() -> None:
    labels, second = table(KNOWN), -np.array(FIRST) - 3
    kept = labels_after(Curriculum("a", 2, [2, 3]), labels, FIRST, second)
    assert kept == [[1, 1, -1], [-1, -1, -1], [-1, -1, 1], [1, -1, -1]]
    redecided = labels_after(Curriculum("a", 2, [2, 3], redecide=True), labels, FIRST, second)
    assert redecided == [[1, -1, -1], [-1, -1, 0], [-1, -1, -1], [-1, 0, -1]]


@pytest.mark.filterwarnings("ignore:the curriculum gave no label")
@given(
    seed=st.integers(0, 2**32),
    strategy=st.sampled_from(["two-step", "a", "b", "c", "d", "e"]),
    theta=st.floats(0, 1),
    redecide=st.booleans(),
)
def test_known_labels_never_change(seed: int, strategy: Any, theta: float, redecide: bool) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, 2, (rng.integers(2, 6), rng.integers(1, 5)))
    curriculum = Curriculum(strategy, None if strategy == "two-step" else theta, None, redecide)
    curriculum.prepare(Task(table(labels), table(labels), epochs=8))
    shape = (2, *labels.shape) if strategy == "e" else labels.shape
    scores = [rng.normal(size=shape) for _ in curriculum.epochs]
    trained_on = np.array(labels_after(curriculum, table(labels), *scores, epochs=8))
    np.testing.assert_array_equal(trained_on[labels != 0], labels[labels != 0])
    assert set(np.unique(trained_on)) <= {-1, 0, 1}


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_the_share_of_a_batch_equals_a_sort(seed: int, theta: float) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.choice([-2.0, -0.5, 0.0, 0.5, 2.0], (3, 4))
    unknown = rng.random((3, 4)) < 0.6
    signs = largest_share(scores, unknown, theta)
    cells = [cell for cell in np.ndindex(3, 4) if unknown[cell]]
    cells.sort(key=lambda cell: -abs(scores[cell]))
    expected = np.zeros((3, 4))
    for cell in cells[: round(theta * len(cells))]:
        expected[cell] = 1 if scores[cell] >= 0 else -1
    np.testing.assert_array_equal(signs, expected)


def test_thresholds_are_inclusive() -> None:
    scores = np.array([[-2.0, 2.0, 1.99, 0.0]])
    assert large(scores, 2.0).tolist() == [[-1, 1, 0, 0]]
    assert present_only(scores, 2.0).tolist() == [[0, 1, 0, 0]]
    assert certain(scores, np.array([[0.3, 0.31, 0.3, 0.0]]), 0.3).tolist() == [[-1, 0, 1, 1]]


def test_dropout_passes_share_the_backbone() -> None:
    """Mean and variance equal those of many single passes, with one pass of the backbone."""
    method = PartialBce(curriculum="e", gnn=True, passes=4000)
    model = tiny_model(method, CLASSES).eval()
    calls: list[int] = []
    model.backbone.register_forward_hook(lambda *_: calls.append(1))
    pictures = torch.randint(0, 255, (2, 3, SIZE, SIZE), dtype=torch.uint8)
    assert isinstance(method.pseudo, Curriculum)
    with torch.no_grad():
        mean, variance = method.pseudo._with_dropout(model, pictures)
        assert len(calls) == 1
        assert not any(part.training for part in model.modules())
        features = model.backbone(pictures)
        model.head.train()
        passes = np.stack([model.head(features).numpy() for _ in range(4000)])
    assert passes.std(axis=0).min() > 0  # dropout is on
    error = passes.std(axis=0) / 4000**0.5
    assert (np.abs(mean.numpy() - passes.mean(axis=0)) < 6 * error).all()
    np.testing.assert_allclose(variance.numpy(), passes.var(axis=0), rtol=0.3)


def test_the_variance_is_the_square_of_the_deviation() -> None:
    method = PartialBce(curriculum="e", passes=9)
    model = tiny_model(method, CLASSES).eval()
    pictures = torch.randint(0, 255, (2, 3, SIZE, SIZE), dtype=torch.uint8)
    uncertainties = []
    for kind in ("variance", "deviation"):
        torch.manual_seed(0)
        curriculum = Curriculum("e", passes=9, uncertainty=kind)
        with torch.no_grad():
            uncertainties.append(curriculum._with_dropout(model, pictures)[1])
    torch.testing.assert_close(uncertainties[1] ** 2, uncertainties[0])


@pytest.mark.parametrize("head", [Linear(8, 3, dropout=0.5), Weldon(8, 3, dropout=0.5)])
def test_heads_have_dropout(head: torch.nn.Module) -> None:
    maps = torch.randn(2, 8, 4, 4)
    assert not torch.equal(head.train()(maps), head(maps))
    assert torch.equal(head.eval()(maps), head(maps))


def test_the_graph_network_has_dropout() -> None:
    refiner, logits = GraphRefiner(5, dropout=0.5), torch.randn(2, 5)
    assert not torch.equal(refiner.train()(logits), refiner(logits))
    assert torch.equal(refiner.eval()(logits), refiner(logits))


def test_rounds_are_those_of_the_paper() -> None:
    labels = table(KNOWN)
    curriculum = Curriculum("a")
    curriculum.prepare(Task(labels, labels, epochs=20))
    assert curriculum.epochs == [10, 15]


def test_a_warning_if_the_curriculum_gave_no_label() -> None:
    labels = table(KNOWN)
    curriculum = Curriculum("a", 50, [2, 3])
    curriculum.prepare(Task(labels, labels, epochs=3))
    curriculum.before_epoch(1, predict_with(FIRST))
    with pytest.warns(PartlabelWarning, match="theta = 50"):
        curriculum.before_epoch(2, predict_with(FIRST))


def test_a_note_if_pseudo_labels_had_no_effect(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"curriculum": "a", "theta": 0, "relabel_at": [3]}
    arguments = {"method": "partial-bce", "options": options, **MethodConformance.tiny, "epochs": 3}
    results = []
    for keep in ("best", "last"):
        run = train(
            scene / "partial.csv", scene / "images", tmp_path / keep, keep=keep, **arguments
        )
        results.append((run.record.best_epoch, "no effect" in capsys.readouterr().err))
    (best_epoch, has_note), last = results
    assert last == (3, False)
    assert has_note == (best_epoch < 3)


def test_scores_that_are_nan_are_an_error() -> None:
    labels = table(KNOWN)
    curriculum = Curriculum("a", 2, [2])
    curriculum.prepare(Task(labels, labels, epochs=3))
    with pytest.raises(JobError, match="NaN"):
        curriculum.before_epoch(1, predict_with(np.full((4, 3), np.nan)))


def test_pseudo_labels_count_as_known_ones() -> None:
    labels = table(KNOWN)
    method = PartialBce(curriculum="a", theta=2, relabel_at=[2])
    method.prepare(Task(labels, labels, epochs=3))
    logits = torch.randn(4, 3, dtype=torch.float64)
    batch = Batch(torch.arange(4), torch.from_numpy(labels.dense()).float(), {})
    torch.testing.assert_close(method.cost(logits, batch), losses.partial_bce(logits, batch.labels))
    assert method.before_epoch(0, predict_with(FIRST)) == {}
    method.before_epoch(1, predict_with(FIRST))
    completed = torch.tensor([[1, 1, 0], [0, -1, -1], [0, 0, 1], [1, -1, 0]])
    torch.testing.assert_close(method.cost(logits, batch), losses.partial_bce(logits, completed))


def test_rounds_are_logged_and_judged(scene: Path, tmp_path: Path) -> None:
    """As in Table 2 of the paper: TP and TN are recalls among cells with a pseudo-label."""
    options = {"curriculum": "b", "theta": 0.5, "relabel_at": [2, 3]}
    tiny = MethodConformance.tiny | {"epochs": 3}
    arguments = {"method": "partial-bce", "options": options, **tiny}
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **arguments)
    truth = read_labels(scene / "labels.csv")
    figures = judge(run, truth)
    training = run.task().labels
    signs, _ = LabelMemory.open(run.folder / "memory").read(np.arange(len(training)), 2)
    full = truth.subset([truth.ids.index(name) for name in training.ids]).dense()
    is_given = signs != 0
    assert figures["label_share"] == pytest.approx(training.known + is_given.mean())
    assert figures["TP"] == pytest.approx(np.mean(signs[is_given & (full == 1)] == 1))
    assert figures["TN"] == pytest.approx(np.mean(signs[is_given & (full == -1)] == -1))
    shares = [line["label_share"] for line in run.history() if "label_share" in line]
    assert len(shares) == 2
    assert shares[1] == pytest.approx(figures["label_share"])
    assert training.known < shares[0] < shares[1] < 1


@pytest.mark.parametrize("redecide", [False, True])
def test_rounds_of_one_sign_or_replaced(redecide: bool, scene: Path, tmp_path: Path) -> None:
    """Labels of one sign have an accuracy but no rates. Replaced rounds are not listed."""
    options = {"curriculum": "c", "theta": 0, "relabel_at": [2, 3], "redecide": redecide}
    arguments = {"method": "partial-bce", "options": options, **MethodConformance.tiny, "epochs": 3}
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **arguments)
    figures = judge(run, read_labels(scene / "labels.csv"))
    assert 0 < figures["pseudo_present_accuracy"] <= 1
    assert not {"TP", "TN", "pseudo_absent_accuracy"} & set(figures)
    training = run.task().labels
    tally = read_tally(run, None)
    assert tally is not None
    _, rows = round_table(tally, 100, list(training.classes), str)
    assert [row[0] for row in rows] == (["2", "all"] if redecide else ["1", "2", "all"])


def test_the_graph_network_refines_any_head() -> None:
    method = PartialBce(gnn=True)
    refined = method.refine(Weldon(8, 3), 3)
    assert isinstance(refined, Refined)
    assert refined.needs_maps
    assert not method.refine(Linear(8, 3), 3).needs_maps
    assert refined(torch.randn(2, 8, 4, 4)).shape == (2, 3)


def test_g_sets_alpha_and_beta() -> None:
    alpha, beta, gamma = PartialBce(g=20.0, gamma=2.0).weight
    assert alpha * 0.1**gamma + beta == pytest.approx(20)
    assert alpha + beta == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"curriculum": "f"}, "curriculum"),
        ({"curriculum": "b", "theta": 2}, "share"),
        ({"curriculum": "two-step", "theta": 2}, "two-step"),
        ({"curriculum": "a", "relabel_at": "1"}, "relabel_at"),
        ({"curriculum": "e", "dropout": 0}, "dropout"),
        ({"theta": 2}, "curriculum"),
        ({"redecide": True}, "curriculum"),
        ({"g": 5, "alpha": 1}, "alpha"),
        ({"g": 5, "gamma": 0}, "gamma"),
        ({"g": -1}, "g"),
        ({"curriculum": "d", "members": 1}, "members"),
        ({"members": 4}, "curriculum=d"),
        ({"passes": 4, "curriculum": "a"}, "curriculum=e"),
        ({"hidden": 4}, "gnn"),
        ({"alpha": "nan"}, "alpha"),
        ({"curriculum": "two-step", "relabel_at": "2,3"}, "once"),
    ],
)
def test_wrong_settings_are_errors(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        make_settings(method="partial-bce", options=options)


def test_rounds_after_the_last_epoch_are_an_error() -> None:
    labels = table(KNOWN)
    with pytest.raises(InputError, match="before epoch 30; "):
        Curriculum("a", relabel_at=[2, 2, 30]).prepare(Task(labels, labels, epochs=20))
    with pytest.raises(InputError, match="relabel_at"):
        Curriculum("a").prepare(Task(labels, labels, epochs=1))
    with pytest.raises(InputError, match="--patience"):
        make_settings(patience=3, method="partial-bce", options={"curriculum": "a"})
