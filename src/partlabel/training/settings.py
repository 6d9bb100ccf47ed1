"""The settings of a training, and how it is carried out. Command options are derived from these.

This file imports no torch, so that ``partlabel train --help`` answers at once.
"""

from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.fields import FieldInfo

from partlabel.base.choices import DEFAULT_BACKBONE, Optimizer, Schedule

Frozen = Literal["nothing", "lower", "all"]
Precision = Literal["32", "bf16", "16"]
Keep = Literal["best", "best-of-all", "last"]

AUTO = "auto"  # the method that tries others and combines the best
NO_BACKBONE = "none"  # of a training on features


class Panel(StrEnum):
    """What settings are about; each is a panel of ``--help``."""

    METHOD = "Method"
    NETWORK = "Network"
    OPTIMISATION = "Optimisation"
    IMAGES = "Images"
    EXECUTION = "Execution"


def _setting(
    default: Any, panel: str, description: str, *, default_text: str | None = None, **limits: Any
) -> Any:
    """A field with the panel of ``--help`` that it is shown in, and what the help says about it.

    Args:
        default_text: what the default means, if the value itself does not say it.
    """
    extra: dict[str, Any] = {"panel": panel, "default": default_text}
    return Field(default, description=description, json_schema_extra=extra, **limits)


def panel_of(field: FieldInfo) -> Panel:
    """What a setting is about."""
    assert isinstance(field.json_schema_extra, dict)
    return Panel(str(field.json_schema_extra["panel"]))


def default_text_of(field: FieldInfo) -> str | None:
    """The default of a setting in words; None if there is nothing to say."""
    assert isinstance(field.json_schema_extra, dict)
    text = field.json_schema_extra["default"]
    if text is not None:
        return str(text)
    has_value = field.default is not None and field.default is not False and field.default != {}
    return str(field.default) if has_value else None


