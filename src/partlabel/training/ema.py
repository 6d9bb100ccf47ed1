"""A teacher: a running mean of a model's weights."""

import copy

import torch
from torch import nn

from partlabel.models import Classifier


def make_teacher(model: Classifier) -> Classifier:
    """A copy of a model, without gradients."""
    teacher = copy.deepcopy(model).eval()
    for parameter in teacher.parameters():
        parameter.requires_grad_(False)
    return teacher


@torch.no_grad()
def follow(teacher: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Update the running mean with the current weights of the model. Buffers are copied.

    Args:
        teacher: the running mean.
        model: the model that is trained.
        decay: weight of the old mean, from 0 to 1.
        step: t, the number of updates. The weight of the old mean is at most (1 + t) / (10 + t), so
            that the teacher follows faster at first.
    """
    weight = 1 - min(decay, (1 + step) / (10 + step))
    for mean, parameter in zip(teacher.parameters(), model.parameters(), strict=True):
        mean.lerp_(parameter, weight)
    for copied, buffer in zip(teacher.buffers(), model.buffers(), strict=True):
        copied.copy_(buffer)
