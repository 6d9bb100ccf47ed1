"""From arguments to the settings of a training: defaults, types, contradictions."""

import inspect
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from partlabel.base.choices import DEFAULT_BACKBONE, WHOLE_BATCH
from partlabel.base.errors import FileError, InputError, PartlabelWarning, one_of
from partlabel.base.validation import first_problem
from partlabel.learning.extensions import UsesSide
from partlabel.learning.methods import METHODS, Method
from partlabel.models.backbones import default_size
from partlabel.models.heads import HEADS
from partlabel.training.auto.auto_settings import AUTO_SETTINGS, check_auto
from partlabel.training.schedule import SCHEDULES
from partlabel.training.settings import AUTO, NO_BACKBONE, Execution, Settings


def make_settings(**arguments: Any) -> Settings:
    """Settings from arguments, the method's own defaults, and the general ones.

    Raises an error for arguments that contradict each other or would have no effect.
    """
    for name in arguments:
        one_of("setting", name, Settings.model_fields)
    _check_types(arguments)
    if arguments.get("method") in (None, AUTO):
        return _validated(_with_size(check_auto(arguments)))
    kind = METHODS[one_of("method", arguments["method"], [AUTO, *METHODS])]
    arguments["options"] = read_options(kind, arguments.get("options") or {})
    head, head_options = arguments.get("head"), arguments.get("head_options") or {}
    arguments["head_options"] = _read_head(kind, head, head_options)
    if isinstance(arguments.get("side"), str):
        arguments["side"] = [arguments["side"]]
    if isinstance(arguments.get("frozen"), bool):  # as the option --frozen
        arguments["frozen"] = "all" if arguments["frozen"] else "nothing"
    if isinstance(arguments.get("precision"), int):  # 16 in a YAML file is a number
        arguments["precision"] = str(arguments["precision"])
    one_of("schedule", arguments.get("schedule", "constant"), SCHEDULES)
    _refuse_idle(kind, arguments)
    values = {**kind.defaults, **arguments}
    values = _with_size(values)
    if values.get("optimizer") == WHOLE_BATCH:
        _check_whole_batch(kind, values)
        values.setdefault("lr", 1.0)
    settings = _validated(values)
    _check_stages(kind(**arguments["options"]), settings)
    if settings.optimizer == WHOLE_BATCH and "weight_decay" not in values:
        warnings.warn(
            "lbfgs finds the minimum of the loss, and without --weight-decay it memorises the "
            "training labels; set one, such as 1e-3",
            PartlabelWarning,
            stacklevel=3,
        )
    return settings


def _with_size(values: dict[str, Any]) -> dict[str, Any]:
    """Settings with an image size that the backbone can take, if none is given."""
    if values.get("size") is not None:
        return values
    return {**values, "size": default_size(values.get("backbone", DEFAULT_BACKBONE))}


def _validated(values: Mapping[str, Any]) -> Settings:
    try:
        return Settings(**values)
    except ValidationError as error:
        where, _, message = first_problem(error)
        raise InputError(f"{'.'.join(map(str, where))}: {message}") from None


def _check_types(arguments: Mapping[str, Any]) -> None:
    """Raise an error for values of another type than those that are looked at before pydantic."""
    for name in ("method", "head", "schedule"):
        if not isinstance(arguments.get(name), str | None):
            raise InputError(f"{name} = {arguments[name]!r}: must be a name")
    for name in ("options", "head_options"):
        if not isinstance(arguments.get(name), Mapping | None):
            raise InputError(f"{name} = {arguments[name]!r}: must be names with values")


