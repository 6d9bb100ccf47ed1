"""States on disk: what is saved comes back, bit for bit and laid out as fresh tensors are."""

from pathlib import Path

import pytest
import torch

from partlabel.base.errors import FileError
from partlabel.training.checkpoint import load_state, same, save_state

ALIGNMENT = 64  # bytes, of what torch allocates on a CPU


@pytest.mark.parametrize("offset", [1, 3, 5, 7])
def test_tensors_come_back_aligned_as_allocated_ones(tmp_path: Path, offset: int) -> None:
    """Kernels may sum in another order at another alignment, so this is part of exact resume."""
    names = {f"{'x' * offset}{number}": torch.randn(17 * number + offset) for number in range(1, 6)}
    state = {"tensors": names, "bytes": torch.arange(offset, dtype=torch.int8)}
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
