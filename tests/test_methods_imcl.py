"""imcl: its step by hand, its graph, what it remembers, and what every method must do."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel.base.errors import InputError
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable, scenes, simulate
from partlabel.labels.formats import read_labels
from partlabel.learning.cooccurrence import LabelGraph, cooccurrence_graph
from partlabel.learning.label_graph import LearnedGraph
from partlabel.learning.methods import Task
from partlabel.learning.methods.imcl import InteractiveLearning
from partlabel.learning.recent import Recent
from partlabel.models import Classifier
from partlabel.models.heads import Linear
from partlabel.training.selection import choose_rows
from partlabel.training.settings import make_settings
from partlabel.training.train import task_of, train
from test_similarity import by_hand


class TestImcl(MethodConformance):
    """Its second epoch is the interactive one."""

    name = "imcl"


class TestFromTheStart(MethodConformance):
    name = "imcl"
    options: ClassVar[dict[str, Any]] = {"warmup": 0, "dictionary": 5, "gradient": "both", "k": 2}


class TestFixedImages(MethodConformance):
    name = "imcl"
    options: ClassVar[dict[str, Any]] = {"images": "fixed", "graph": "identity"}


class Maps(torch.nn.Module):
    """In place of a backbone: its inputs are maps already."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps


LABELS = np.array([[1, 0, -1], [1, 1, 0], [0, 0, 1], [-1, 1, 0], [0, 0, 0]])


def task(labels: Any = LABELS, side: Any = None) -> Task:
    ids = [f"{i}" for i in range(len(labels))]
    table = LabelTable(ids, [f"c{j}" for j in range(labels.shape[1])], labels)
    if side is not None:
        side = LabelTable(ids, [f"s{j}" for j in range(side.shape[1])], side)
    return Task(table, table, epochs=4, side=side)


def ready(method: InteractiveLearning, stage: int = 1) -> Classifier:
    torch.manual_seed(0)
    model = Classifier(Maps(), Linear(4, 3), ["c0", "c1", "c2"])  # type: ignore[arg-type]
    model.double()
    method.double()
    method.begin_stage(stage, model)
    return model


def shown(labels: Any = LABELS) -> Batch:
    torch.manual_seed(1)
    maps = torch.rand(len(labels), 4, 2, 2, dtype=torch.float64) * 3
    return Batch(torch.arange(len(labels)), torch.from_numpy(labels).double(), {"weak": maps})


def a_step(
    y: Any, f: Any, graph: Any, own: Any, side: Any, weights: tuple[float, float], k: int
) -> tuple[float, float, list[list[tuple[int, float, float]]]]:
    """Both smoothness losses and the neighbours, image by image."""
    atoms = np.concatenate([y @ graph.T, side], axis=1)
    targets = np.concatenate([y, side], axis=1)
    alike = near = 0.0
    chosen = []
    for i in range(len(y)):
        found = by_hand(targets[i], f[i], atoms, f, k, weights, int(own[i]))
        explained = sum((c * (graph @ y[s]) for s, c, _ in found), np.zeros(len(y[i])))
        alike += np.sum((y[i] - np.tanh(explained)) ** 2) / len(y)
        looks = sum((c * f[s] for s, _, c in found), np.zeros(len(f[i])))
        near += np.sum((f[i] - looks) ** 2) / len(y)
        chosen.append(found)
    return float(alike), float(near), chosen


def dense(graph: LabelGraph) -> Any:
    found = np.zeros((len(graph.linked), len(graph.linked)))
    for j, (others, weights) in enumerate(zip(graph.linked, graph.weights, strict=True)):
        np.add.at(found[j], others, weights)
    return found


