"""What comparing embeddings needs: memory of chosen ones against all, cost over classes."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.report import peak, resident, tell, timed
from partlabel.learning import losses
from partlabel.models.heads import LabelDecoder

BATCH, CLASSES, SHARE, WIDTH, TAU = 64, 312, 0.05, 128, 0.5  # CUB has 312 classes
NONE = torch.empty(0, WIDTH), torch.empty(0, dtype=torch.int64)


def _all_pairs(embeddings: Tensor, classes: Tensor, chosen: Tensor) -> Tensor:
    """The same cost through matrices of all B * C embeddings, as Eq. 5 to 7 are written."""
    both = chosen[:, None] & chosen
    both.fill_diagonal_(False)
    same = both & (classes[:, None] == classes)
    similar = embeddings @ embeddings.T / TAU
    below = similar.masked_fill(~both, -torch.inf).logsumexp(dim=1, keepdim=True)
    cost = ((below - similar) * same)[chosen].sum(dim=1) / same[chosen].sum(dim=1).clamp(min=1)
    return cost.mean()


def _memory() -> None:
    torch.manual_seed(0)
    every = normalize(torch.randn(BATCH * CLASSES, WIDTH), dim=1).requires_grad_()
    classes = torch.arange(CLASSES).repeat(BATCH)
    chosen = torch.rand(BATCH * CLASSES) < SHARE
    losses.lac(every[:64], classes[:64], *NONE).backward()  # type: ignore[no-untyped-call]
    costs, needed = [], []
    for way in ("chosen", "all"):
        every.grad, before = None, resident()
        if way == "chosen":
            cost = losses.lac(every[chosen], classes[chosen], *NONE, TAU)
        else:
            cost = _all_pairs(every, classes, chosen)
        cost.backward()  # type: ignore[no-untyped-call]
        costs.append(cost.detach())
        needed.append(max(peak() - before, 0.1))
    torch.testing.assert_close(*costs)
    number = int(chosen.sum())
    computed, ratio = (BATCH * CLASSES / number) ** 2, needed[1] / needed[0]
    case = f"{number:,} of {BATCH * CLASSES:,} embeddings"
    tell(f"one matrix of pairs, {case}: all / chosen", f"{computed:.0f}x", ">= 50x", computed >= 50)
    shown = f"{needed[1]:,.0f} / {needed[0]:,.0f} MB = {ratio:.0f}x"
    tell("measured, forward and backward", shown, ">= 50x", ratio >= 50)


def _classes() -> None:
    maps, best = torch.randn(16, 256, 7, 7), {}
    for number in (80, 640, 1280):
        head = LabelDecoder(256, number, width=128).train()
        best[number] = timed(lambda h=head: h(maps).sum().backward(), repeat=5)[0]  # type: ignore[misc]
    growth = (best[1280] - best[640]) / max(best[640] - best[80], 1e-9) * (560 / 640)
    what = "decoder: cost of a class from 640 to 1280 / from 80 to 640"
    tell(what, f"{growth:.2f}", "about 1", growth < 1.5)


def run() -> None:
    """Memory of the contrast at CUB's size, growth of the decoder's cost."""
    _memory()
    _classes()
