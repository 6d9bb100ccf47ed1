"""One record per image on disk: maps of the frozen part of a backbone, or decoded pixels.

A store belongs to one backbone with its weights and to one image size. The key of a record is a
hash of the content of the image and, unless it is the clean view, of the view. So the name of an
image and where it is stored do not matter, and a changed image is a new one.

store.json   shape and data type of a record
maps         the records, one after another
index        for each record its key and a checksum of its content
lock         held while records are appended
in_use       held, together with others, by each process that uses the store; its time is that of
             the last use

Records are on disk before they are in the index, so a crash loses at most the last ones. Checksums
are compared when a record is read for the first time.
"""

import fcntl
import hashlib
import json
import math
import os
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError, JobError
from partlabel.base.files import atomic_file
from partlabel.base.locks import wait_for
from partlabel.images.batches import Rows
from partlabel.images.stored import ImageFile, UnreadableImageError, read_content
from partlabel.models.features.housekeeping import IN_USE

_KINDS = ("float16", "float32", "uint8")  # data types of a record
_DIGEST = 16  # bytes of a content hash
_ENTRY = np.dtype([("key", f"V{_DIGEST}"), ("checksum", "<u4")])  # of the index
_REMOVED = bytes(_DIGEST)  # the key of a record that was found to be damaged
_UNSYNCED = 64 << 20  # bytes of records that a crash may lose
_SYNC_EVERY = 10.0  # seconds of work that a crash may lose

Entries = NDArray[Any]


def default_cache() -> Path:
    """``PARTLABEL_CACHE``, or ``partlabel`` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("PARTLABEL_CACHE") or Path(home) / "partlabel")


def content_key(image: ImageFile) -> bytes:
    """A hash of the content of an image.

    If it cannot be read, its name is hashed. Decoding then reports the error.
    """
    try:
        content = read_content(image)
    except (OSError, UnreadableImageError):
        content = b"unreadable " + os.fsencode(str(image))
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


def content_keys(images: Sequence[ImageFile]) -> list[bytes]:
    """A hash of the content of each image; several are read at a time."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(content_key, images))


def view_key(content: bytes, view: str, number: int) -> bytes:
    """The key of a view of an image. For the clean view it is the hash of the content."""
    if view == "clean":
        return content
    return hashlib.blake2b(content + f"{view} {number}".encode(), digest_size=_DIGEST).digest()


class StoredRecords:
    """The records of a store, read on demand and compared with their checksums.

    Args:
        folder: of the store, for messages.
        data: [m, *shape] memory-mapped.
        checksums: [m]
    """

    def __init__(self, folder: Path, data: NDArray[Any], checksums: NDArray[np.uint32]) -> None:
        self.folder, self.data, self.checksums = folder, data, checksums
        self.checked = np.zeros(len(data), dtype=np.bool_)

    @property
    def shape(self) -> tuple[int, ...]:
        """[m, *shape]"""
        return self.data.shape

    def __len__(self) -> int:
        return len(self.data)

    def read(self, records: Rows) -> NDArray[Any]:
        """[b, *shape] these records [b]."""
        content = np.ascontiguousarray(self.data[records])
        for position in np.flatnonzero(~self.checked[records]):
            number = int(records[position])
            if zlib.crc32(content[position]) != int(self.checksums[number]):
                raise JobError(
                    f"{self.folder}: a cached record is damaged; `partlabel cache --verify` "
                    "removes damaged records, and they are computed again when they are needed"
                )
        self.checked[records] = True
        return content


