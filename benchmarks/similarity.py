"""Time and memory of the search for similar images and of the label graph."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.report import forget_peak, peak, print_result, timed
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.labels.cells import from_triples
from partlabel.learning.cooccurrence import LabelGraph, cooccurrence_graph
from partlabel.learning.extensions import FollowsStages
from partlabel.learning.label_graph import LearnedGraph
from partlabel.learning.methods import METHODS, Task
from partlabel.learning.similarity import joint_omp, pursue
from partlabel.models import Backbone, Classifier
from partlabel.training.build import make_head

Numbers = NDArray[np.float64]


def _one_by_one(f: Numbers, y: Numbers, graph: Numbers, k: int = 5) -> list[list[int]]:
    """Algorithm 2 with numpy, one image at a time."""
    spread = y @ graph.T
    squares = (spread**2).sum(axis=1), (f**2).sum(axis=1)
    result = []
    for i in range(len(y)):
        residuals = [y[i], f[i]]
        chosen: list[int] = []
        for _ in range(k):
            products = [spread @ residuals[0], f @ residuals[1]]
            gain = products[0] ** 2 / squares[0] + 0.5 * products[1] ** 2 / squares[1]
            gain[[i, *chosen]] = -np.inf
            best = int(gain.argmax())
            if products[0][best] <= 0 or products[1][best] <= 0:
                break
            chosen.append(best)
            for side, (target, atoms) in enumerate(((y[i], spread), (f[i], f))):
                base = atoms[chosen]
                solved = np.linalg.lstsq(base.T, target, rcond=None)[0]
                residuals[side] = target - np.maximum(solved, 0) @ base
        result.append(chosen)
    return result


def _solver() -> None:
    rng = np.random.default_rng(0)
    f, y = np.abs(rng.normal(size=(128, 2048))), rng.normal(size=(128, 1000)) + 0.2
    graph = np.eye(1000) * 0.5 + rng.random((1000, 1000)) * (rng.random((1000, 1000)) < 0.05) / 25
    tensors = torch.from_numpy(f), torch.from_numpy(y), torch.from_numpy(graph)
    slow, expected = timed(lambda: _one_by_one(f, y, graph), repeat=3)
    fast, neighbours = timed(lambda: joint_omp(*tensors), repeat=3)
    chosen = [[int(s) for s in row if s >= 0] for row in neighbours.images]
    assert chosen == expected
    ratio = slow / fast
    case = "128 images, 2,048 features, 1,000 classes, k = 5"
    print_result(f"{case}: one by one / batch", f"{ratio:.0f}x", ">= 10x, aim 20x", ratio >= 10)


def _memory() -> None:
    rng = np.random.default_rng(0)
    linked = np.concatenate([np.arange(5000)[:, None], rng.integers(0, 5000, (5000, 50))], axis=1)
    weights = np.full(linked.shape, 1 / 51, dtype=np.float32)
    y, f = torch.randn(32, 5000), torch.rand(32, 2048)
    before = forget_peak()
    graph = LearnedGraph(LabelGraph(linked, weights))
    itself = torch.eye(32, dtype=torch.bool)
    pursue(y, f, graph.spread(y), f, barred=itself)
    graph.learn(y, y, 0.1, 1)
    memory = peak() - before
    name = "32 images, 5,000 classes: search and a step on the graph"
    print_result(name, f"{memory:,.0f} MB", "< 1,024 MB", memory < 1024)


def _step() -> None:
    """A training step of the whole default network."""
    torch.manual_seed(0)
    labels = torch.randint(-1, 2, (32, 80)).float()
    names = [f"c{j}" for j in range(80)]
    table = LabelTable([f"{i}" for i in range(32)], names, labels.numpy())
    images = torch.randint(0, 255, (32, 3, 224, 224), dtype=torch.uint8)
    steps: dict[str, Any] = {}
    for name, options in (("bce", {}), ("imcl", {"warmup": 0})):
        method = METHODS[name](**options)
        backbone = Backbone("tf_efficientnet_lite0", "none", "nothing", 224)
        model = Classifier(backbone, make_head(method, backbone.channels, 80), names).train()
        method.prepare(Task(table, table, epochs=2))
        if isinstance(method, FollowsStages):
            method.begin_stage(0, model)
        batch = Batch(torch.arange(32), labels, {"weak": images})
        steps[name] = lambda m=method, c=model, b=batch: m.loss(c, b)["loss"].backward()
    best = {name: timed(step, repeat=4)[0] for name, step in steps.items()}
    ratio = best["imcl"] / best["bce"]
    name = "training step, 32 images, 80 classes: imcl / bce"
    print_result(name, f"{ratio:.2f}", "<= 1.3", ratio <= 1.3)


def _graph() -> None:
    """The size of Open Images: 9 million images, 5,000 classes, 60 million known labels."""
    rng = np.random.default_rng(0)
    images, classes, known = 9_000_000, 5000, 60_000_000
    rows = np.sort(rng.integers(0, images, known))
    columns = (classes * rng.random(known) ** 3).astype(np.int64)
    cells = rows * classes + columns
    cells = np.unique(cells)
    rows, columns = cells // classes, cells % classes
    values = np.where(rng.random(len(cells)) < 0.5, 1, -1).astype(np.int8)
    known_cells = from_triples(rows, columns, values, (images, classes))
    table = LabelTable.from_cells(
        (f"{i}" for i in range(images)), [f"c{j}" for j in range(classes)], known_cells, check=False
    )
    del rows, columns, cells, values
    before = forget_peak()
    seconds, _ = timed(lambda: cooccurrence_graph(table), repeat=1)
    memory = peak() - before
    name = f"label graph of {table.cells.values.size / 1e6:.0f} M known labels"
    print_result(name, f"{seconds:.0f} s, {memory:,.0f} MB", "minutes, < 4,096 MB", memory < 4096)


def run() -> None:
    """Time of the search, memory, time of a training step, and the label graph."""
    _solver()
    _memory()
    _step()
    _graph()
