"""Checkpoints on disk: a loaded state equals the saved one, bit for bit and with its alignment."""

import math
from pathlib import Path

import pytest
import torch

from partlabel.base.errors import FileError
from partlabel.training.checkpoint import load_state, same, save_state

ALIGNMENT = 64  # bytes; torch aligns tensors on a CPU to this


@pytest.mark.exact
@pytest.mark.parametrize("offset", [1, 3, 5, 7])
def test_loaded_tensors_are_aligned(tmp_path: Path, offset: int) -> None:
    """Kernels may sum in another order at another alignment, so exact resume needs this."""
    weights = {
        f"{'x' * offset}{number}": torch.randn(17 * number + offset) for number in range(1, 6)
    }
    state = {"tensors": weights, "bytes": torch.arange(offset, dtype=torch.int8)}
    save_state(tmp_path / "state.safetensors", state)
    loaded = load_state(tmp_path / "state.safetensors")
    assert same(loaded, state)
    tensors = [*loaded["tensors"].values(), loaded["bytes"]]
    assert [tensor.data_ptr() % ALIGNMENT for tensor in tensors] == [0] * len(tensors)


def test_loaded_tensors_do_not_change_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_state(path, {"weights": torch.ones(1000)})
    loaded = load_state(path)["weights"]
    path.write_bytes(b"\0" * path.stat().st_size)
    assert torch.equal(loaded, torch.ones(1000))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(FileError, match=r"state\.safetensors"):
        load_state(path)


def test_states_are_compared_bit_for_bit() -> None:
    """Equal numbers may have other bits, and NaN is not equal to itself."""
    zero, nan = torch.zeros(2), torch.full((2,), math.nan)
    assert same({"a": [zero, nan]}, {"a": [zero.clone(), nan.clone()]})
    assert not same(zero, -zero)
    assert not same(zero, zero.double())
    assert not same(zero, zero.reshape(1, 2))
    assert not same({"a": zero}, {"a": zero, "b": zero})
