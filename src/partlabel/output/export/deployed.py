"""A trained model with everything around it: from pixels to probabilities and decisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor, nn
from torch.nn.functional import interpolate

from partlabel.base.errors import FileError
from partlabel.judging.decisions import Decisions, Tested
from partlabel.judging.scoring import thresholds_or_half
from partlabel.labels import ABSENT, PRESENT
from partlabel.metrics.calibration import Calibration, logits
from partlabel.models import Classifier
from partlabel.models.backbones.networks import config_of
from partlabel.training.run import Run
from partlabel.version import VERSION

OUTPUTS = ("probabilities", "labels", "decisions")


class Deployed(nn.Module):
    """Images, or vectors of features, to the answers of a run.

    Args:
        model: the trained model, in evaluation mode.
        calibration: the line per class; None to leave logits as they are.
        thresholds: [C] scores of the network from which on a class is predicted.
        decisions: when the model says present, absent, or nothing.
    """

    slopes: Tensor
    intercepts: Tensor
    limits: Tensor

    def __init__(
        self,
        model: Classifier,
        calibration: Calibration | None,
        thresholds: NDArray[np.float64],
        decisions: Decisions,
    ) -> None:
        super().__init__()
        self.model, classes = model, len(model.classes)
        line = (np.ones(classes), np.zeros(classes))
        if calibration is not None:
            line = calibration.slopes, calibration.intercepts
        limits = np.stack([logits(thresholds), decisions.present, decisions.absent])
        for name, values in zip(("slopes", "intercepts", "limits"), (*line, limits), strict=True):
            self.register_buffer(name, torch.from_numpy(values).float())

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Images [B, 3, S, S] (uint8) or vectors [B, D] to answers.

        Returns:
            Probabilities [B, C], labels [B, C] in {1, -1}, decisions [B, C] in {1, 0, -1}.
        """
        if inputs.is_floating_point():
            inputs = self.model.backbone.reduction(inputs[:, :, None, None])
        raw = self.model(inputs).float()
        probabilities = torch.sigmoid(raw * self.slopes + self.intercepts)
        threshold, present, absent = self.limits.unbind()
        labels = 2 * (raw >= threshold).int() - 1
        decisions = (raw >= present).int() - (raw <= absent).int()
        return probabilities, labels.to(torch.int8), decisions.to(torch.int8)


