"""Methods with a graph of classes or of images: ml-gcn, ssgrl and apg-graph."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from by_hand import Array, classified_by_hand, decoupled_by_hand, numbers
from conformance import MethodConformance
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning import losses
from partlabel.learning.cooccurrence import conditional_shares
from partlabel.learning.image_graph import ImageGraph, nearest
from partlabel.learning.methods import METHODS, Task
from partlabel.learning.methods.apg_graph import ImageLaplacian
from partlabel.learning.methods.ml_gcn import GraphConvolution, reweighted_graph
from partlabel.models import Classifier
from partlabel.models.heads import Decoupled, GraphClassifier, Informed
from partlabel.training.run import load
from partlabel.training.train import train


class TestGraphConvolution(MethodConformance):
    name = "ml-gcn"


class TestSemanticGraph(MethodConformance):
    name = "ssgrl"
    options = {"channels": 8, "joint": 6}  # noqa: RUF012


class TestImageLaplacian(MethodConformance):
    name = "apg-graph"


def table_of(labels: Any) -> LabelTable:
    labels = np.asarray(labels)
    ids, classes = [f"i{i}" for i in range(len(labels))], [f"c{j}" for j in range(labels.shape[1])]
    return LabelTable(ids, classes, labels)


def random_labels(images: int = 30, classes: int = 4) -> NDArray[np.int64]:
    return np.random.default_rng(3).integers(-1, 2, (images, classes))


def test_conditional_shares() -> None:
    labels = random_labels()
    present = labels > 0
    shares = conditional_shares(table_of(labels))
    for i in range(4):
        for j in range(4):
            both = (present[:, i] & present[:, j]).sum()
            assert shares[i, j] == pytest.approx(both / present[:, i].sum())
    never = conditional_shares(table_of([[-1, 1], [0, 1]]))
    np.testing.assert_array_equal(never, [[1, 0], [0, 1]])


def test_the_graph_of_ml_gcn() -> None:
    shares = np.random.default_rng(0).uniform(0, 1, (5, 5))
    np.fill_diagonal(shares, 1)
    shares[3] = [0, 0.1, 0.2, 1, 0.39]  # linked to no other class
    weights = np.zeros((5, 5))
    for i in range(5):
        links = [j for j in range(5) if j != i and shares[i, j] >= 0.4]
        for j in links:
            weights[i, j] = 0.2 / len(links)
        weights[i, i] = 0.8
    sums = weights.sum(axis=1)
    expected = np.array(
        [[weights[i, j] / (sums[i] * sums[j]) ** 0.5 for j in range(5)] for i in range(5)]
    )
    np.testing.assert_allclose(reweighted_graph(torch.from_numpy(shares)), expected, rtol=1e-5)


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_classifiers_by_hand(pool: Any) -> None:
    torch.manual_seed(0)
    head = GraphClassifier(6, 3, width=4, hidden=5, pool=pool).double()
    vectors, graph = torch.randn(3, 4), torch.rand(3, 3)
    head.inform(vectors, graph)
    torch.nn.init.normal_(head.bias)
    n = numbers(head)
    z = vectors.double().numpy()
    np.testing.assert_allclose(
        n["vectors"], z / np.linalg.norm(z, axis=1, keepdims=True), rtol=1e-6
    )
    hidden = n["graph"] @ n["vectors"] @ n["first"]
    weights = n["graph"] @ np.where(hidden > 0, hidden, 0.2 * hidden) @ n["second"]
    maps = torch.randn(2, 6, 3, 2, dtype=torch.float64)
    flat = maps.numpy().reshape(2, 6, 6)
    pooled = flat.max(axis=2) if pool == "max" else flat.mean(axis=2)
    np.testing.assert_allclose(head(maps).detach(), pooled @ weights.T + n["bias"], rtol=1e-9)
    assert head.needs_maps == (pool == "max")
    by_position = np.einsum("cd,bdp->bcp", weights, flat) + n["bias"][:, None]
    by_position = by_position.reshape(2, 3, 3, 2)
    np.testing.assert_allclose(head.class_maps(maps).detach(), by_position, rtol=1e-9)


@pytest.mark.parametrize("name", ["ml-gcn", "ssgrl"])
def test_the_head_knows_the_classes(name: str, tmp_path: Path) -> None:
    """Vectors come from known labels or from a file, and links from known labels."""
    labels = random_labels()
    path = tmp_path / "vectors.csv"
    path.write_text("class,x,y\nc0,3,4\nc1,0,2\nc2,1,0\nc3,0,-1\n")
    method = METHODS[name](width=2, vectors=str(path))
    method.prepare(Task(table_of(labels), table_of(labels), 9))
    head = method.head(6, 4)
    assert isinstance(head, Informed)
    method.begin_stage(0, Classifier(torch.nn.Identity(), head, list("abcd")))  # type: ignore[arg-type,operator]
    expected_vectors = np.array([[0.6, 0.8], [0, 1], [1, 0], [0, -1]])
    np.testing.assert_allclose(head.vectors, expected_vectors, rtol=1e-6)
    shares = torch.from_numpy(conditional_shares(table_of(labels)))
    expected = reweighted_graph(shares) if name == "ml-gcn" else shares
    assert torch.equal(head.graph, expected)
    with pytest.raises(InputError, match="have 2 numbers, not 3; set --set width=2"):
        METHODS[name](width=3, vectors=str(path)).prepare(
            Task(table_of(labels), table_of(labels), 9)
        )


@pytest.mark.parametrize("name", ["ml-gcn", "ssgrl", "apg-graph"])
def test_a_warning_if_only_present_labels_are_known(name: str) -> None:
    table = table_of([[1, 0], [0, 1]])
    with pytest.warns(PartlabelWarning, match=f"{name} learns that everything is present"):
        METHODS[name]().prepare(Task(table, table, 9))


def test_ml_gcn_costs_cross_entropy_of_known_labels() -> None:
    logits, labels = torch.tensor([[0.3, -2.0, 1.0]]), torch.tensor([[1.0, -1.0, 0.0]])
    expected = (np.log(1 + np.exp(-0.3)) + np.log(1 + np.exp(-2.0))) / 2
    cost = GraphConvolution().cost(logits, Batch(torch.tensor([0]), labels, {}))
    assert float(cost) == pytest.approx(expected)


def test_ml_gcn_on_given_features(scene: Path, tmp_path: Path) -> None:
    """With mean pooling, one vector per image is enough; the graph is saved with the weights."""
    labels = random_labels(40)
    labels[:, 0] = np.where(np.arange(40) % 2, 1, -1)
    vectors = np.random.default_rng(0).normal(0, 1, (40, 6)) + labels[:, :1] * [[3, 0, 0, 0, 0, 0]]
    np.savez(tmp_path / "f.npz", ids=table_of(labels).ids, features=vectors.astype(np.float32))
    settings: dict[str, Any] = {"method": "ml-gcn", "features": tmp_path / "f.npz", "epochs": 2}
    with pytest.raises(InputError, match="the head of the method 'ml-gcn' looks at the places"):
        train(table_of(labels), None, tmp_path / "no", **settings)
    run = train(table_of(labels), None, tmp_path / "run", options={"pool": "mean"}, **settings)
    head = load(run.folder).head
    assert isinstance(head, GraphClassifier)
    assert not torch.equal(head.graph, torch.eye(4))


def test_ml_gcn_learns_how_frequent_a_class_is() -> None:
    """Also from features with a mean of 0, such as principal components."""
    labels = torch.ones(200, 2)
    labels[:, 0] = torch.where(torch.arange(200) % 10 == 0, 1.0, -1.0)  # present in a tenth
    torch.manual_seed(0)
    maps = torch.randn(200, 6, 1, 1)
    maps -= maps.mean(dim=0)
    head = GraphClassifier(6, 2, width=2, hidden=4, pool="mean")
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        losses.batch_bce(head(maps), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    shares = torch.sigmoid(head(maps)).mean(dim=0).tolist()
    assert shares == pytest.approx([0.1, 1.0], abs=0.03)


def test_features_of_classes_by_hand() -> None:
    torch.manual_seed(0)
    head = Decoupled(5, 3, width=4, channels=6, joint=7, steps=2).double()
    head.inform(torch.randn(3, 4), torch.rand(3, 3))
    for values in (head.bias, head.norm.weight, head.norm.bias, head.norm.running_mean):
        torch.nn.init.normal_(values)  # type: ignore[arg-type]
    torch.nn.init.uniform_(head.norm.running_var, 0.5, 2)  # type: ignore[arg-type]
    head.eval()
    maps = torch.randn(2, 5, 3, 2, dtype=torch.float64)
    n = numbers(head)
    features, attention = decoupled_by_hand(n, maps.numpy())
    np.testing.assert_allclose(head.decouple(maps).detach(), features, rtol=1e-9)
    logits = classified_by_hand(n, features, 2)
    np.testing.assert_allclose(head(maps).detach(), logits, rtol=1e-9)
    expected_maps = attention.reshape(2, 3, 3, 2) - 1 / 6
    np.testing.assert_allclose(head.class_maps(maps).detach(), expected_maps, atol=1e-12)


def test_nearest_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partlabel.learning.image_graph._CHUNK", 3)
    features = np.random.default_rng(0).normal(0, 1, (8, 4))
    index, strength = nearest(torch.from_numpy(features), 3)
    for i in range(8):
        cosines = [
            (features[i] @ features[j]) / np.linalg.norm(features[i]) / np.linalg.norm(features[j])
            if i != j
            else -np.inf
            for j in range(8)
        ]
        best = np.argsort(cosines)[::-1][:3]
        assert index[i].tolist() == best.tolist()
        np.testing.assert_allclose(strength[i], np.maximum(np.array(cosines)[best], 0), rtol=1e-9)
    for number in (0, 1, 2):  # fewer than k others
        index, strength = nearest(torch.ones(number, 4), 3)
        assert strength.sum() == pytest.approx(max(number - 1, 0) * number)
        assert index.shape == (number, 3)


def linked(images: int, k: int) -> tuple[ImageGraph, Array]:
    """A graph of random features, and its links as a matrix [N, N]."""
    graph, features = ImageGraph(images, k), torch.randn(images, 3, 1, 1)
    model = Classifier(torch.nn.Identity(), torch.nn.Flatten(), ["x"])  # type: ignore[arg-type]
    rows = np.random.default_rng(0).permutation(images)  # predictions come in any order
    graph.build(lambda forward=None: iter([(rows, forward(model, features[rows]))]))
    index, strength = nearest(features[:, :, 0, 0], k)
    matrix = np.zeros((images, images))
    matrix[np.arange(images)[:, None], index.numpy()] = strength.numpy()
    return graph, matrix


def test_apg_graph_by_hand() -> None:
    """On all images at once, and in a batch."""
    labels = random_labels(6, 3)
    method = ImageLaplacian(smoothness=0.7, k=2)
    method.prepare(Task(table_of(labels), table_of(labels), 1))
    method.graph, links = linked(6, 2)
    logits = np.random.default_rng(1).normal(0, 1, (6, 3))
    for rows in ([0, 1, 2, 3, 4, 5], [4, 1, 2]):
        z, y, n = logits[rows], labels[rows], len(rows)
        known = ((z - y) ** 2)[y != 0].mean()
        laplacian = sum(
            links[i, j] * ((logits[i] - logits[j]) ** 2).mean() for i in rows for j in rows
        )
        expected = known + 0.7 * 5 / (n - 1) * laplacian / (2 * n)
        batch = Batch(torch.tensor(rows), torch.from_numpy(y).double(), {})
        cost = method.cost(torch.from_numpy(z), batch)
        assert float(cost) == pytest.approx(expected, rel=1e-6)


def test_batches_estimate_the_whole_graph() -> None:
    """The mean over all batches of two images is the smoothness of all images."""
    labels = np.zeros((5, 2), dtype=np.int64)
    labels[0] = [1, -1]
    method = ImageLaplacian(k=3)
    method.prepare(Task(table_of(labels), table_of(labels), 1))
    method.graph, _ = linked(5, 3)
    logits = torch.randn(5, 2, dtype=torch.float64)

    def smoothness(rows: list[int]) -> float:
        batch = Batch(torch.tensor(rows), torch.zeros(len(rows), 2), {})
        return float(method.cost(logits[rows], batch))

    pairs = [smoothness([i, j]) for i in range(5) for j in range(5) if i != j]
    assert np.mean(pairs) == pytest.approx(smoothness([0, 1, 2, 3, 4]), rel=1e-6)


def test_the_graph_is_built_once() -> None:
    graph, _ = linked(4, 2)
    graph.build(lambda forward=None: pytest.fail("asked again"))
    again = ImageGraph(4, 2)
    again.load_state_dict(graph.state_dict())
    again.build(lambda forward=None: pytest.fail("asked again"))
    assert torch.equal(graph.linked, again.linked)


def test_positions_are_normalised_over_a_batch() -> None:
    head = Decoupled(5, 3, channels=6, joint=7).double()
    maps = torch.randn(4, 5, 3, 2, dtype=torch.float64) + 9
    positions = head._positions(maps).detach().flatten(0, 1).numpy()
    np.testing.assert_allclose(positions.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(positions.std(axis=0), 1, rtol=1e-4)
    single = maps[:1, :, :1, :1]  # one position has no deviation
    np.testing.assert_array_equal(head(single).detach(), head.eval()(single).detach())