@pytest.mark.parametrize("features", ["unit", "raw"])
@pytest.mark.parametrize("with_side", [False, True])
def test_a_step_by_hand(with_side: bool, features: Any) -> None:
    side = np.array([[1, 0], [0, 1], [0, 1], [1, 0], [1, -1]]) if with_side else None
    more: dict[str, Any] = {"a": 3.0} if with_side else {}
    method = InteractiveLearning(2.0, 0.3, 2, graph_lr=0.0, features=features, **more)
    method.prepare(task(side=side))
    model, batch = ready(method), shown()
    parts = {name: float(part.detach()) for name, part in method.loss(model, batch).items()}
    with torch.no_grad():
        x = model(batch.views["weak"]).numpy()
    f = batch.views["weak"].mean(dim=(2, 3)).numpy()
    f = f / np.linalg.norm(f, axis=1, keepdims=True) if features == "unit" else f
    y = np.where(LABELS == 0, np.tanh(x / 2), LABELS)
    y = np.where(y < 0, 0.5 * y, y)
    graph = dense(cooccurrence_graph(task().labels))
    beside = 3.0 * (side == 1) if side is not None else np.zeros((5, 0))
    alike, near, chosen = a_step(y, f, graph, np.arange(5), beside, (2.0, 0.3), 2)
    known = -np.mean(np.log(1 / (1 + np.exp(-(LABELS * x)[LABELS != 0]))))
    assert parts["labels"] == pytest.approx(alike, rel=1e-5)
    assert parts["features"] == pytest.approx(near, rel=1e-5)
    assert parts["loss"] == pytest.approx(known + 2 * alike + 0.3 * near, rel=1e-5)
    assert parts["similar"] == pytest.approx(np.mean([len(found) for found in chosen]))
    assert parts["similar"] > 0.5


def test_side_information_finds_other_neighbours() -> None:
    """Two kinds of images that look alike: with it, only one's own kind is chosen."""
    side = np.array([[1, -1], [-1, 1]] * 4)
    labels = np.tile([[1, -1, 0]], (8, 1))
    batch = shown(labels)
    found = {}
    for given in (None, side):
        method = InteractiveLearning(graph="identity", k=2)
        method.prepare(task(labels, given))
        described = {"rows": batch.rows, "labels": batch.labels}
        described["features"] = batch.views["weak"].mean(dim=(2, 3))
        found[given is None] = method.double()._search(described, described).images
    own_kind = found[False][:, 0] % 2 == torch.arange(8) % 2
    assert bool(own_kind.all())
    assert not bool((found[True][:, 0] % 2 == torch.arange(8) % 2).all())


def test_neither_lambda_is_logistic_regression() -> None:
    method = InteractiveLearning(0, 0)
    method.prepare(task())
    model, batch = ready(method), shown()
    x = model(batch.views["weak"]).detach().numpy()
    known = -np.mean(np.log(1 / (1 + np.exp(-(LABELS * x)[LABELS != 0]))))
    assert float(method.loss(model, batch)["loss"].detach()) == pytest.approx(known)
    warm = InteractiveLearning()
    warm.prepare(task())
    assert "similar" not in warm.loss(ready(warm, 0), batch)


@pytest.mark.parametrize("gradient", ["neighbours", "both"])
def test_whom_the_gradient_reaches(gradient: Any) -> None:
    """One image explains the other; of both only the chosen one moves, or both."""
    method = InteractiveLearning(graph="identity", k=1, gradient=gradient, lambda_f=0)
    method.prepare(task())
    model = ready(method)
    # below, the second one's neighbour is taken away: it is the first one's, and has none
    maps = torch.zeros(2, 4, 1, 1, dtype=torch.float64)
    maps[0, 0], maps[1, 0] = 1.0, 1.0
    maps.requires_grad_()
    batch = Batch(torch.arange(2), torch.zeros(2, 3).double(), {"weak": maps})
    original = method._search

    def only_the_first(*given: Any) -> Any:
        found = original(*given)
        found.images[1], found.label_coef[1], found.feature_coef[1] = -1, 0, 0
        return found

    method._search = only_the_first  # type: ignore[assignment]
    with torch.no_grad():
        alone = float(method._describe(maps, model(maps), batch)["labels"][1].square().sum()) / 2
    (slope,) = torch.autograd.grad(method.loss(model, batch)["loss"], maps)
    moved = (slope.abs().sum(dim=(1, 2, 3)) > 0).tolist()
    # without neighbours the second one's labels should be 0: a pull that only `both` has
    assert alone > 0
    assert moved == ([False, True] if gradient == "neighbours" else [True, True])


