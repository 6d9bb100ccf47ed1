"""A teacher: a running mean of a model's weights."""

import copy

import torch
from torch import nn

from partlabel.models import Classifier


def make_teacher(model: Classifier) -> Classifier:
    """A copy of a model that is never trained itself."""
    teacher = copy.deepcopy(model).eval()
    for parameter in teacher.parameters():
        parameter.requires_grad_(False)
    return teacher


@torch.no_grad()
def follow(teacher: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Move the teacher to the model, faster at first: by 1 - min(decay, (1 + t) / (10 + t))."""
    weight = 1 - min(decay, (1 + step) / (10 + step))
    for mine, theirs in zip(teacher.parameters(), model.parameters(), strict=True):
        mine.lerp_(theirs, weight)
    for kept, current in zip(teacher.buffers(), model.buffers(), strict=True):
        kept.copy_(current)
