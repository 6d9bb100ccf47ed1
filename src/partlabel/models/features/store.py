"""One record per image on disk: maps of the frozen part of a backbone, or decoded pixels.

A store belongs to one backbone with its weights and to one image size. The key of a record is a
hash of the content of the image file and, unless it is the clean view, of the view. So the name and
the folder of a file do not matter, and a changed file is a new image. Records are appended. A
record that a crash left incomplete is dropped when the store is opened again.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base.errors import InputError, JobError, count
from partlabel.images.batches import Rows, in_batches
from partlabel.images.pictures import Pictures

_DIGEST = 16  # bytes of a content hash


def default_cache() -> Path:
    """``PARTLABEL_CACHE``, or ``partlabel`` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("PARTLABEL_CACHE") or Path(home) / "partlabel")


def content_key(path: Path) -> bytes:
    """A hash of the content of a file.

    If the file cannot be read, its path is hashed. Decoding then reports the error.
    """
    try:
        content = path.read_bytes()
    except OSError:
        content = b"unreadable " + os.fsencode(path)
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


def view_key(content: bytes, view: str, number: int) -> bytes:
    """The key of a view of an image. For the clean view it is the hash of the content."""
    if view == "clean":
        return content
    return hashlib.blake2b(content + f"{view} {number}".encode(), digest_size=_DIGEST).digest()


class MapStore:
    """Records of one shape and data type, each with a key.

    Args:
        folder: folder of the files ``maps`` and ``keys``; created if it does not exist.
        shape: shape of a record, such as (D, H, W).
        kind: data type: half precision for features, bytes for pixels.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], kind: type = np.float16) -> None:
        self.folder, self.shape, self.kind = folder, shape, np.dtype(kind)
        self.size = int(np.prod(shape)) * self.kind.itemsize
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("maps", "keys"):
                (folder / name).open("ab").close()
        except OSError as error:
            raise InputError(f"{folder}: cannot store features here ({error.strerror})") from error
        self.index = self._read_index()

    def _read_index(self) -> dict[bytes, int]:
        """The index of each complete record by its key."""
        complete = (self.folder / "maps").stat().st_size // self.size
        keys = (self.folder / "keys").read_bytes()
        number = min(len(keys) // _DIGEST, complete)
        return {keys[i * _DIGEST : (i + 1) * _DIGEST]: i for i in range(number)}

    @contextmanager
    def appending(self) -> Iterator[Callable[[Sequence[bytes], NDArray[Any]], None]]:
        """A context with a function that appends records; only one process can be inside."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.index = self._read_index()
            maps, keys = ((self.folder / name).open("r+b") for name in ("maps", "keys"))
            with maps, keys:
                maps.truncate(len(self.index) * self.size)
                keys.truncate(len(self.index) * _DIGEST)
                maps.seek(0, os.SEEK_END)
                keys.seek(0, os.SEEK_END)

                def append(new_keys: Sequence[bytes], records: NDArray[Any]) -> None:
                    try:
                        maps.write(records.tobytes())
                        maps.flush()
                        keys.write(b"".join(new_keys))
                        keys.flush()
                    except OSError as error:
                        why = error.strerror or error
                        raise JobError(
                            f"{self.folder}: cannot store more features ({why}); "
                            "set PARTLABEL_CACHE to a larger disk"
                        ) from error
                    for key in new_keys:
                        self.index[key] = len(self.index)

                yield append

    def maps(self) -> NDArray[Any]:
        """All records [m, *shape], memory-mapped."""
        if not self.index:
            return np.empty((0, *self.shape), dtype=self.kind)
        shape = (len(self.index), *self.shape)
        return np.memmap(self.folder / "maps", dtype=self.kind, mode="r", shape=shape)


def fill(
    store: MapStore,
    pictures: Pictures,
    contents: Sequence[bytes],
    compute: Callable[[Tensor], NDArray[Any]],
    *,
    view: str = "clean",
    number: int = 0,
    batch: int = 32,
    workers: int = 0,
    progress: Callable[[int, int], object] = lambda done, total: None,
    broken: Callable[[str], object] = lambda message: None,
) -> Rows:
    """Compute the records that are missing.

    Args:
        store: where to add the records.
        pictures: n images.
        contents: [n] content hash of each image.
        compute: images [B, 3, S, S] to records [B, *shape].
        view, number: which view, and the number that selects one of its random versions.
        batch: images per batch.
        workers: processes that decode images; 0 to decode in this process.
        progress: called with the number of records computed so far and the number missing.
        broken: called with a message for each image that cannot be decoded.

    Returns:
        [n] index of the record of each image, -1 for a broken image.
    """
    keys = [view_key(content, view, number) for content in contents]
    missing = np.array([i for i, key in enumerate(keys) if key not in store.index], dtype=np.int64)
    if len(missing):
        _check_disk_space(store, len(missing))
        done = 0
        with store.appending() as append:
            missing = np.array([i for i in missing if keys[i] not in store.index], dtype=np.int64)
            parts = in_batches(missing, batch)
            for inputs in pictures.batches(parts, (view,), epoch=number, workers=workers):
                new: dict[bytes, int] = {}  # two files may have the same content
                for i, row in enumerate(inputs.rows):
                    if keys[row] not in store.index:
                        new.setdefault(keys[row], i)
                if new:
                    records = compute(inputs.views[view])[list(new.values())]
                    append(list(new), np.ascontiguousarray(records))
                for message in inputs.broken.values():
                    broken(message)
                done += len(inputs.rows) + len(inputs.broken)
                progress(done, len(missing))
    return np.array([store.index.get(key, -1) for key in keys], dtype=np.int64)


def _check_disk_space(store: MapStore, number: int) -> None:
    need, free = number * store.size, shutil.disk_usage(store.folder).free
    if need > free:
        raise JobError(
            f"{store.folder}: the features of {count(number, 'image')} need {need / 1e9:.1f} GB, "
            f"but {free / 1e9:.1f} GB are free; set PARTLABEL_CACHE to a larger disk"
        )