def test_the_graph_learns_by_gradient_descent() -> None:
    rng = np.random.default_rng(0)
    linked = np.array([[0, 1, 2], [1, 0, 1], [2, 2, 2]])  # a place that names itself is no link
    weights = np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0], [1.0, 0.0, 0.0]], dtype=np.float32)
    graph = LearnedGraph(LabelGraph(linked, weights)).double()
    labels, combined = (torch.from_numpy(rng.normal(size=(6, 3))) for _ in range(2))
    free = torch.from_numpy(weights).double().requires_grad_()
    spread = torch.stack([(combined[:, linked[j]] * free[j]).sum(dim=1) for j in range(3)], dim=1)
    torch.testing.assert_close(graph.spread(combined), spread)
    (slope,) = torch.autograd.grad((labels - spread).square().sum(), free)
    real = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]], dtype=torch.float64)
    length = (combined[:, linked] * real).square().sum(dim=(0, 2)).clamp(min=1)
    expected = free.detach() - 0.3 * real * slope / 2 / length[:, None]
    graph.learn(labels, combined, 0.3, 1)
    torch.testing.assert_close(graph.weights, expected)
    costs = []
    for _ in range(300):  # the largest step is stable
        costs.append(float((labels - graph.spread(combined)).square().sum()))
        graph.learn(labels, combined, 1.0, 1)
    assert bool((np.diff(costs) < 1e-9).all())
    for j in range(3):
        own = combined[:, np.unique(linked[j])].numpy()
        best = np.linalg.lstsq(own, labels[:, j].numpy())[1]
        assert float((labels - graph.spread(combined))[:, j].square().sum()) == pytest.approx(
            float(best[0]), rel=1e-2
        )
    assert bool((graph.weights[real == 0] == 0).all())


