"""Weight files of other programs: state dicts with prefixes, classifiers and other image sizes."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from partlabel.base.errors import FileError, InputError, some

State = dict[str, Tensor]

_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model", "teacher", "module")
_PREFIXES = ("model.", "module.", "visual.", "backbone.", "encoder.", "trunk.", "network.")
_UNUSED = ("head", "fc", "classifier", "last_linear", "head_dist", "mask_token", "text", "logit_")


def load_weights(network: nn.Module, name: str, path: Path) -> list[str]:
    """Load a weight file into a network without a classifier.

    Args:
        network: a timm network.
        name: its name, for messages.
        path: safetensors, or a state dict that torch can load without running code. Its names may
            have a prefix such as ``module.`` or ``visual.``.

    Returns:
        The names in the file that the network has no place for, without those of a classifier.
    """
    if not path.is_file():
        raise InputError(f"--weights {path}: there is no such file (give a file, none or imagenet)")
    state = _without_prefix(_read(path), set(network.state_dict()))
    try:
        state = _for_this_size(state, network)
    except Exception as error:  # a state of another network can raise anything
        raise FileError(path, f"not the weights of {name} ({error})") from error
    own = network.state_dict()
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    if missing:
        raise FileError(
            path,
            f"not the weights of {name}: {some(missing)} {_are(missing)} missing "
            f"({len(own) - len(missing)} of {len(own)} tensors fit)",
        )
    wrong = [key for key in own if key in state and state[key].shape != own[key].shape]
    if wrong:
        shapes = f"{tuple(state[wrong[0]].shape)} instead of {tuple(own[wrong[0]].shape)}"
        raise FileError(
            path, f"not the weights of {name}: {wrong[0]} has the shape {shapes}; check --size"
        )
    network.load_state_dict({key: state.get(key, own[key]) for key in own})
    return [key for key in state if key not in own and not key.startswith(_UNUSED)]


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _read(path: Path) -> State:
    """The tensors of a file, by name."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file of an unknown kind can raise anything
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise FileError(path, f"not weights that can be loaded safely ({reason})") from error
    while isinstance(content, Mapping):
        inner = next((key for key in _WRAPPERS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = content[inner]
    if not isinstance(content, Mapping):
        raise FileError(path, "holds no weights: a state dict has a name for each tensor")
    state = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if not state:
        raise FileError(path, "holds no weights: it has no tensors")
    return state


def _without_prefix(state: State, own: set[str]) -> State:
    """The state with those names that fit best after prefixes are removed."""
    best, best_fit = state, len(own & state.keys())
    candidates = [state]
    for _ in range(2):  # such as module.visual.
        candidates = [
            {key.removeprefix(prefix): value for key, value in each.items()}
            for each in candidates
            for prefix in _PREFIXES
            if any(key.startswith(prefix) for key in each)
        ]
        for candidate in candidates:
            if (fit := len(own & candidate.keys())) > best_fit:
                best, best_fit = candidate, fit
    return best


def _for_this_size(state: State, network: nn.Module) -> State:
    """The state with position embeddings of this image size, and names of the network's authors.

    Every family of timm defines this conversion in its own module.
    """
    convert: Callable[..., Any] | None = getattr(
        sys.modules[type(network).__module__], "checkpoint_filter_fn", None
    )
    return state if convert is None else dict(convert(state, network))
