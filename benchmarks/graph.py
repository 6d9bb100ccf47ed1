"""Time and memory of the graph network over classes, compared with a loop over pairs of classes."""

import torch
from torch import Tensor

from benchmarks.report import peak, print_result, timed
from partlabel.models.heads import GraphRefiner

CLASSES, BATCH = 80, 16


def _by_pairs(refiner: GraphRefiner, logits: Tensor) -> Tensor:
    """The formula written out: for each class, the messages of all other classes are computed."""
    classes = logits.shape[1]
    states = list(torch.diag_embed(logits).unbind(1))
    for _ in range(refiner.steps):
        received = [
            torch.stack(
                [torch.relu(refiner.message(states[u])) for u in range(classes) if u != v]
            ).mean(0)
            for v in range(classes)
        ]
        states = [refiner.update(m, h) for m, h in zip(received, states, strict=True)]
    return logits + torch.stack([states[v][:, v] for v in range(classes)], dim=1)


def _step(refiner: GraphRefiner, logits: Tensor) -> None:
    refiner(logits).square().mean().backward()


def run() -> None:
    """Time with 80 classes, memory with 600."""
    torch.manual_seed(0)
    refiner, logits = GraphRefiner(CLASSES), torch.randn(BATCH, CLASSES)
    with torch.no_grad():
        fast, refined = timed(lambda: refiner(logits), repeat=5)
        slow, expected = timed(lambda: _by_pairs(refiner, logits))
    torch.testing.assert_close(refined, expected, rtol=1e-3, atol=1e-4)
    ratio = slow / fast
    case = f"graph network, {CLASSES} classes, batch {BATCH}"
    print_result(f"{case}: loop / partlabel", f"{ratio:.0f}x", ">= 10x", ratio >= 10)
    before = peak()
    seconds, _ = timed(lambda: _step(GraphRefiner(600), torch.randn(BATCH, 600)))
    grown = peak() - before
    print_result(
        "training step with 600 classes",
        f"{seconds:.1f} s, +{grown:.0f} MB",
        "<= 2,147 MB",
        grown <= 2147,
    )