def override(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a configuration file, with others on top.

    Settings of the method, and of the head, are replaced one by one, unless the method or the head
    is replaced. What has no effect any more is left out.

    >>> override({"optimizer": "sgd", "momentum": 0.8}, {"optimizer": "adam"})
    {'optimizer': 'adam'}
    """
    values = {**config, **settings}
    for owner, name in (("method", "options"), ("head", "head_options")):
        if settings.get(owner, config.get(owner)) != config.get(owner):
            values[name] = settings.get(name) or {}
        elif isinstance(config.get(name), Mapping) and isinstance(settings.get(name), Mapping):
            values[name] = {**config[name], **settings[name]}
    whole = values.get("optimizer") == WHOLE_BATCH
    idle = [name for name, (_, is_met) in _CONDITIONS.items() if not is_met(values)]
    idle += _NOT_WITH_LBFGS if whole else ()
    if values.get("optimizer") != config.get("optimizer"):
        idle.append("lr")  # a learning rate suits one optimiser
    return {name: value for name, value in values.items() if name in settings or name not in idle}


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a YAML file, such as the ``config.yaml`` of a run."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FileError(path, f"not a YAML file: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise FileError(path, "holds no settings; write one per line, such as `epochs: 20`")
    settings = {name.replace("-", "_"): value for name, value in content.items()}
    for name in settings:
        if name not in Settings.model_fields:
            try:
                one_of("setting", name, [*Settings.model_fields, *Execution.model_fields])
            except InputError as error:
                raise FileError(path, str(error)) from None
    return settings


def write_config(settings: Settings) -> str:
    """A YAML file that :func:`read_config` turns into the same settings."""
    values = effective(settings)
    options = {name: _absolute(value) for name, value in settings.options.items()}
    values |= {"options": options} if options else {}
    if settings.backbone != NO_BACKBONE:
        values["weights"] = _absolute(settings.weights)
    source = "--features FILE" if settings.backbone == NO_BACKBONE else "--images IMAGES"
    return (
        "# The settings of this run. To repeat it:\n"
        f"#   partlabel train labels.arrow {source} --config config.yaml --out AGAIN\n"
        + yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    )


def effective(settings: Settings) -> dict[str, Any]:
    """The settings that have an effect; None only where it replaces a default of the method."""
    general = settings.model_dump(mode="json")
    if settings.method == AUTO:
        return {name: general[name] for name in AUTO_SETTINGS if general[name] is not None}
    kind = METHODS[settings.method]
    return {
        name: value
        for name, value in general.items()
        if _belongs(name, settings) and (value is not None or kind.defaults.get(name) is not None)
    }


def _absolute(value: Any) -> Any:
    """The absolute path of a file, which is found from any folder; other values as they are."""
    is_file = isinstance(value, str) and Path(value).is_file()
    return str(Path(value).resolve()) if is_file else value


def _belongs(name: str, settings: Settings) -> bool:
    """Whether a setting has an effect, so that it may be given explicitly."""
    if settings.optimizer == WHOLE_BATCH and name in _NOT_WITH_LBFGS:
        return False
    if name in _CONDITIONS and not _CONDITIONS[name][1](settings.model_dump()):
        return False
    return bool(getattr(settings, name) != {})


# settings that have an effect only under a condition: when not, in words, and the condition
_CONDITIONS: dict[str, tuple[str, Callable[[Mapping[str, Any]], bool]]] = {
    **dict.fromkeys(
        ("budget", "folds", "single"),
        ("without --method auto", lambda values: values.get("method") in (None, AUTO)),
    ),
    "momentum": ("without --optimizer sgd", lambda values: values.get("optimizer") == "sgd"),
    "rise": (
        "without --schedule onecycle",
        lambda values: values.get("schedule") == "onecycle",
    ),
    "plateau": (
        "without --schedule plateau",
        lambda values: values.get("schedule") == "plateau",
    ),
    "decay_all": ("without --weight-decay", lambda values: bool(values.get("weight_decay"))),
    "val": ("with --val-split", lambda values: values.get("val_split") is None),
    "patience": ("without images to validate on", lambda values: _validates(values)),
    "power": (
        "without --reduce or --own-classes",
        lambda values: values.get("reduce") is not None or values.get("own_classes") is not None,
    ),
    "own_classes": (
        "without --frozen, or with --features",
        lambda values: values.get("frozen") == "all" and values.get("backbone") != NO_BACKBONE,
    ),
    "mirror": (
        "without --frozen, or with --features",
        lambda values: values.get("frozen") == "all" and values.get("backbone") != NO_BACKBONE,
    ),
    "reduce": ("without --frozen", lambda values: values.get("frozen") == "all"),
    "unfreeze_blocks": (
        "without --unfreeze last",
        lambda values: values.get("frozen") == "lower",
    ),
    "fixed_statistics": ("with --frozen", lambda values: values.get("frozen") != "all"),
    **dict.fromkeys(
        ("weights", "size"),
        ("with --features", lambda values: values.get("backbone") != NO_BACKBONE),
    ),
    "view_bank": (
        "without --frozen or --unfreeze last, or with --features",
        lambda values: (
            values.get("frozen", "nothing") != "nothing" and values.get("backbone") != NO_BACKBONE
        ),
    ),
}


def _validates(values: Mapping[str, Any]) -> bool:
    return values.get("val") != 0 or values.get("val_split") is not None


_NOT_WITH_LBFGS = ("batch", "schedule", "lr_warmup", "ema")


def _refuse_idle(kind: type[Method], arguments: Mapping[str, Any]) -> None:
    """Raise an error for arguments that would have no effect."""
    values = {**kind.defaults, **arguments}
    for name, (when, is_met) in _CONDITIONS.items():
        value = arguments.get(name)
        if value is not None and value is not False and not is_met(values):
            raise InputError(f"{_option(name)} has no effect {when}")
    if arguments.get("schedule") == "plateau" and not _validates(values):
        raise InputError("--schedule plateau has no effect without images to validate on")
    if arguments.get("side") is not None and not issubclass(kind, UsesSide):
        able = [name for name, other in METHODS.items() if issubclass(other, UsesSide)]
        raise InputError(f"--side has no effect: only {', '.join(able)} can use it")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_whole_batch(kind: type[Method], values: Mapping[str, Any]) -> None:
    if not kind.in_one_batch:
        able = ", ".join(name for name, other in METHODS.items() if other.in_one_batch)
        raise InputError(f"this method cannot take all images at once as lbfgs does; {able} can")
    for name in _NOT_WITH_LBFGS:
        if values.get(name) not in (None, "constant", 0):
            raise InputError(
                f"{_option(name)} has no effect: lbfgs takes one step per epoch, on all images"
            )


def _check_stages(method: Method, settings: Settings) -> None:
    """Let the method refuse its stages, and check those that take all images at once."""
    stages = method.stages(settings.epochs, settings.patience)
    if any((stage.optimizer or settings.optimizer) == WHOLE_BATCH for stage in stages):
        if settings.frozen != "all":
            raise InputError("lbfgs takes all images at once, which needs their features: --frozen")
        if settings.clip is not None:
            raise InputError("--clip has no effect: lbfgs finds the length of its steps itself")


def _read_head(kind: type[Method], head: str | None, options: dict[str, Any]) -> dict[str, Any]:
    if kind.head is not Method.head and (head or options):
        option = "--head-set" if head is None else f"--head {head}"
        raise InputError(f"{option}: this method has its own head, with settings of --set")
    if head is None:
        if options:
            raise InputError("--head-set needs --head: name the head that it sets")
        return {}
    return read_options(HEADS[one_of("head", head, HEADS)], options, "--head-set")


def read_options(kind: type[Any], options: dict[str, Any], flag: str = "--set") -> dict[str, Any]:
    """The settings of a method or a head, converted to the types of its constructor."""
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        and parameter.default is not inspect.Parameter.empty
    }
    what = "setting of this method" if flag == "--set" else "setting of this head"
    values = {}
    for name, value in options.items():
        parameter = parameters[one_of(what, name, parameters)]
        values[name] = _read_value(f"{flag} {name}", value, TypeAdapter(parameter.annotation))
    return values


def _read_value(name: str, value: Any, kind: TypeAdapter[Any]) -> Any:
    """A value of the right type; a string may also be JSON, or a list without brackets."""
    message = ""
    for read in (str, json.loads, lambda text: json.loads(f"[{text}]")):
        try:
            return kind.validate_python(read(value) if isinstance(value, str) else value)
        except ValidationError as error:
            message = message or first_problem(error)[2]
        except ValueError:
            continue
    raise InputError(f"{name}={value}: {message}")
