"""imcl: conformance, one step against a plain computation, the label graph, the dictionary."""

from inspect import signature
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
from partlabel.training.arguments import make_settings
from partlabel.training.run_split import select
from partlabel.training.train import train
from test_similarity import by_hand


class TestImcl(MethodConformance):
    """The second epoch uses similar images."""

    name = "imcl"


class TestWithoutWarmUp(MethodConformance):
    name = "imcl"
    options: ClassVar[dict[str, Any]] = {
        "warmup": 0,
        "dictionary": 5,
        "gradient": "both",
        "scale": "gradient",
        "k": 2,
    }


class TestFixedImages(MethodConformance):
    name = "imcl"
    options: ClassVar[dict[str, Any]] = {
        "images": "fixed",
        "graph": "identity",
        "features": "unit",
    }


class Maps(torch.nn.Module):
    """A backbone whose inputs are feature maps already."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps


LABELS = np.array([[1, 0, -1], [1, 1, 0], [0, 0, 1], [-1, 1, 0], [0, 0, 0]])


def task(labels: Any = LABELS, side: Any = None) -> Task:
    ids = [f"{i}" for i in range(len(labels))]
    table = LabelTable(ids, [f"c{j}" for j in range(labels.shape[1])], labels)
    if side is not None:
        side = LabelTable(ids, [f"s{j}" for j in range(side.shape[1])], side)
    return Task(table, table, epochs=4, side=side)


def make_model(method: InteractiveLearning, stage: int = 1) -> Classifier:
    """A model for a method that is at the beginning of a stage."""
    torch.manual_seed(0)
    model = Classifier(Maps(), Linear(4, 3), ["c0", "c1", "c2"])  # type: ignore[arg-type]
    model.double()
    method.double()
    method.begin_stage(stage, model)
    return model


def make_batch(labels: Any = LABELS) -> Batch:
    torch.manual_seed(1)
    maps = torch.rand(len(labels), 4, 2, 2, dtype=torch.float64) * 3
    return Batch(torch.arange(len(labels)), torch.from_numpy(labels).double(), {"weak": maps})


def step_by_hand(
    y: Any, f: Any, graph: Any, own: Any, side: Any, weights: tuple[float, float], k: int
) -> tuple[float, float, list[list[tuple[int, float, float]]]]:
    """Both smoothness losses and the neighbours, image by image."""
    atoms = np.concatenate([y @ graph.T, side], axis=1)
    targets = np.concatenate([y, side], axis=1)
    label_cost = feature_cost = 0.0
    all_neighbours = []
    for i in range(len(y)):
        neighbours = by_hand(targets[i], f[i], atoms, f, k, weights, int(own[i]))
        label_sum = sum((c * (graph @ y[s]) for s, c, _ in neighbours), np.zeros(len(y[i])))
        label_cost += np.sum((y[i] - np.tanh(label_sum)) ** 2) / len(y)
        feature_sum = sum((c * f[s] for s, _, c in neighbours), np.zeros(len(f[i])))
        feature_cost += np.sum((f[i] - feature_sum) ** 2) / len(y)
        all_neighbours.append(neighbours)
    return float(label_cost), float(feature_cost), all_neighbours


def dense(graph: LabelGraph) -> Any:
    """The matrix [C, C] of a label graph."""
    matrix = np.zeros((len(graph.linked), len(graph.linked)))
    for j, (others, weights) in enumerate(zip(graph.linked, graph.weights, strict=True)):
        np.add.at(matrix[j], others, weights)
    return matrix


def test_defaults_are_those_of_the_paper_except_for_the_gradient() -> None:
    defaults = {n: one.default for n, one in signature(InteractiveLearning).parameters.items()}
    paper = {"lambda_y": 1.0, "lambda_f": 0.5, "scale": "loss", "k": 5, "graph": "cooccurrence"}
    paper |= {"k_a": 50, "clip_graph": True, "features": "raw", "images": "learned"}
    paper |= {"negative_scale": 0.5, "dictionary": 0, "gradient": "neighbours"}
    assert paper.items() <= defaults.items()


@pytest.mark.parametrize("features", ["unit", "raw"])
@pytest.mark.parametrize("with_side", [False, True])
def test_a_step_by_hand(with_side: bool, features: Any) -> None:
    side = np.array([[1, 0], [0, 1], [0, 1], [1, 0], [1, -1]]) if with_side else None
    options: dict[str, Any] = {"a": 3.0} if with_side else {}
    method = InteractiveLearning(2.0, 0.3, k=2, graph_lr=0.0, features=features, **options)
    method.prepare(task(side=side))
    model, batch = make_model(method), make_batch()
    parts = {name: float(part.detach()) for name, part in method.loss(model, batch).items()}
    with torch.no_grad():
        x = model(batch.views["weak"]).numpy()
    f = batch.views["weak"].mean(dim=(2, 3)).numpy()
    f = f / np.linalg.norm(f, axis=1, keepdims=True) if features == "unit" else f
    y = np.where(LABELS == 0, np.tanh(x / 2), LABELS)
    y = np.where(y < 0, 0.5 * y, y)
    graph = dense(cooccurrence_graph(task().labels))
    scaled = 3.0 * (side == 1) if side is not None else np.zeros((5, 0))
    label_cost, feature_cost, neighbours = step_by_hand(
        y, f, graph, np.arange(5), scaled, (2.0, 0.3), 2
    )
    known = -np.mean(np.log(1 / (1 + np.exp(-(LABELS * x)[LABELS != 0]))))
    assert parts["labels"] == pytest.approx(label_cost, rel=1e-5)
    assert parts["features"] == pytest.approx(feature_cost, rel=1e-5)
    assert parts["loss"] == pytest.approx(known + 2 * label_cost + 0.3 * feature_cost, rel=1e-5)
    assert parts["similar"] == pytest.approx(np.mean([len(some) for some in neighbours]))
    assert parts["similar"] > 0.5


def test_side_information_changes_the_neighbours() -> None:
    """Two kinds of images with equal labels: with side information, neighbours are of one kind."""
    side = np.array([[1, -1], [-1, 1]] * 4)
    labels = np.tile([[1, -1, 0]], (8, 1))
    batch = make_batch(labels)
    is_own_kind = {}
    for side_table in (None, side):
        method = InteractiveLearning(graph="identity", k=2, features="unit")
        method.prepare(task(labels, side_table))
        current = {"rows": batch.rows, "labels": batch.labels}
        current["features"] = batch.views["weak"].mean(dim=(2, 3))
        neighbours = method.double()._search(current, current, (0.1, 0.01)).images[:, 0]
        is_own_kind[side_table is not None] = neighbours % 2 == torch.arange(8) % 2
    assert bool(is_own_kind[True].all())
    assert not bool(is_own_kind[False].all())


def test_both_lambdas_0_are_logistic_regression() -> None:
    method = InteractiveLearning(0, 0)
    method.prepare(task())
    model, batch = make_model(method), make_batch()
    x = model(batch.views["weak"]).detach().numpy()
    known = -np.mean(np.log(1 / (1 + np.exp(-(LABELS * x)[LABELS != 0]))))
    assert float(method.loss(model, batch)["loss"].detach()) == pytest.approx(known)
    in_warmup = InteractiveLearning()
    in_warmup.prepare(task())
    assert "similar" not in in_warmup.loss(make_model(in_warmup, 0), batch)


@pytest.mark.parametrize("gradient", ["neighbours", "both"])
def test_which_images_get_a_gradient(gradient: Any) -> None:
    """One image has the other as its neighbour: only the neighbour gets a gradient, or both."""
    method = InteractiveLearning(
        graph="identity", k=1, gradient=gradient, lambda_f=0, features="raw"
    )
    method.prepare(task())
    model = make_model(method)
    # below, the neighbour of the second image is removed; it is the neighbour of the first
    maps = torch.zeros(2, 4, 1, 1, dtype=torch.float64)
    maps[0, 0], maps[1, 0] = 1.0, 1.0
    maps.requires_grad_()
    batch = Batch(torch.arange(2), torch.zeros(2, 3).double(), {"weak": maps})
    original = method._search

    def search_for_the_first(*arguments: Any) -> Any:
        neighbours = original(*arguments)
        neighbours.images[1], neighbours.label_coef[1], neighbours.feature_coef[1] = -1, 0, 0
        return neighbours

    method._search = search_for_the_first  # type: ignore[assignment]
    with torch.no_grad():
        cost = float(method._describe(maps, model(maps), batch)["labels"][1].square().sum()) / 2
    (slope,) = torch.autograd.grad(method.loss(model, batch)["loss"], maps)
    has_gradient = (slope.abs().sum(dim=(1, 2, 3)) > 0).tolist()
    # without neighbours, labels of the second image should be 0; with `both` this has a gradient
    assert cost > 0
    assert has_gradient == ([False, True] if gradient == "neighbours" else [True, True])


def test_the_graph_is_trained_by_gradient_descent() -> None:
    rng = np.random.default_rng(0)
    linked = np.array(
        [[0, 1, 2], [1, 0, 1], [2, 2, 2]]
    )  # a later entry of the class itself is unused
    weights = np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0], [1.0, 0.0, 0.0]], dtype=np.float32)
    graph = LearnedGraph(LabelGraph(linked, weights), clip=False).double()
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
    for _ in range(300):  # with the longest step the cost never increases
        costs.append(float((labels - graph.spread(combined)).square().sum()))
        graph.learn(labels, combined, 1.0, 1)
    assert bool((np.diff(costs) < 1e-9).all())
    for j in range(3):
        linked_labels = combined[:, np.unique(linked[j])].numpy()
        best = np.linalg.lstsq(linked_labels, labels[:, j].numpy())[1]
        assert float((labels - graph.spread(combined))[:, j].square().sum()) == pytest.approx(
            float(best[0]), rel=1e-2
        )
    assert bool((graph.weights[real == 0] == 0).all())


def test_weights_of_the_graph_are_clipped() -> None:
    linked, weights = np.array([[0, 1], [1, 0]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    labels, combined = torch.tensor([[9.0, -9.0]]), torch.tensor([[1.0, 1.0]])
    graphs = {}
    for clip in (False, True):
        graphs[clip] = LearnedGraph(LabelGraph(linked, weights.astype(np.float32)), clip=clip)
        graphs[clip].learn(labels, combined, 1.0, 1)
    free = graphs[False].weights
    assert float(free.max()) > 1
    assert float(free.min()) < 0
    torch.testing.assert_close(graphs[True].weights, free.clamp(0, 1))
    for clip in (False, True):
        method = InteractiveLearning(clip_graph=clip)
        method.prepare(task())
        assert method.graph.clip == clip


def cost_sizes(model: Classifier, method: InteractiveLearning, batch: Batch) -> tuple[Any, Any]:
    """The costs of known labels, labels and features, and the norms of their gradients."""
    with torch.no_grad():
        x = model(batch.views["weak"]).numpy()
    f = batch.views["weak"].mean(dim=(2, 3)).detach().numpy()
    y = np.where(LABELS == 0, np.tanh(x / 2), LABELS)
    y = np.where(y < 0, 0.5 * y, y)
    graph = dense(cooccurrence_graph(task().labels))
    label_cost, feature_cost, _ = step_by_hand(
        y, f, graph, np.arange(5), np.zeros((5, 0)), (1.0, 1e-5), 2
    )
    known = -np.mean(np.log(1 / (1 + np.exp(-(LABELS * x)[LABELS != 0]))))
    parameters = list(model.head.parameters())
    norms = []
    for part in method._costs(model, batch, (1.0, 1e-5), learn=False)[1][:2]:
        slopes = torch.autograd.grad(part, parameters, retain_graph=True)
        norms.append(float(sum(slope.square().sum() for slope in slopes)) ** 0.5)
    return (known, label_cost, feature_cost), norms


@pytest.mark.parametrize("scale", ["loss", "gradient", "none"])
def test_the_lambdas_are_relative(scale: Any) -> None:
    """The factors are ratios of mean costs or of norms of gradients over the first 10 batches."""
    method = InteractiveLearning(2.0, 0.3, k=2, scale=scale)
    method.prepare(task())
    model = make_model(method)
    batches = []
    for factor in range(1, 13):
        one = make_batch()
        batches.append(Batch(one.rows, one.labels, {"weak": one.views["weak"] * (factor / 4)}))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    graph = method.graph.weights.clone()
    left = iter(batches)
    method.look_ahead(1, model, left)
    by_hand = [cost_sizes(model, method, batch) for batch in batches[:10]]
    known, labels, features = np.mean([costs for costs, _ in by_hand], axis=0)
    known_norm, label_norm = np.mean([norms for _, norms in by_hand], axis=0)
    expected = {
        "loss": [known / labels, known / features],
        "gradient": [known_norm / label_norm, known / features],  # frozen features: no gradient
        "none": [1.0, 1.0],
    }[scale]
    np.testing.assert_allclose(method.factors.numpy(), expected, rtol=1e-5)
    assert len(list(left)) == (12 if scale == "none" else 2)
    assert all(bool((state[name] == value).all()) for name, value in model.state_dict().items())
    assert bool((method.graph.weights == graph).all())
    parts = method.loss(model, batches[0])
    total = parts["known"] + 2.0 * expected[0] * parts["labels"]
    total += 0.3 * expected[1] * parts["features"]
    assert float(parts["loss"].detach()) == pytest.approx(float(total), rel=1e-5)
    figures = method.before_epoch(1, lambda forward=None: iter(()))
    assert figures["label_weight"] == pytest.approx(2.0 * expected[0], rel=1e-5)


class Scaled(torch.nn.Module):
    """A backbone that is trained: one factor on its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(0.7))

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.factor * maps


