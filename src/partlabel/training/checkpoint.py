"""Nested states in one safetensors file: tensors as tensors, everything else as JSON in its header.

Loading can run no code: there is no pickle in it. A checksum reveals damage.
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
    """Write a nested state of dicts, lists, numbers, texts and tensors, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    tree = _take_out(state, tensors)
    content = json.dumps({_CHECKSUM: _checksum(tree, tensors), _STATE: tree})
    with atomic_file(path) as stream:
        # one entry only: safetensors writes several in an order that changes from file to file
        stream.write(save(tensors, metadata={"tree": content}))


def load_state(path: str | os.PathLike[str]) -> Any:
    """Read what :func:`save_state` wrote."""
    if not Path(path).is_file():
        raise FileError(path, "there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            tree = json.loads(file.metadata()["tree"])
            # Cloned: a tensor that lies in the file is aligned to nothing in particular, and some
            # CPUs sum a dot product in another order then, which ends an exact resume.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if isinstance(tree, dict) and _STATE in tree:  # files of earlier versions have no checksum
            if tree.get(_CHECKSUM) != _checksum(tree[_STATE], tensors):
                raise ValueError("damaged: its checksum does not fit")
            tree = tree[_STATE]
        return _put_in(tree, tensors)
    except Exception as error:  # safetensors, JSON and missing keys each raise their own
        raise FileError(path, f"not a checkpoint that partlabel saved ({error})") from error


def _checksum(tree: Any, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.blake2b(json.dumps(tree).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def stage_file(folder: Path, stage: int) -> Path:
    """Where a run keeps the weights that a stage, from 1, ended with, unless it is the last."""
    return folder / "stages" / f"{stage}.safetensors"


def _take_out(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(value, dict):
        pairs = [[key, _take_out(item, tensors)] for key, item in value.items()]
        if all(isinstance(key, str) for key in value):
            return dict(pairs)
        return {_PAIRS: pairs}  # JSON has only texts as keys; optimisers have numbers
    if isinstance(value, (list, tuple)):
        return [_take_out(item, tensors) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _put_in(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_put_in(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensors[value[_TENSOR]]
    if _PAIRS in value:
        return {key: _put_in(item, tensors) for key, item in value[_PAIRS]}
    return {key: _put_in(item, tensors) for key, item in value.items()}


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal to the last bit."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
