"""Start a training from the model of another run, such as a logistic regression."""

from pathlib import Path

import torch
from torch import Tensor, nn

from partlabel.base.errors import FileError
from partlabel.models import Classifier
from partlabel.models.heads.graph import Refined
from partlabel.training.checkpoint import load_state
from partlabel.training.run import Run
from partlabel.training.run_record import Record

_SAME = ("backbone", "weights", "frozen", "reduce", "own_classes", "power", "mirror", "size")


def start_from(folder: str, model: Classifier, record: Record) -> None:
    """Give a new model the trained weights of another run.

    The trained part of the backbone is taken over. Of the head, the layer that turns features into
    logits is taken over if both heads have one: this covers linear heads, heads with class maps and
    ``latent-noise``. Other heads keep their initial weights.

    Args:
        folder: the other run.
        model: the new model.
        record: the new run, which must have the same classes and backbone.
    """
    run = Run(folder)
    if not run.finished:
        raise FileError(folder, "there is no finished run to start from; train it first")
    if run.record.classes != record.classes:
        raise FileError(folder, "has other classes, so no training can start from it")
    for name in _SAME:
        theirs, ours = getattr(run.settings, name), getattr(record.settings, name)
        if name == "frozen" and theirs == "all":  # its backbone is as it was: only the head is new
            continue
        if theirs != ours:
            raise FileError(
                folder, f"has {name} {theirs}, and this training {ours}; use the same for both"
            )
    state = load_state(Path(folder) / "best.safetensors")
    if not _take_over(state, model):
        raise FileError(folder, "shares no trained weights with the model of this method")


@torch.no_grad()
def _take_over(state: dict[str, Tensor], model: Classifier) -> bool:
    """Copy what fits; returns whether anything does."""
    upper = {name: value for name, value in state.items() if name.startswith("backbone.upper.")}
    model.load_state_dict(upper, strict=False)
    layer = _classifier(model.head)
    if layer is None or layer.bias is None or "head.classifier.weight" not in state:
        return bool(upper)
    layer.weight.copy_(state["head.classifier.weight"].reshape(layer.weight.shape))
    layer.bias.copy_(state["head.classifier.bias"])
    return True


def _classifier(head: nn.Module) -> nn.Linear | nn.Conv2d | None:
    """The layer from features to logits, if a head has one."""
    while isinstance(head, Refined):
        head = head.head
    layer = getattr(head, "classifier", None)
    return layer if isinstance(layer, nn.Linear | nn.Conv2d) else None
