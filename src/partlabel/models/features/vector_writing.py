"""Writing files of vectors, which ``vector_files`` reads."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from safetensors.torch import save

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_file, atomic_group
from partlabel.models.features.vector_files import IDS_SUFFIX
from partlabel.models.features.vector_formats import SUFFIXES


def check_target(path: Path) -> None:
    """Raise an error if vectors cannot be written to a file of this name."""
    if path.suffix.lower() not in SUFFIXES:
        raise FileError(path, f"the name must end in {', '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise FileError(path, "its folder does not exist")


def write_vectors(path: Path, vectors: NDArray[np.float32], ids: Sequence[str]) -> None:
    """Write vectors [n, D] with their ids, in the format of the suffix; atomically.

    The ids of an .npy file are written beside it, to ``PATH.ids.txt``.
    """
    check_target(path)
    kind = path.suffix.lower()
    if kind == ".npy":
        with atomic_group([path, path.with_name(path.name + IDS_SUFFIX)]) as (own, beside):
            np.save(own, vectors, allow_pickle=False)
            beside.write_text("".join(f"{name}\n" for name in ids), encoding="utf-8")
        return
    with atomic_file(path) as stream:
        if kind == ".npz":
            np.savez(stream, features=vectors, ids=np.array(ids, dtype=np.str_))
        elif kind == ".safetensors":
            metadata = {"ids": json.dumps(list(ids))}
            stream.write(save({"features": torch.from_numpy(vectors)}, metadata=metadata))
        else:
            table = _as_arrow(vectors, ids)
            if kind == ".parquet":
                pyarrow.parquet.write_table(table, stream)
            else:
                stream.write(_ipc(table))


def _as_arrow(vectors: NDArray[np.float32], ids: Sequence[str]) -> pa.Table:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    return pa.table({"image": pa.array(ids, pa.large_string()), "features": lists})


def _ipc(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    with pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()