def test_a_batch_that_says_little_moves_the_graph_little() -> None:
    linked, weights = np.array([[0, 1], [1, 0]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    graph = LearnedGraph(LabelGraph(linked, weights.astype(np.float32)))
    graph.learn(torch.ones(1, 2), torch.full((1, 2), 1e-3), 1.0, 1)
    assert float((graph.weights - 0.5).abs().max()) < 0.01


def test_without_links_there_is_nothing_to_learn() -> None:
    method = InteractiveLearning(graph="identity")
    method.prepare(task())
    method.loss(ready(method), shown())
    assert bool((method.graph.weights == 1).all())


def test_the_past_can_be_similar_but_not_oneself() -> None:
    method = InteractiveLearning(dictionary=3, gradient="both", graph="identity", warmup=0)
    method.prepare(task())
    model, batch = ready(method, 0), shown()
    method.loss(model, batch)
    assert method.recent.parts["rows"].tolist() == [0, 1, 2]
    one = Batch(batch.rows[1:2], batch.labels[1:2], {"weak": batch.views["weak"][1:2]})
    parts = method.loss(model, one)
    assert 0 < float(parts["similar"]) <= 2  # of 0, 1 and 2 it is 1 itself
    assert method.recent.parts["rows"].tolist() == [1, 0, 1]
    assert not method.recent.parts["labels"].requires_grad


def test_recent_rows() -> None:
    recent = Recent(3)
    for first in (0, 2):
        recent.push(a=torch.arange(first, first + 2))
    assert recent.parts["a"].tolist() == [2, 3, 0]
    assert recent.before(a=torch.tensor([9]))["a"].tolist() == [9, 2, 3, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph": "identity", "k_a": 3}, "k_a without graph=cooccurrence"),
        ({"graph_lr": 0, "graph_steps": 3}, "graph_steps without"),
        ({"images": "fixed", "dictionary": 3, "gradient": "both"}, "looks in the batch alone"),
        ({"dictionary": 3}, "set gradient=both"),
        ({"lambda_y": 0, "graph": "identity"}, "graph without lambda_y"),
        ({"lambda_y": 0, "lambda_f": 0, "k": 3}, "k without lambda_y or lambda_f"),
        ({"warmup": 15}, "leaves nothing to come after"),
    ],
)
def test_settings_that_do_not_go_together(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_settings(method="imcl", options=options)


def test_a_magnitude_without_side_information_is_refused() -> None:
    with pytest.raises(InputError, match="a without --side"):
        InteractiveLearning(a=3.0).prepare(task())
    with pytest.raises(InputError, match="it does to imcl"):
        make_settings(method="bce", side="c*")


def test_side_information_is_not_learned(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "partial.csv")
    name = table.classes[0]
    call = {**MethodConformance.tiny, "method": "imcl", "side": name}
    run = train(table, scene / "images", tmp_path / "run", **call)
    assert name not in run.record.classes
    assert len(run.record.classes) == len(table.classes) - 1
    two = make_settings(method="imcl", side=[name, table.classes[1]])
    assert len(choose_rows(table, two)[0].classes) == len(table.classes) - 2
    side = task_of(run).side
    assert side is not None
    assert list(side.classes) == [name]
    assert len(side) == run.record.train_rows
    with pytest.raises(InputError, match="matches all classes"):
        train(table, scene / "images", tmp_path / "other", **(call | {"side": "*"}))
    with pytest.raises(InputError, match="matches no class"):
        train(table, scene / "images", tmp_path / "other", **(call | {"side": "species=*"}))


def test_a_graph_that_changed_does_not_go_on(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    states = []
    for links in ("c0,c1,3", "c0,c1,2", "c0,c1,3\nc0,c2,1"):
        path.write_text(f"class,linked,weight\n{links}\n")
        method = InteractiveLearning(graph=str(path))
        method.prepare(task())
        states.append((method, method.state_dict()))
    states[0][0].load_state_dict(states[0][1])
    for method, _ in states[1:]:
        with pytest.raises(InputError, match="has their file changed"):
            method.load_state_dict(states[0][1])


def test_a_graph_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_text("class,linked,weight\nc0,c1,3\n")
    method = InteractiveLearning(graph=str(path))
    found = dense(method.links(task()))
    with pytest.raises(InputError, match="neither cooccurrence, nor identity, nor a file"):
        InteractiveLearning(graph="coocurrence").links(task())
    np.testing.assert_allclose(found, np.array([[0.25, 0.75, 0], [0, 1, 0], [0, 0, 1]]))


def test_it_helps_where_labels_come_together(tmp_path: Path) -> None:
    """Scenes whose classes keep to their contexts, nine of ten labels hidden."""
    world = scenes.World(16, 32, 0, 0.5, 6.0, 0.3, 100.0)
    full = scenes.write(tmp_path / "scenes", 500, world, test=0.0)
    labels = simulate.hide(full, "partial", 0.1, holdout=0.3)
    found = {}
    for name, options in {
        "imcl": {},
        "plain": {"lambda_y": 0, "lambda_f": 0},
    }.items():
        call: dict[str, Any] = {"frozen": "all", "size": 32, "epochs": 10, "method": "imcl"}
        run = train(labels, tmp_path / "scenes" / "images", tmp_path / name, options=options,
                    cache=tmp_path / "cache", **call)  # fmt: skip
        found[name] = run.record.best_val_mAP or 0.0
    assert found["imcl"] > found["plain"]
