"""Batches of cached maps, which replace images as the input of a model."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base.errors import count, data_size
from partlabel.base.randomness import key, keys, uniform
from partlabel.images.batches import Inputs, Rows, in_batches
from partlabel.images.decoding import DECODING
from partlabel.images.pictures import Pictures
from partlabel.models import Backbone
from partlabel.models.features.filling import fill
from partlabel.models.features.records import RecordSource, join_records
from partlabel.models.features.store import MapStore, content_keys, view_key

Records = NDArray[np.int64]

_LARGEST = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Bank:
    """Which views of images are cached in addition to the clean one.

    Args:
        pictures: number of images with additional views, counted from the first. All other images
            have only the clean view.
        flip: whether to cache a mirrored version. The weak view is then mirrored half of the time.
        strong: number of strong versions per image.
    """

    pictures: int = 0
    flip: bool = False
    strong: int = 0

    def views(self) -> list[tuple[str, str, int]]:
        """For each additional version: the view it is drawn for, its kind, and its number."""
        weak = [("weak", "flip", 0)] if self.flip else []
        return weak + [("strong", "strong", number) for number in range(self.strong)]


_NO_BANK = Bank()


class CachedMaps:
    """Cached maps of n images, as batches for a model.

    Args:
        maps: m records, read on demand.
        choices: for each view the records [n, k] of each image to draw from, -1 for a broken image.
            A view that is missing here is the same as the clean view.
        ids: [n] names of the images. Random draws depend on them.
        seed: seed of the draws.
    """

    def __init__(
        self, maps: RecordSource, choices: dict[str, Records], ids: Sequence[str], seed: int = 0
    ) -> None:
        self.maps, self.choices, self.seed = maps, choices, seed
        self.id_keys = keys(ids)
        self.transform: Callable[[Tensor], Tensor] | None = None
        self.transformed: Tensor | None = None

    def apply(self, transform: Callable[[Tensor], Tensor], *, in_memory: bool) -> None:
        """Apply a function to all maps before a model gets them.

        Args:
            transform: maps [b, *shape] to model inputs [b, ...].
            in_memory: whether to transform all maps now and keep the results in memory.
        """
        self.transform = transform
        if in_memory:
            used = self._used_records()
            parts = [transform(self._read(part)) for part in in_batches(used, 256)]
            self.transformed = torch.cat(parts) if parts else None
            self.transformed_index = np.zeros(len(self.maps) + 1, dtype=np.int64)
            self.transformed_index[used] = np.arange(len(used))

    @property
    def used(self) -> int:
        """Number of records to draw from."""
        return len(self._used_records())

    def _used_records(self) -> Records:
        records = np.concatenate([choices.ravel() for choices in self.choices.values()])
        return np.unique(records[records >= 0])

    def _read(self, records: Records) -> Tensor:
        return torch.from_numpy(self.maps.read(records)).float()

    def _draw(self, view: str, rows: Rows, epoch: int) -> Records:
        """The record [b] of each row [b] for a view in an epoch."""
        choices = self.choices.get(view, self.choices["clean"])[rows]
        if choices.shape[1] == 1:
            return np.asarray(choices[:, 0])
        draw = uniform(key(self.seed, "view bank", view, epoch), self.id_keys[rows])
        column = (draw * choices.shape[1]).astype(np.int64)
        return np.asarray(np.take_along_axis(choices, column[:, None], axis=1)[:, 0])

    def inputs_of(self, records: Records) -> Tensor:
        """The model inputs [b, ...] of records [b]."""
        if self.transformed is not None:
            return self.transformed[torch.from_numpy(self.transformed_index[records])].float()
        maps = self._read(records)
        return maps if self.transform is None else self.transform(maps).float()

    def batches(
        self,
        rows: Sequence[Rows],
        views: tuple[str, ...],
        epoch: int = 0,
        workers: int | None = None,
    ) -> Iterator[Inputs]:
        """The inputs of batches of rows, in this order; broken images are left out."""
        for part in rows:
            readable = part[self.choices["clean"][part, 0] >= 0]
            yield Inputs(
                readable,
                {view: self.inputs_of(self._draw(view, readable, epoch)) for view in views},
            )


def cached_maps(
    backbone: Backbone,
    pictures: Pictures,
    cache: Path,
    *,
    pooled: bool = False,
    bank: Bank = _NO_BANK,
    workers: int | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
    broken: Callable[[str], object] = lambda message: None,
    on_note: Callable[[str], object] = lambda message: None,
) -> CachedMaps:
    """The maps of the frozen part of a backbone for all images. Missing ones are computed.

    Each network of a joined backbone has its own store, so that none is computed twice.

    Args:
        backbone: the network whose frozen part is cached.
        pictures: the images.
        cache: folder that holds the caches of all backbones.
        pooled: cache only the mean of each map over its positions, [D, 1, 1], in single precision.
        bank: views to cache in addition to the clean one.
        workers: processes that decode images; 0 to decode in this process, None to choose.
        progress: called with the number of maps computed so far and the number of missing maps.
        broken: called with a message for each image that cannot be decoded.
        on_note: called with messages that say how much disk the missing maps need, before they are
            computed.
    """
    backbone.eval()
    messages: dict[str, None] = {}  # each only once, though every network meets the same images
    filled = []
    for part in backbone.parts:
        store = _open_store(part, cache, pooled=pooled)
        choices = _fill_store(
            store,
            part,
            pictures,
            bank,
            pooled=pooled,
            on_note=on_note,
            broken=messages.setdefault,
            workers=workers,
            progress=progress,
        )
        filled.append((store.maps(), choices))
    for message in messages:
        broken(message)
    records, choices = join_records(filled)
    return CachedMaps(records, choices, pictures.ids, pictures.seed)


def _open_store(backbone: Backbone, cache: Path, *, pooled: bool) -> MapStore:
    """The store of a network, its weights, and the image size."""
    with torch.inference_mode():
        blank = torch.zeros((1, 3, backbone.size, backbone.size), dtype=torch.uint8)
        shape = tuple(backbone.lower_maps(blank.to(backbone.device)).shape[1:])
    name = f"{backbone.name}-{_fingerprint(backbone)}"
    if pooled:
        return MapStore(cache / f"{name}-means", (shape[0], 1, 1), np.float32)
    return MapStore(cache / name, shape)


def _fill_store(
    store: MapStore,
    backbone: Backbone,
    pictures: Pictures,
    bank: Bank,
    *,
    pooled: bool,
    on_note: Callable[[str], object],
    broken: Callable[[str], object],
    **options: Any,
) -> dict[str, Records]:
    """Compute missing records; returns for each view the records [n, k] of each image."""

    def compute(images: Tensor) -> NDArray[Any]:
        with torch.inference_mode(), backbone.autocast():
            maps = backbone.lower_maps(images.to(backbone.device)).float()
        maps = maps.clamp(-_LARGEST, _LARGEST).half().cpu().contiguous()
        if pooled:  # exactly the means of the maps that would be cached otherwise
            maps = maps.float().mean(dim=(2, 3), keepdim=True)
        return np.asarray(maps.numpy())

    contents = content_keys(pictures.paths)
    announce = partial(_announce, store, on_note)
    announce(len(set(contents) - store.index.keys()), "the features of {}", "image")
    clean = fill(store, pictures, contents, compute, broken=broken, **options)
    choices = {"clean": [clean], "weak": [clean], "strong": []}
    first = contents[: bank.pictures]
    bank_keys = {
        view_key(content, view, number) for _, view, number in bank.views() for content in first
    }
    announce(len(bank_keys - store.index.keys()), "{} of images", "additional view")
    names = [content.hex() for content in first]
    varied = Pictures(
        names, pictures.paths[: bank.pictures], backbone.size, 0, backbone.interpolation
    )
    for drawn_for, view, number in bank.views():
        records = clean.copy()  # an image that is not in the bank has only its clean view
        records[: len(first)] = fill(
            store, varied, first, compute, view=view, number=number, **options
        )
        choices[drawn_for].append(records)
    return {view: np.stack(each, axis=1) for view, each in choices.items() if each}


def _announce(
    store: MapStore, on_note: Callable[[str], object], missing: int, what: str, thing: str
) -> None:
    """Say how much disk missing records need, if there are any."""
    if missing:
        things, size = what.format(count(missing, thing)), data_size(missing * store.size)
        on_note(f"computing {things}, which takes {size} on disk, in {store.folder}")


def cache_pixels(
    pictures: Pictures,
    cache: Path,
    workers: int | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> None:
    """Decode all images into a store on disk, which ``pictures`` reads from then on.

    Args:
        pictures: the images.
        cache: folder that holds all stores.
        workers: processes that decode images; 0 to decode in this process, None to choose.
        progress: called with the number of images decoded so far and the number of missing ones.
    """
    name = f"pixels-{pictures.size}-{DECODING}"
    if pictures.interpolation != "bicubic":
        name += f"-{pictures.interpolation}"
    store = MapStore(cache / name, (3, pictures.size, pictures.size), np.uint8)
    contents = content_keys(pictures.paths)
    pictures.places = fill(
        store,
        pictures,
        contents,
        lambda images: np.asarray(images.numpy()),
        workers=workers,
        progress=progress,
    )
    pictures.decoded = store.maps()


def _fingerprint(backbone: Backbone) -> str:
    """A hash of the frozen weights and of all else that determines the maps of an image."""
    about = f"{backbone.size} {backbone.frozen} {DECODING}"
    if backbone.interpolation != "bicubic":
        about += f" {backbone.interpolation}"
    if backbone.precision != "32":
        about += f" {backbone.precision}"
    if backbone.mirror:
        about += " mirror"
    digest = hashlib.blake2b(about.encode(), digest_size=8)
    for name, value in sorted(backbone.lower.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
