"""Memory of the contrastive loss, and time of the label decoder as a function of classes."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.report import peak, print_result, resident, timed
from partlabel.learning import losses
from partlabel.models.heads import LabelDecoder

BATCH, CLASSES, SHARE, WIDTH, TAU = 64, 312, 0.05, 128, 0.5  # CUB has 312 classes
NONE = torch.empty(0, WIDTH), torch.empty(0, dtype=torch.int64)


def _all_pairs(embeddings: Tensor, classes: Tensor, chosen: Tensor) -> Tensor:
    """The same loss computed from matrices of all B * C embeddings, as in Eq. 5 to 7."""
    both = chosen[:, None] & chosen
    both.fill_diagonal_(False)
    same = both & (classes[:, None] == classes)
    similarity = embeddings @ embeddings.T / TAU
    log_sum = similarity.masked_fill(~both, -torch.inf).logsumexp(dim=1, keepdim=True)
    cost = ((log_sum - similarity) * same)[chosen].sum(dim=1) / same[chosen].sum(dim=1).clamp(min=1)
    return cost.mean()


def _memory() -> None:
    torch.manual_seed(0)
    embeddings = normalize(torch.randn(BATCH * CLASSES, WIDTH), dim=1).requires_grad_()
    classes = torch.arange(CLASSES).repeat(BATCH)
    chosen = torch.rand(BATCH * CLASSES) < SHARE
    losses.lac(embeddings[:64], classes[:64], *NONE).backward()  # type: ignore[no-untyped-call]
    costs, memory = [], []
    for variant in ("chosen", "all"):
        embeddings.grad, before = None, resident()
        if variant == "chosen":
            cost = losses.lac(embeddings[chosen], classes[chosen], *NONE, TAU)
        else:
            cost = _all_pairs(embeddings, classes, chosen)
        cost.backward()  # type: ignore[no-untyped-call]
        costs.append(cost.detach())
        memory.append(max(peak() - before, 0.1))
    torch.testing.assert_close(*costs)
    number = int(chosen.sum())
    computed, ratio = (BATCH * CLASSES / number) ** 2, memory[1] / memory[0]
    case = f"{number:,} of {BATCH * CLASSES:,} embeddings"
    print_result(
        f"size of the pair matrix, {case}: all / chosen",
        f"{computed:.0f}x",
        ">= 50x",
        computed >= 50,
    )
    value = f"{memory[1]:,.0f} / {memory[0]:,.0f} MB = {ratio:.0f}x"
    print_result(
        "measured memory, forward and backward: all / chosen", value, ">= 50x", ratio >= 50
    )


def _classes() -> None:
    maps, best = torch.randn(16, 256, 7, 7), {}
    for number in (80, 640, 1280):
        head = LabelDecoder(256, number, width=128).train()
        best[number] = timed(lambda h=head: h(maps).sum().backward(), repeat=5)[0]  # type: ignore[misc]
    growth = (best[1280] - best[640]) / max(best[640] - best[80], 1e-9) * (560 / 640)
    name = "decoder: time per class from 640 to 1280 / from 80 to 640"
    print_result(name, f"{growth:.2f}", "about 1", growth < 1.5)


def run() -> None:
    """Memory of the contrastive loss at the size of CUB, growth of the decoder's time."""
    _memory()
    _classes()