class FromPixels(nn.Module):
    """Images of any size, resized to a square, then to answers.

    Args:
        deployed: what the resized images go to.
        size: S, their width and height.
        interpolation: ``bicubic`` or ``bilinear``.
    """

    def __init__(self, deployed: Deployed, size: int, interpolation: str) -> None:
        super().__init__()
        self.deployed, self.size, self.interpolation = deployed, size, interpolation

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pixels [B, H, W, 3] (uint8) to answers, as :meth:`Deployed.forward`."""
        images = pixels.permute(0, 3, 1, 2)
        # as Pillow: first the width, then the height, each rounded to one of 256 levels
        narrowed = self._resize(images, images.shape[2], self.size)
        answers: tuple[Tensor, Tensor, Tensor] = self.deployed(
            self._resize(narrowed, self.size, self.size)
        )
        return answers

    def _resize(self, images: Tensor, height: int, width: int) -> Tensor:
        resized = interpolate(
            images.float(), size=(height, width), mode=self.interpolation, antialias=True
        )
        return resized.round().clamp(0, 255).to(torch.uint8)


@dataclass(frozen=True)
class Package:
    """What an export of a model writes.

    Args:
        deployed: the model and its decisions.
        about: what is to be known about it, as plain values.
    """

    deployed: Deployed
    about: dict[str, Any]

    @property
    def model(self) -> Classifier:
        """The classifier alone."""
        return self.deployed.model

    @property
    def takes_features(self) -> bool:
        """Whether the inputs are vectors of features, not images."""
        return self.about["features"] is not None

    def example(self, batch: int = 2) -> Tensor:
        """Random inputs of the model."""
        generator = torch.Generator().manual_seed(0)
        if self.takes_features:
            return torch.randn((batch, self.about["features"]), generator=generator)
        size = self.about["size"]
        shape = (batch, 3, size, size)
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def make_package(run: Run, decisions: Decisions) -> Package:
    """The final model of a run with these decisions."""
    record = run.record
    if record.teachers:
        raise FileError(
            run.folder,
            "was trained with scores of teachers, which a file of the model alone does not have; "
            "export a run without --teacher",
        )
    model, thresholds = run.classifier(), thresholds_or_half(run)
    calibration = None if record.calibration is None else record.calibration.open()
    line = calibration or _identity(len(record.classes))
    settings, selection = record.settings, run.selection
    about = {
        "partlabel": VERSION,
        "classes": record.classes,
        "method": settings.method,
        "backbone": None if record.features is not None else settings.backbone,
        "features": None if record.features is None else record.features.dimension,
        "size": None if record.features is not None else settings.size,
        "interpolation": getattr(model.backbone, "interpolation", None),
        "calibrated": calibration is not None,
        "calibration": None
        if calibration is None
        else {"slopes": _numbers(line.slopes), "intercepts": _numbers(line.intercepts)},
        "thresholds": _numbers(line.probabilities(thresholds)),
        "present_from": _numbers(_shown(line, decisions.present)),
        "absent_to": _numbers(_shown(line, decisions.absent)),
        "precision": decisions.precision,
        "guarantee": "none" if decisions.without else "tested on reserved labels",
        "tested_on_new_images": decisions.on_new_images and not decisions.without,
        "why_no_guarantee": decisions.without,
        "tests": [
            {"present": _plain(test[PRESENT]), "absent": _plain(test[ABSENT])}
            for test in decisions.tests
        ],
        "images": {
            "trained on": record.train_rows,
            "validated on": record.val_rows,
            "reserved": record.reserved_rows,
        },
        "reserved_labels": len(selection.tested.cells.values),
        "validated_on_folds": bool(record.members) and not record.val_rows,
        "known": selection.known.subset(selection.train).known,
        "validation_mAP": record.best_val_mAP,
        "licence": licence_note(settings.backbone if record.features is None else None),
    }
    deployed = Deployed(model, calibration, thresholds, decisions)
    return Package(deployed.eval().requires_grad_(False), about)


def licence_note(backbone: str | None) -> str:
    """What is known of the licence of a model: that of its backbone, and what else counts."""
    if backbone is None:
        return "The features have a model and a licence of their own. So have images and labels."
    names = backbone.split("+")
    licences = [config_of(name).get("license") or "not stated" for name in names]
    known = ", ".join(f"{name}: {one}" for name, one in zip(names, licences, strict=True))
    return (
        f"Pretrained weights of the backbone, as timm states their licence: {known}. The images "
        "and labels of the training may restrict the use of the model too."
    )


def _identity(classes: int) -> Calibration:
    return Calibration(np.ones(classes), np.zeros(classes), np.zeros(classes, dtype=np.bool_))


def _shown(line: Calibration, raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logits [C] of the network as probabilities; infinite ones stay 0 and 1."""
    return np.asarray(expit(raw * line.slopes + line.intercepts))


def _numbers(values: NDArray[np.float64]) -> list[float]:
    return [float(value) for value in values]


def _plain(test: Tested | None) -> dict[str, Any] | None:
    if test is None:
        return None
    return {"answers": test.answers, "right": test.right, "alone": test.alone}


def in_words(about: dict[str, Any]) -> str:
    """What the decisions of a model guarantee, in one or two sentences."""
    if about["guarantee"] == "none":
        return (
            f"no guarantee: {about['why_no_guarantee']}. A class is present from a probability of "
            f"{about['precision']:g} on, absent up to {1 - about['precision']:g}, and 0 in between"
        )
    sides = _count(about["tests"], "present"), _count(about["tests"], "absent")
    tested = (
        "for images like the reserved ones, on which this model was tested"
        if about["tested_on_new_images"]
        else "for images like those of the training, because their labels tested this "
        "model; on new images it may be less. A split 'holdout' tests it on images that it has "
        "not seen"
    )
    return (
        f"at least {100 * about['precision']:g}% of the decisions are right, with a confidence of "
        f"95% per test, {tested}. It can "
        f"decide that a class is present for {sides[0]} of {len(about['classes'])} classes, and "
        f"absent for {sides[1]}; all else is 0, for don't know"
    )


def _count(tests: Sequence[dict[str, Any]], side: str) -> int:
    return sum(test[side] is not None for test in tests)