def _hold(folder: Path, *, use: bool) -> int:
    """Create the folder of a store if it does not exist, and mark it as in use.

    Another process may remove the folder at this moment; it is then created again.

    Returns:
        An open file. The store is in use until it is closed.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            mark = os.open(folder / IN_USE, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue
        fcntl.flock(mark, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(mark), (folder / IN_USE).stat()):
                if use:
                    os.utime(mark)
                return mark
        os.close(mark)


class MapStore:
    """Records of one shape and data type, each with a key.

    Args:
        folder: folder of the store; created if it does not exist.
        shape: shape of a record, such as (D, H, W).
        kind: data type: half precision for maps, single for their means, bytes for pixels.
        use: whether this counts as a use of the store, whose time decides what is removed first.
    """

    def __init__(
        self, folder: Path, shape: tuple[int, ...], kind: type = np.float16, *, use: bool = True
    ) -> None:
        self.folder, self.shape, self.kind = folder, shape, np.dtype(kind)
        self.size = math.prod(shape) * self.kind.itemsize
        try:
            weakref.finalize(self, os.close, _hold(folder, use=use))
            for name in ("maps", "index"):
                (folder / name).open("ab").close()
            if not (folder / "store.json").is_file():
                with atomic_file(folder / "store.json") as stream:
                    about = {"shape": list(shape), "kind": self.kind.name}
                    stream.write(json.dumps(about).encode())
        except OSError as error:
            raise InputError(f"{folder}: cannot store features here ({error.strerror})") from error
        self.read_index()

    def read_index(self) -> None:
        """Read the entries of complete records; of equal keys the last counts."""
        complete = (self.folder / "maps").stat().st_size // self.size
        content = (self.folder / "index").read_bytes()
        number = min(len(content) // _ENTRY.itemsize, complete)
        self.entries = np.frombuffer(content, dtype=_ENTRY, count=number)
        keys = self.entries["key"].tobytes()
        parts = (keys[i * _DIGEST : (i + 1) * _DIGEST] for i in range(number))
        self.index = {key: i for i, key in enumerate(parts) if key != _REMOVED}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with wait_for(self.folder / "lock"):
            self.read_index()
            yield

    @contextmanager
    def appending(self) -> Iterator[Callable[[Sequence[bytes], NDArray[Any]], None]]:
        """A context with a function that appends records; only one process can be inside."""
        with self._locked():
            maps, index = ((self.folder / name).open("r+b") for name in ("maps", "index"))
            with maps, index:
                number = len(self.entries)
                maps.truncate(number * self.size)
                index.truncate(number * _ENTRY.itemsize)
                maps.seek(0, os.SEEK_END)
                index.seek(0, os.SEEK_END)
                waiting: list[bytes] = []  # entries of records that may not be on disk yet
                synced_at = time.monotonic()

                def sync() -> None:
                    nonlocal synced_at
                    maps.flush()
                    os.fdatasync(maps.fileno())
                    index.write(b"".join(waiting))
                    index.flush()
                    waiting.clear()
                    synced_at = time.monotonic()

                def append(keys: Sequence[bytes], records: NDArray[Any]) -> None:
                    nonlocal number
                    with self._storing():
                        maps.write(records.tobytes())
                        for key, record in zip(keys, records, strict=True):
                            checksum = zlib.crc32(record.tobytes())
                            waiting.append(key + checksum.to_bytes(4, "little"))
                            self.index[key] = number
                            number += 1
                        is_late = time.monotonic() - synced_at > _SYNC_EVERY
                        if is_late or len(waiting) * self.size > _UNSYNCED:
                            sync()

                try:
                    yield append
                finally:
                    with self._storing():
                        sync()
            self.read_index()

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or error
            raise JobError(
                f"{self.folder}: cannot store more features ({why}); "
                "set PARTLABEL_CACHE to a larger disk"
            ) from error

    def maps(self) -> StoredRecords:
        """All records, memory-mapped."""
        number = len(self.entries)
        if not number:
            empty = np.empty((0, *self.shape), dtype=self.kind)
            return StoredRecords(self.folder, empty, np.empty(0, dtype=np.uint32))
        shape = (number, *self.shape)
        data = np.memmap(self.folder / "maps", dtype=self.kind, mode="r", shape=shape)
        return StoredRecords(self.folder, data, self.entries["checksum"])

    def remove_damaged(self) -> int:
        """Compare all records with their checksums, remove the damaged ones, and count them."""
        damaged = 0
        with self._locked():
            records = self.maps()
            with (self.folder / "index").open("r+b") as index:
                for number in self.index.values():
                    try:
                        records.read(np.array([number]))
                    except JobError:
                        index.seek(number * _ENTRY.itemsize)
                        index.write(_REMOVED)
                        damaged += 1
            self.read_index()
        return damaged


def open_store(folder: Path, *, use: bool = True) -> MapStore:
    """A store that exists already; ``use`` as for :class:`MapStore`."""
    path = folder / "store.json"
    try:
        about = json.loads(path.read_bytes())
        shape = tuple(int(size) for size in about["shape"])
        if not shape or min(shape) < 1 or about["kind"] not in _KINDS:
            raise ValueError("another shape or data type than those of a store")
        return MapStore(folder, shape, np.dtype(about["kind"]).type, use=use)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: not a store of features ({error})") from error