@pytest.mark.parametrize("gradient", ["neighbours", "both"])
def test_gradients_are_those_of_all_parameters_that_are_trained(gradient: Any) -> None:
    """Features that are trained have a gradient, and a factor by its norm."""
    method = InteractiveLearning(2.0, 0.3, k=2, scale="gradient", gradient=gradient)
    method.prepare(task())
    model = make_model(method)
    model.backbone = Scaled().double()  # type: ignore[assignment]
    batch = make_batch()
    method.look_ahead(1, model, iter([batch]))
    norms = []
    for part in method._costs(model, batch, (1.0, 1e-5), learn=False)[1][:3]:
        model.zero_grad()
        part.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        slopes = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        norms.append(float(torch.cat(slopes).norm()))
    assert min(norms) > 0
    expected = [norms[0] / norms[1], norms[0] / norms[2]]
    np.testing.assert_allclose(method.factors.numpy(), expected, rtol=1e-5)


def test_the_scale_is_not_measured_in_the_warm_up() -> None:
    method = InteractiveLearning()
    method.prepare(task())
    method.look_ahead(0, make_model(method, 0), iter([make_batch()]))
    assert method.factors.tolist() == [1.0, 1.0]


def test_a_batch_with_little_information_changes_the_graph_little() -> None:
    linked, weights = np.array([[0, 1], [1, 0]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    graph = LearnedGraph(LabelGraph(linked, weights.astype(np.float32)))
    graph.learn(torch.ones(1, 2), torch.full((1, 2), 1e-3), 1.0, 1)
    assert float((graph.weights - 0.5).abs().max()) < 0.01


def test_without_links_the_graph_does_not_change() -> None:
    method = InteractiveLearning(graph="identity")
    method.prepare(task())
    method.loss(make_model(method), make_batch())
    assert bool((method.graph.weights == 1).all())


def test_images_of_earlier_steps_are_searched_but_not_the_image_itself() -> None:
    method = InteractiveLearning(dictionary=3, gradient="both", graph="identity", warmup=0)
    method.prepare(task())
    model, batch = make_model(method, 0), make_batch()
    method.loss(model, batch)
    assert method.recent.parts["rows"].tolist() == [0, 1, 2]
    one = Batch(batch.rows[1:2], batch.labels[1:2], {"weak": batch.views["weak"][1:2]})
    parts = method.loss(model, one)
    assert 0 < float(parts["similar"]) <= 2  # the dictionary has images 0, 1 and 2
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
        ({"graph": "identity", "k_a": 3}, "k_a would have no effect without a graph"),
        ({"lambda_y": 0, "lambda_f": 0, "scale": "none"}, "scale would have no effect"),
        ({"graph_lr": 0, "clip_graph": False}, "clip_graph would have no effect without"),
        ({"graph_lr": 0, "graph_steps": 3}, "graph_steps would have no effect without"),
        ({"images": "fixed", "dictionary": 3, "gradient": "both"}, "searches the batch only"),
        ({"dictionary": 3}, "set gradient=both"),
        ({"lambda_y": 0, "graph": "identity"}, "graph would have no effect without lambda_y"),
        (
            {"lambda_y": 0, "lambda_f": 0, "k": 3},
            "k would have no effect without",
        ),
        ({"warmup": 15}, "leaves none for the rest"),
    ],
)
def test_contradictory_settings_are_errors(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_settings(method="imcl", options=options)


def test_a_scale_without_side_information_is_an_error() -> None:
    with pytest.raises(InputError, match="a would have no effect without --side"):
        InteractiveLearning(a=3.0).prepare(task())
    with pytest.raises(InputError, match="only imcl can use it"):
        make_settings(method="bce", side="c*")


def test_side_information_is_not_learned(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "partial.csv")
    name = table.classes[0]
    arguments = {**MethodConformance.tiny, "method": "imcl", "side": name}
    run = train(table, scene / "images", tmp_path / "run", **arguments)
    assert name not in run.record.classes
    assert len(run.record.classes) == len(table.classes) - 1
    two_sides = make_settings(method="imcl", side=[name, table.classes[1]])
    assert len(select(table, two_sides).classes) == len(table.classes) - 2
    side = run.task().side
    assert side is not None
    assert list(side.classes) == [name]
    assert len(side) == run.record.train_rows
    with pytest.raises(InputError, match="leaves no class to learn"):
        train(table, scene / "images", tmp_path / "other", **(arguments | {"side": "*"}))
    with pytest.raises(InputError, match="matches no class"):
        train(table, scene / "images", tmp_path / "other", **(arguments | {"side": "species=*"}))


def test_a_run_cannot_be_resumed_with_another_graph(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    methods = []
    for links in ("c0,c1,3", "c0,c1,2", "c0,c1,3\nc0,c2,1"):
        path.write_text(f"class,linked,weight\n{links}\n")
        method = InteractiveLearning(graph=str(path))
        method.prepare(task())
        methods.append(method)
    state = methods[0].state_dict()
    methods[0].load_state_dict(state)
    for method in methods[1:]:
        with pytest.raises(InputError, match="has their file changed"):
            method.load_state_dict(state)


def test_a_graph_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_text("class,linked,weight\nc0,c1,3\n")
    method = InteractiveLearning(graph=str(path))
    matrix = dense(method.links(task()))
    with pytest.raises(InputError, match="there is no such file; set cooccurrence, identity, or"):
        InteractiveLearning(graph="coocurrence").links(task())
    np.testing.assert_allclose(matrix, np.array([[0.25, 0.75, 0], [0, 1, 0], [0, 0, 1]]))


@pytest.mark.filterwarnings("ignore:.*belong together")
def test_imcl_is_better_if_classes_occur_together(tmp_path: Path) -> None:
    """Scenes whose classes depend on the context, with 90% of the labels hidden."""
    world = scenes.World(16, 32, 0, 0.5, 6.0, 0.3, 100.0)
    full = scenes.write(tmp_path / "scenes", 500, world, test=0.0)
    labels = simulate.hide(full, "partial", 0.1, holdout=0.3)
    validation = {}
    for name, options in {
        "imcl": {},
        "plain": {"lambda_y": 0, "lambda_f": 0},
    }.items():
        arguments: dict[str, Any] = {
            "backbone": "tf_efficientnet_lite0", "frozen": "all", "size": 32, "epochs": 10,
            "method": "imcl",
        }  # fmt: skip
        run = train(labels, tmp_path / "scenes" / "images", tmp_path / name, options=options,
                    cache=tmp_path / "cache", **arguments)  # fmt: skip
        validation[name] = run.record.best_val_mAP or 0.0
    assert validation["imcl"] > validation["plain"]
