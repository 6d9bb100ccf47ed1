"""The settings of a training: what may be set, what it is otherwise, and what is not allowed."""

import inspect
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from partlabel.base.errors import InputError, one_of
from partlabel.learning.methods import METHODS, WHOLE_BATCH, Method
from partlabel.models import DEFAULT_BACKBONE, Frozen
from partlabel.models.heads import HEADS
from partlabel.training.schedule import SCHEDULES


class Settings(BaseModel):
    """How to train. Field names are those of ``train(...)`` and of the command's options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = "bce"
    options: dict[str, Any] = Field(default={}, description="The method's own settings.")
    head: str | None = Field(None, description="Instead of the method's.")
    head_options: dict[str, Any] = Field(default={}, description="The head's own settings.")
    backbone: str = DEFAULT_BACKBONE
    weights: str = "imagenet"
    frozen: Frozen = "nothing"
    reduce: int | None = Field(None, ge=1, description="Principal components of the features.")
    view_bank: int | None = Field(None, ge=1, description="Strong versions of a picture.")
    size: int = Field(224, ge=16, le=4096)
    epochs: int = Field(15, ge=1)
    batch: int = Field(32, ge=1)
    optimizer: Literal["sgd", "adam", "adamw", "rmsprop", "lbfgs"] = "adam"
    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    decay_all: bool = Field(False, description="Weight decay on biases and norms too.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Of SGD.")
    schedule: str = "constant"
    plateau: float = Field(0.5, gt=0, lt=1, description="Factor on the rate at a plateau.")
    lr_warmup: float = Field(0.0, ge=0, le=1, description="Share of the steps.")
    clip: float | None = Field(None, gt=0)
    ema: float | None = Field(None, gt=0, lt=1)
    patience: int | None = Field(None, ge=1)
    keep: Literal["best", "last"] = Field("best", description="Which epoch.")
    seed: int = 0
    split: str | None = None
    val: float = Field(0.2, ge=0, lt=1)
    val_split: str | None = None
    reserve: float = Field(
        0.5, ge=0, lt=1, description="Share of the validation images that nothing is chosen on."
    )
    strict: bool = False
    drop_empty: bool = Field(False, description="Leave out classes without a present label.")
    side: list[str] | None = Field(
        None, description="Classes that only tell which images are alike."
    )
    workers: int = Field(0, ge=0)
    cache_pixels: bool = Field(False, description="Keep decoded pictures on disk.")


def make_settings(**given: Any) -> Settings:
    """Settings from what was given, the method's own defaults, and the usual ones."""
    for name in given:
        one_of("setting", name, Settings.model_fields)
    method = METHODS[one_of("method", given.get("method", "bce"), METHODS)]
    given["options"] = read_options(method, given.get("options") or {})
    made = method(**given["options"])
    given["head_options"] = _read_head(method, given.get("head"), given.get("head_options") or {})
    if isinstance(given.get("side"), str):
        given["side"] = [given["side"]]
    if given.get("side") is not None and not method.uses_side:
        able = [name for name, kind in METHODS.items() if kind.uses_side]
        raise InputError(f"--side means nothing to this method; it does to {', '.join(able)}")
    one_of("schedule", given.get("schedule", "constant"), SCHEDULES)
    if given.get("cache_pixels") and given.get("frozen", "nothing") != "nothing":
        raise InputError("--cache-pixels is for trainings of the whole network, not with --frozen")
    if given.get("reduce") and given.get("frozen", "nothing") != "all":
        raise InputError("--reduce is for features of a backbone that is frozen whole: --frozen")
    if given.get("view_bank") and given.get("frozen", "nothing") == "nothing":
        raise InputError("--view-bank is for cached features: with --frozen or --unfreeze last")
    given = {**method.defaults, **given}
    if given.get("optimizer") == WHOLE_BATCH:
        _check_whole_batch(method, given)
        given.setdefault("lr", 1.0)
    try:
        settings = Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise InputError(f"{name} = {first.get('input')!r}: {first['msg']}") from None
    stages = made.stages(settings.epochs, settings.patience)  # may refuse what goes not together
    if any((stage.optimizer or settings.optimizer) == WHOLE_BATCH for stage in stages):
        if settings.frozen != "all":
            raise InputError("lbfgs takes all images at once, which needs their features: --frozen")
        if settings.clip is not None:
            raise InputError("--clip: lbfgs finds the length of its steps itself")
    return settings


def _check_whole_batch(method: type[Method], given: dict[str, Any]) -> None:
    if not method.in_one_batch:
        able = ", ".join(name for name, kind in METHODS.items() if kind.in_one_batch)
        raise InputError(f"this method cannot take all images at once as lbfgs does; {able} can")
    for name in ("batch", "schedule", "lr_warmup", "ema"):
        if given.get(name) not in (None, "constant", 0):
            option = name.replace("_", "-")
            raise InputError(f"--{option}: lbfgs takes one step an epoch, on all images at once")


def _read_head(method: type[Method], head: str | None, given: dict[str, Any]) -> dict[str, Any]:
    if method.head is not Method.head and (head or given):
        said = "--head-set" if head is None else f"--head {head}"
        raise InputError(f"{said}: this method has a head of its own, with settings of --set")
    if head is None:
        if given:
            raise InputError("--head-set: say which head with --head")
        return {}
    return read_options(HEADS[one_of("head", head, HEADS)], given, "--head-set")


def read_options(kind: type[Any], given: dict[str, Any], option: str = "--set") -> dict[str, Any]:
    """The settings of a method or a head, turned into the types its constructor asks for."""
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        and parameter.default is not inspect.Parameter.empty
    }
    what = "setting of this method" if option == "--set" else "setting of this head"
    read = {}
    for name, value in given.items():
        parameter = parameters[one_of(what, name, parameters)]
        read[name] = _read_value(f"{option} {name}", value, TypeAdapter(parameter.annotation))
    return read


def _read_value(name: str, value: Any, kind: TypeAdapter[Any]) -> Any:
    """A value as the type asks for it; a text may also be JSON, or a list without brackets."""
    message = ""
    for read in (str, json.loads, lambda text: json.loads(f"[{text}]")):
        try:
            return kind.validate_python(read(value) if isinstance(value, str) else value)
        except ValidationError as error:
            message = message or error.errors()[0]["msg"]
        except ValueError:
            continue
    raise InputError(f"{name}={value}: {message}")
