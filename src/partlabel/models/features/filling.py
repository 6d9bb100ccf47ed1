"""Compute the records of images that a store does not have yet."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base import processes
from partlabel.base.errors import InputError, JobError, count, data_size
from partlabel.images.batches import Inputs, Rows, in_batches
from partlabel.images.pictures import Pictures
from partlabel.models.features.housekeeping import make_room
from partlabel.models.features.store import MapStore, view_key

Compute = Callable[[Tensor], NDArray[Any]]
Append = Callable[[Sequence[bytes], NDArray[Any]], None]


def fill(
    store: MapStore,
    pictures: Pictures,
    contents: Sequence[bytes],
    compute: Compute,
    *,
    view: str = "clean",
    number: int = 0,
    batch: int = 32,
    workers: int | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
    broken: Callable[[str], object] = lambda message: None,
) -> Rows:
    """Compute the records that are missing.

    Several processes take turns with the batches. The first one stores the records of all.

    Args:
        store: where to add the records.
        pictures: n images.
        contents: [n] content hash of each image.
        compute: images [B, 3, S, S] to records [B, *shape].
        view, number: which view, and the number that selects one of its random versions.
        batch: images per batch.
        workers: processes that decode images; 0 to decode in this process, None to choose.
        progress: called with the number of records computed so far and the number missing.
        broken: called with a message for each image that cannot be decoded.

    Returns:
        [n] index of the record of each image, -1 for a broken image.
    """
    keys = [view_key(content, view, number) for content in contents]
    if not processes.from_first(any(key not in store.index for key in keys)):
        return _seen_by_all(store, keys)
    messages: list[str] = []
    if processes.is_first():
        missing = sum(key not in store.index for key in keys)
        make_room(store.folder, missing * store.size)
        _check_disk_space(store, missing)
    with store.appending() if processes.is_first() else nullcontext(_append_nothing) as append:
        processes.wait_for_all()  # another command may hold the store for hours
        needed = [i for i, key in enumerate(keys) if key not in store.index]
        rows, done = processes.from_first(np.array(needed, dtype=np.int64)), 0

        def computed(inputs: Inputs) -> _Computed:
            new: dict[bytes, int] = {}  # two files may have the same content
            for i, row in enumerate(inputs.rows):
                if keys[row] not in store.index:
                    new.setdefault(keys[row], i)
            records = compute(inputs.views[view])[list(new.values())] if new else None
            images = len(inputs.rows) + len(inputs.broken)
            return _Computed(list(new), records, list(inputs.broken.values()), images)

        batches = in_batches(rows, batch)
        own = pictures.batches(
            batches[processes.rank() :: processes.size()], (view,), number, workers
        )
        for _ in range(0, len(batches), processes.size()):
            inputs = next(own, None)
            for part in processes.collect(None if inputs is None else computed(inputs)):
                if part is None:
                    continue
                part.store_in(store, append)
                messages += part.broken
                done += part.images
                progress(done, len(rows))
    for message in processes.from_first(messages):
        broken(message)
    return _seen_by_all(store, keys)


@dataclass(frozen=True)
class _Computed:
    """The records of a batch by their keys, and messages of images that are broken."""

    keys: list[bytes]
    records: NDArray[Any] | None
    broken: list[str]
    images: int

    def store_in(self, store: MapStore, append: Append) -> None:
        """Append the records; another process may have computed some of them too."""
        new = [i for i, key in enumerate(self.keys) if key not in store.index]
        if new and self.records is not None:
            append([self.keys[i] for i in new], np.ascontiguousarray(self.records[new]))


def _append_nothing(keys: Sequence[bytes], records: NDArray[Any]) -> None:
    raise AssertionError("only the first process stores records")


def _seen_by_all(store: MapStore, keys: Sequence[bytes]) -> Rows:
    """[n] index of the record of each key; it is an error if a process does not see them."""
    if not processes.is_first():
        store.read_index()
    places = np.array([store.index.get(key, -1) for key in keys], dtype=np.int64)
    sees_all = np.array_equal(processes.from_first(places), places)
    blind = [str(who) for who, sees in enumerate(processes.exchange(sees_all)) if not sees]
    if blind:
        raise InputError(
            f"{store.folder}: process {' and '.join(blind)} does not see the features that process "
            "0 stores here; name a folder that all see, with --cache or PARTLABEL_CACHE"
        )
    return places


def _check_disk_space(store: MapStore, number: int) -> None:
    need, free = number * store.size, shutil.disk_usage(store.folder).free
    if need > free:
        raise JobError(
            f"{store.folder}: the features of {count(number, 'image')} need {data_size(need)}, "
            f"but {data_size(free)} are free; set PARTLABEL_CACHE to a larger disk"
        )
