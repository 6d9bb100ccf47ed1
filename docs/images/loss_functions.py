"""Draws ``partial-weight.svg`` and ``em-gradients.svg``: what two losses do, as in their papers.

Run it after a change: ``python docs/images/loss_functions.py``.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from partlabel import losses
from partlabel.output.drawing import panels, styled, svg

GAMMAS = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0)


def weight(share: float, gamma: float) -> float:
    """g of an image of which this share of the labels is known, with g(0.1) = 5, by the loss."""
    classes = 100
    labels = torch.zeros(1, classes)
    labels[0, : round(share * classes)] = 1
    alpha, beta = losses.partial_weight(5.0, gamma=gamma)
    logits = torch.zeros(1, classes)
    return float(
        losses.partial_bce(logits, labels, alpha, beta, gamma) / losses.bce(logits, labels)
    )


def gradient(loss: str, label: int, logits: Tensor) -> Tensor:
    """The gradient of the cost of one label at each of these logits [n]."""
    cells = logits.clone().requires_grad_()
    labels = torch.full((1, len(cells)), float(label))
    options = {"alpha": 1.0} if loss == "entropy_maximization" else {}
    cost = getattr(losses, loss)(cells[None], labels, **options) * len(cells)
    return torch.autograd.grad(cost, cells)[0]


def draw_weight() -> str:
    """The weight of an image against the share of its labels that is known."""
    shares = np.linspace(0.1, 1, 91)
    with styled():
        figure, (axes,) = panels(1, 1, 5, 3)
        for gamma in GAMMAS:
            axes.plot(shares, [weight(share, gamma) for share in shares], label=f"gamma {gamma:g}")
        axes.set(xlabel="share of labels that is known", ylabel="weight g")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        return svg(figure)


def draw_gradients() -> str:
    """Gradients of AN and EM against the logit."""
    logits = torch.linspace(-6, 6, 241)
    lines = {
        "known to be present (both)": ("assume_negative", 1),
        "unknown, AN": ("assume_negative", 0),
        "unknown, EM with alpha 1": ("entropy_maximization", 0),
    }
    with styled():
        figure, (axes,) = panels(1, 1, 5, 3)
        axes.axhline(0, color="#94a3b8", lw=1)
        for name, (loss, label) in lines.items():
            axes.plot(logits, gradient(loss, label, logits), label=name)
        axes.set(xlabel="logit", ylabel="gradient of the cost")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        return svg(figure)


if __name__ == "__main__":
    folder = Path(__file__).parent
    (folder / "partial-weight.svg").write_text(draw_weight() + "\n")
    (folder / "em-gradients.svg").write_text(draw_gradients() + "\n")
