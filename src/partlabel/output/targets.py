"""All that can be written, in one table: what ``--to`` of convert, complete and export may name.

A label format is a target of every command that writes labels. A model can only be exported.
"""

import importlib.util
from dataclasses import dataclass
from typing import Literal

from partlabel.base.errors import InputError, one_of
from partlabel.labels.formats import FORMATS

Content = Literal["model", "labels", "tasks", "dataset", "probabilities"]


@dataclass(frozen=True)
class Target:
    """One form of output.

    Args:
        name: for ``--to``.
        content: what ``export`` writes in this form.
        about: in words, for help and documentation.
        extra: the extra of partlabel that ``export`` needs for it; None for none.
        modules: the modules that must be there for it.
        is_folder: whether ``export`` writes a folder.
        labels_too: whether it is also a format of ``convert``, ``complete`` and ``predict``.
    """

    name: str
    content: Content
    about: str
    extra: str | None = None
    modules: tuple[str, ...] = ()
    is_folder: bool = False
    labels_too: bool = False

    def need_extra(self) -> None:
        """Raise an error if a package is missing."""
        missing = [name for name in self.modules if importlib.util.find_spec(name) is None]
        if missing:
            raise InputError(
                f"--to {self.name} needs the package {missing[0]}: "
                f"pip install 'partlabel[{self.extra}]'"
            )


_SPECIAL = (
    Target(
        "onnx",
        "model",
        "the model as one ONNX file, from pixels to decisions",
        "onnx",
        ("onnx", "onnxscript", "onnxruntime"),
    ),
    Target("torch-export", "model", "the model as one .pt2 file, which torch alone can run"),
    Target(
        "hub",
        "model",
        "the model as a folder for the Hugging Face hub, with a model card; timm reads it",
        is_folder=True,
    ),
    Target(
        "cleanlab",
        "probabilities",
        "labels and held-out probabilities for cleanlab.multilabel_classification, as JSON",
    ),
    Target(
        "label-studio",
        "tasks",
        "tasks with predictions for Label Studio, and its labelling configuration",
        labels_too=True,
    ),
    Target(
        "hf",
        "dataset",
        "images and completed labels as a folder that datasets.load_dataset reads",
        is_folder=True,
        labels_too=True,
    ),
)

TARGETS: dict[str, Target] = {target.name: target for target in _SPECIAL} | {
    name: Target(
        name,
        "labels",
        f"completed labels in the format '{name}'",
        is_folder=not format.is_text and not format.suffixes,
        labels_too=True,
    )
    for name, format in FORMATS.items()
    if format.writable and name not in {target.name for target in _SPECIAL}
}
"""The forms of output by name."""


def check_labels_target(name: str) -> None:
    """Raise an error for a name that is no format of labels, with the command that has it."""
    target = TARGETS[one_of("target", name, TARGETS)] if name not in FORMATS else None
    if target is not None and not target.labels_too:
        raise InputError(
            f"--to {name} writes {_WORDS[target.content]}, not labels; use: "
            f"partlabel export RUN OUT --to {name}"
        )


_WORDS = {"model": "a model", "probabilities": "probabilities"}
