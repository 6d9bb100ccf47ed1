"""A nested state in one safetensors file: its tensors, and everything else as JSON in the header.

There is no pickle in the file, so loading it cannot run code. A checksum reveals damage.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_file

_TENSOR, _PAIRS = "$tensor", "$pairs"
_CHECKSUM, _STATE = "$checksum", "$state"


def save_state(path: str | os.PathLike[str], state: object) -> None:
    """Write a nested state of dicts, lists, numbers, strings and tensors, atomically."""
    tensors: dict[str, Tensor] = {}
    tree = _without_tensors(state, tensors)
    content = json.dumps({_CHECKSUM: _checksum(tree, tensors), _STATE: tree})
    with atomic_file(path) as stream:
        # one entry only: safetensors writes several in an order that changes from file to file
        stream.write(save(tensors, metadata={"tree": content}))


def load_state(path: str | os.PathLike[str]) -> Any:
    """Read a state that :func:`save_state` wrote."""
    if not Path(path).is_file():
        raise FileError(path, "there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            tree = json.loads(file.metadata()["tree"])
            # A tensor that is mapped from the file may not be aligned. Some CPUs then sum a dot
            # product in another order, and the resumed run would not be exact. So tensors are
            # copied.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if tree.get(_CHECKSUM) != _checksum(tree[_STATE], tensors):
            raise ValueError("damaged: its checksum does not fit")
        return _with_tensors(tree[_STATE], tensors)
    except Exception as error:  # safetensors, JSON and missing keys raise different types
        raise FileError(path, f"not a checkpoint that partlabel saved ({error})") from error


def _checksum(tree: Any, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.blake2b(json.dumps(tree).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def stage_file(folder: Path, stage: int) -> Path:
    """The file with the weights that a stage ended with; stages are counted from 1."""
    return folder / "stages" / f"{stage}.safetensors"


def _without_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A state with references in place of its tensors, which are added to ``tensors``."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(value, dict):
        pairs = [[key, _without_tensors(item, tensors)] for key, item in value.items()]
        if all(isinstance(key, str) for key in value):
            return dict(pairs)
        return {_PAIRS: pairs}  # JSON only has strings as keys; optimisers have numbers
    if isinstance(value, (list, tuple)):
        return [_without_tensors(item, tensors) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _with_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The state that :func:`_without_tensors` took apart."""
    if isinstance(value, list):
        return [_with_tensors(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensors[value[_TENSOR]]
    if _PAIRS in value:
        return {key: _with_tensors(item, tensors) for key, item in value[_PAIRS]}
    return {key: _with_tensors(item, tensors) for key, item in value.items()}


def _bits(tensor: Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    """Type, shape and content; unlike ``torch.equal``, -0.0 is not 0.0, and NaN is NaN."""
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return tensor.dtype, tensor.shape, content.numpy().tobytes()


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal bit for bit."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return _bits(one) == _bits(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