class Settings(BaseModel):
    """What determines the result of a training.

    Field names are the keyword arguments of ``partlabel.train`` and the keys of ``--config`` files.
    With dashes they are the options of ``partlabel train``, except for ``options`` (``--set``),
    ``head_options`` (``--head-set``) and ``frozen`` (``--frozen``, ``--unfreeze``).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    method: str = _setting(
        AUTO,
        "Method",
        "How to learn from partial labels; see `partlabel methods`. auto trains several methods on "
        "frozen features, compares them on held-out labels, and combines the best.",
    )
    budget: str = _setting(
        "medium",
        "Method",
        "With --method auto: small, medium or large, or the number of trainings to compare.",
    )
    folds: int = _setting(
        5,
        "Method",
        "With --method auto: parts of the training images. Each is scored by models that are "
        "trained on the others, unless a fully labelled split holdout is there to compare on.",
        ge=2,
        le=20,
    )
    single: bool = _setting(
        False, "Method", "With --method auto: keep the best model only, not a combination."
    )
    options: dict[str, Any] = _setting(
        {}, "Method", "key=value: a setting of the method, such as alpha=0.1; may be repeated."
    )
    head: str | None = _setting(
        None,
        "Method",
        "linear (mean of the feature map), weldon, saliency or boosted (pooled class maps), or "
        "decoder (one query per class), for methods without a head of their own.",
        default_text="linear",
    )
    head_options: dict[str, Any] = _setting(
        {}, "Method", "key=value: a setting of the head, such as k=3; may be repeated."
    )
    side: list[str] | None = _setting(
        None,
        "Method",
        "Classes by pattern, such as 'species=*', that are not learned but show which images are "
        "alike (imcl); may be repeated.",
    )

    backbone: str = _setting(
        DEFAULT_BACKBONE,
        "Network",
        "A network of timm, by name; see `partlabel backbones`. A+B joins the features of several.",
    )
    weights: str = _setting(
        "imagenet", "Network", "none, imagenet, or a file: safetensors, or a state dict of torch."
    )
    start: str | None = _setting(
        None,
        "Network",
        "A finished run with the same backbone and classes, whose model to start from.",
    )
    frozen: Frozen = _setting(
        "nothing", "Network", "Which part of the backbone keeps its weights: nothing, lower, all."
    )
    unfreeze_blocks: int | None = _setting(
        None,
        "Network",
        "With --unfreeze last: train this many last blocks of a network whose blocks are equal, "
        "such as a Vision Transformer.",
        default_text="2",
        ge=1,
    )
    fixed_statistics: bool = _setting(
        False,
        "Network",
        "Without --frozen: keep the means and variances of batch normalisation. Better with "
        "--start RUN if the head of that run was trained with --frozen, and so fits them.",
    )
    reduce: int | None = _setting(
        None,
        "Network",
        "With --frozen: keep this many principal components of the features, such as 384. Often "
        "generalises better, with a weight decay of about 3e-2 and a learning rate of 3e-3.",
        ge=1,
    )
    own_classes: float | None = _setting(
        None,
        "Network",
        "With --frozen: add the probabilities of the classes that the network was pretrained on, "
        "such as those of ImageNet, to its features, with this weight. Often better by one or two "
        "points where few labels are known; `auto` finds a weight.",
        gt=0,
    )
    power: float = _setting(
        1.0,
        "Network",
        "With --reduce or --own-classes: use this power of the features. 0.5, their square root, "
        "often generalises better.",
        gt=0,
        le=1,
    )
    mirror: bool = _setting(
        False,
        "Network",
        "With --frozen or --method auto: average features over an image and its mirror image. "
        "Takes twice the time per image, and is often a little better.",
    )
    view_bank: int | None = _setting(
        None,
        "Network",
        "With --frozen or --unfreeze last: cache this many strongly augmented copies and one "
        "mirrored copy per training image, for methods that compare views.",
        default_text="2 for those",
        ge=1,
    )
    size: int = _setting(
        224,
        "Network",
        "Image size in pixels; images are squashed to a square.",
        default_text="224, or the nearest size that the backbone can take",
        ge=16,
        le=4096,
    )
    precision: Precision = _setting(
        "32",
        "Network",
        "32, bf16 or 16: bits in which layers compute where that is safe. Fewer pay on a GPU.",
    )

    epochs: int = _setting(15, "Optimisation", "Passes over the training images.", ge=1)
    batch: int = _setting(32, "Optimisation", "Images per step.", ge=1)
    optimizer: Optimizer = _setting(
        "adam",
        "Optimisation",
        "sgd, adam, adamw, rmsprop; or with --frozen lbfgs, which takes all images at once and "
        "converges in a few epochs: often better, and needs a --weight-decay such as 1e-3.",
    )
    lr: float = _setting(
        1e-3, "Optimisation", "Learning rate.", default_text="0.001, or 1 with lbfgs", gt=0
    )
    weight_decay: float = _setting(
        0.0, "Optimisation", "Weight decay, not on biases and norms.", ge=0
    )
    decay_all: bool = _setting(False, "Optimisation", "Weight decay on biases and norms too.")
    momentum: float = _setting(0.9, "Optimisation", "Momentum of sgd.", ge=0, lt=1)
    schedule: Schedule = _setting(
        "constant", "Optimisation", "Learning rate: constant, step, cosine, onecycle or plateau."
    )
    rise: float = _setting(
        0.3,
        "Optimisation",
        "With --schedule onecycle: share of the steps in which the learning rate rises.",
        gt=0,
        lt=1,
    )
    plateau: float = _setting(
        0.5,
        "Optimisation",
        "With --schedule plateau: factor on the learning rate after an epoch that is no better.",
        gt=0,
        lt=1,
    )
    lr_warmup: float = _setting(
        0.0, "Optimisation", "Share of the steps in which the learning rate rises.", ge=0, le=1
    )
    clip: float | None = _setting(
        None, "Optimisation", "Largest norm of the gradient.", default_text="no limit", gt=0
    )
    ema: float | None = _setting(
        None,
        "Optimisation",
        "Decay of a running mean of the weights, such as 0.9997. It is validated beside the "
        "weights, and the better one is kept.",
        gt=0,
        lt=1,
    )
    patience: int | None = _setting(
        None, "Optimisation", "Stop after this many epochs without a better validation.", ge=1
    )
    keep: Keep = _setting(
        "best",
        "Optimisation",
        "Which epoch to keep: best by validation mAP, of the last stage if the method has several; "
        "best-of-all, of all stages; or last.",
    )
    seed: int = _setting(0, "Optimisation", "Seed of every random choice.")

    split: str | None = _setting(
        None, "Images", "Split to train on.", default_text="train if there is one, else all images"
    )
    val: float | None = _setting(
        None,
        "Images",
        "Share of the split to validate on.",
        default_text="0.2, or the split holdout if there is one",
        ge=0,
        lt=1,
    )
    val_split: str | None = _setting(
        None,
        "Images",
        "Split to validate on, instead of a share of the split to train on.",
        default_text="holdout if there is one",
    )
    reserve: float | None = _setting(
        None,
        "Images",
        "Share of the known labels that are neither trained nor chosen on: `complete` tests its "
        "guarantees on them. With a split to validate on, a share of its images instead. (default: "
        "as many labels as a guarantee of 95% needs, or half of the images)",
        ge=0,
        lt=1,
    )
    group: str | None = _setting(
        None,
        "Images",
        "Images with the same value in this column of the label file, or in a file image,group, "
        "stay on one side of every split: those of a patient, a camera, a scene.",
    )
    split_duplicates: bool = _setting(
        False,
        "Images",
        "Do not look for near-duplicates.",
        default_text="they stay on one side of every split",
    )
    drop_empty: bool = _setting(
        False, "Images", "Leave out classes that are present in no training image."
    )

    @field_validator("budget")
    @classmethod
    def _check_budget(cls, value: str) -> str:
        if value in ("small", "medium", "large"):
            return value
        if value.isascii() and value.isdigit() and 0 < int(value) < 1_000_000:
            return value
        raise ValueError(f"must be small, medium, large or a number of trainings, not '{value}'")


class Execution(BaseModel):
    """How a training is carried out: this may change its speed, not its result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache: Path | None = _setting(
        None,
        "Execution",
        "Folder of cached features.",
        default_text="PARTLABEL_CACHE, or the user's cache folder",
    )
    device: str = _setting(
        "auto", "Execution", "auto, cpu, cuda, mps, or one of several GPUs, such as cuda:1."
    )
    compile: bool = _setting(
        False,
        "Execution",
        "Compile the network first (torch.compile), which takes a minute and pays for long "
        "trainings on a GPU.",
    )
    workers: int | None = _setting(
        None,
        "Execution",
        "Processes that decode images while the network computes.",
        default_text="on a GPU one less than there are cores, at most 8; otherwise none, and all "
        "cores decode and compute in turns",
        ge=0,
    )
    cache_pixels: bool = _setting(
        False,
        "Execution",
        "Cache decoded images on disk, for large photos and many epochs; not with --frozen.",
    )
    strict: bool = _setting(
        False, "Execution", "An unreadable image is an error, before training starts."
    )
    tensorboard: bool = _setting(False, "Execution", "Also log to RUN/tensorboard.")
    quiet: bool = _setting(
        False, "Execution", "Print no lines of epochs and notes; the run keeps the log."
    )
