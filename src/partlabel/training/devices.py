"""The device and the precision of a training, through Lightning Fabric."""

from typing import TYPE_CHECKING

import torch

from partlabel.base import launch
from partlabel.base.errors import InputError
from partlabel.models.precision import Precision

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_KINDS = ("cpu", "cuda", "mps")


def find_device(name: str) -> torch.device:
    """The device of a name: ``auto``, ``cpu``, ``cuda``, ``mps``, or one of several (``cuda:1``).

    Raises:
        InputError: there is no such device, or torch cannot use it.
    """
    if name == "auto":
        best = torch.accelerator.current_accelerator() if _has_accelerator() else None
        name = best.type if best is not None and best.type in _KINDS else "cpu"
    if name == "cuda" and launch.on_this_computer() > 1 and torch.cuda.device_count():
        name = f"cuda:{launch.place_on_this_computer() % torch.cuda.device_count()}"
    kind, _, number = name.partition(":")
    if kind not in _KINDS or (number and not number.isdigit()) or (number and kind != "cuda"):
        raise InputError(f"--device {name}: must be auto, cpu, cuda, cuda:1 or mps")
    available = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(_has_mps())}
    if int(number or 0) >= available[kind]:
        usable = [device for device, amount in available.items() if amount]
        raise InputError(
            f"--device {name}: torch finds no such device here; it finds {', '.join(usable)}"
        )
    return torch.device(name)


def _has_accelerator() -> bool:
    return bool(torch.accelerator.is_available())


def _has_mps() -> bool:
    return bool(torch.backends.mps.is_available())


def make_fabric(device: str = "auto", precision: Precision = "32", world: int = 1) -> "Fabric":
    """What runs the steps of a training.

    Args:
        device: see :func:`find_device`.
        precision: of the layers for which it is safe; weights and the loss stay at 32 bits.
        world: number of devices of this kind, one process each.
    """
    # only a training needs it, and it takes longer to import than torch
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.precision import MixedPrecision

    chosen = find_device(device)
    devices = [chosen.index] if chosen.index is not None and world == 1 else world
    # given as a plugin: by name, Fabric would replace 16 bits on the CPU by bfloat16
    mixed = {"bf16": "bf16-mixed", "16": "16-mixed"}.get(precision)
    plugin = None if mixed is None else MixedPrecision(mixed, chosen.type)  # type: ignore[arg-type]
    return Fabric(accelerator=chosen.type, devices=devices, plugins=plugin)
