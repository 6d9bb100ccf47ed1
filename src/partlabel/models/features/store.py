"""Records of pictures on disk: maps of the frozen part of a backbone, or decoded pixels.

A store belongs to one backbone, its weights and one picture size. Its records are found by the
content of the image file, so it does not matter what a file is called or where it lies, and a
changed file is a new one; and by the view of the picture, if that is not the clean one. Records are
appended; one that was cut off by a crash is dropped at the next opening.
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
    """A hash of what is in a file; of its name if it cannot be read, which decoding will find."""
    try:
        content = path.read_bytes()
    except OSError:
        content = b"unreadable " + os.fsencode(path)
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


def view_key(content: bytes, view: str, number: int) -> bytes:
    """The key of a view of a picture: of the clean one, that of its content."""
    if view == "clean":
        return content
    return hashlib.blake2b(content + f"{view} {number}".encode(), digest_size=_DIGEST).digest()


class MapStore:
    """Records of one shape and kind, each under a key.

    Args:
        folder: where ``maps`` and ``keys`` lie; made if it does not exist.
        shape: of a record, such as [D, H, W].
        kind: of its numbers: half precision for features, bytes for pixels.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], kind: type = np.float16) -> None:
        self.folder, self.shape, self.kind = folder, shape, np.dtype(kind)
        self.size = int(np.prod(shape)) * self.kind.itemsize
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("maps", "keys"):
                (folder / name).open("ab").close()
        except OSError as error:
            raise InputError(f"{folder}: cannot keep features here ({error.strerror})") from error
        self.places = self._read_places()

    def _read_places(self) -> dict[bytes, int]:
        whole = (self.folder / "maps").stat().st_size // self.size
        keys = (self.folder / "keys").read_bytes()
        number = min(len(keys) // _DIGEST, whole)
        return {keys[i * _DIGEST : (i + 1) * _DIGEST]: i for i in range(number)}

    @contextmanager
    def appending(self) -> Iterator[Callable[[Sequence[bytes], NDArray[Any]], None]]:
        """Give a function that appends records; one process at a time."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.places = self._read_places()
            maps, keys = ((self.folder / name).open("r+b") for name in ("maps", "keys"))
            with maps, keys:
                maps.truncate(len(self.places) * self.size)
                keys.truncate(len(self.places) * _DIGEST)
                maps.seek(0, os.SEEK_END)
                keys.seek(0, os.SEEK_END)

                def append(new: Sequence[bytes], records: NDArray[Any]) -> None:
                    try:
                        maps.write(records.tobytes())
                        maps.flush()
                        keys.write(b"".join(new))
                        keys.flush()
                    except OSError as error:
                        why = error.strerror or error
                        raise JobError(
                            f"{self.folder}: cannot keep more features ({why}); "
                            "set PARTLABEL_CACHE to a larger disk"
                        ) from error
                    for one in new:
                        self.places[one] = len(self.places)

                yield append

    def maps(self) -> NDArray[Any]:
        """[n, *shape] all records, memory-mapped."""
        if not self.places:
            return np.empty((0, *self.shape), dtype=self.kind)
        shape = (len(self.places), *self.shape)
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
    """Compute the records that are missing; returns [n] the record of each picture, -1 if none.

    Args:
        contents: [n] the key of each picture's content.
        compute: pictures [B, 3, S, S] to records.
        view, number: which view; what is random in it depends on content and number alone.
        progress: is told how many of how many missing records are computed.
        broken: is told about each picture that cannot be decoded.
    """
    keys = [view_key(content, view, number) for content in contents]
    missing = np.array([i for i, one in enumerate(keys) if one not in store.places], dtype=np.int64)
    if len(missing):
        _check_room(store, len(missing))
        done = 0
        with store.appending() as append:
            missing = np.array([i for i in missing if keys[i] not in store.places], dtype=np.int64)
            parts = in_batches(missing, batch)
            for found in pictures.batches(parts, (view,), epoch=number, workers=workers):
                fresh: dict[bytes, int] = {}  # the same picture may come twice
                for i, row in enumerate(found.rows):
                    if keys[row] not in store.places:
                        fresh.setdefault(keys[row], i)
                if fresh:
                    records = compute(found.views[view])[list(fresh.values())]
                    append(list(fresh), np.ascontiguousarray(records))
                for message in found.broken.values():
                    broken(message)
                done += len(found.rows) + len(found.broken)
                progress(done, len(missing))
    return np.array([store.places.get(one, -1) for one in keys], dtype=np.int64)


def _check_room(store: MapStore, number: int) -> None:
    need, free = number * store.size, shutil.disk_usage(store.folder).free
    if need > free:
        raise JobError(
            f"{store.folder}: the features of {count(number, 'picture')} need {need / 1e9:.1f} GB, "
            f"but {free / 1e9:.1f} GB are free; set PARTLABEL_CACHE to a larger disk"
        )
