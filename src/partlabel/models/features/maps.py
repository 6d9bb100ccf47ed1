"""Maps of the frozen part of a backbone, computed once, as batches for a model."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from partlabel.base.errors import count
from partlabel.base.randomness import key, keys, uniform
from partlabel.images.batches import Inputs, Rows, in_batches
from partlabel.images.pictures import Pictures
from partlabel.models import Backbone
from partlabel.models.features.store import MapStore, content_key, fill, view_key

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Bank:
    """Which further views of pictures are kept beside the clean one.

    Args:
        pictures: so many of them, the first ones; the others are only seen as they are.
        flip: a mirrored version of each, so that the weak view is mirrored in half of the cases.
        strong: how many strong versions of each.
    """

    pictures: int = 0
    flip: bool = False
    strong: int = 0

    def views(self) -> list[tuple[str, str, int]]:
        """For each set of records the view it serves, the view it is, and its number."""
        weak = [("weak", "flip", 0)] if self.flip else []
        return weak + [("strong", "strong", number) for number in range(self.strong)]


_NO_BANK = Bank()


class CachedMaps:
    """Cached maps of some pictures, as batches for a model.

    Args:
        maps: [m, *shape] memory-mapped records in half precision.
        choices: for each view [n, k] the records of each picture to draw from; -1 if the picture is
            broken. A view that is not there is the clean one.
        ids: a name per picture, which draws depend on.
        seed: of the draws.
    """

    def __init__(
        self, maps: NDArray[Any], choices: dict[str, Places], ids: Sequence[str], seed: int = 0
    ) -> None:
        self.maps, self.choices, self.seed = maps, choices, seed
        self.id_keys = keys(ids)
        self.transform: Callable[[Tensor], Tensor] | None = None
        self.kept: Tensor | None = None

    def apply(self, transform: Callable[[Tensor], Tensor], *, in_memory: bool) -> None:
        """Give out what ``transform`` makes of maps; perhaps computed at once, and kept."""
        self.transform = transform
        if in_memory:
            used = self._used_places()
            parts = [transform(self._read(part)) for part in in_batches(used, 256)]
            self.kept = torch.cat(parts) if parts else None
            self.index = np.zeros(len(self.maps) + 1, dtype=np.int64)
            self.index[used] = np.arange(len(used))

    @property
    def used(self) -> int:
        """How many records there are to draw from."""
        return len(self._used_places())

    def _used_places(self) -> Places:
        every = np.concatenate([places.ravel() for places in self.choices.values()])
        return np.unique(every[every >= 0])

    def _read(self, places: Places) -> Tensor:
        return torch.from_numpy(np.asarray(self.maps[places])).float()

    def _draw(self, view: str, rows: Rows, epoch: int) -> Places:
        """The record of each row that serves as this view in this epoch."""
        choices = self.choices.get(view, self.choices["clean"])[rows]
        if choices.shape[1] == 1:
            return np.asarray(choices[:, 0])
        draw = uniform(key(self.seed, "view bank", view, epoch), self.id_keys[rows])
        column = (draw * choices.shape[1]).astype(np.int64)
        return np.asarray(np.take_along_axis(choices, column[:, None], axis=1)[:, 0])

    def give(self, places: Places) -> Tensor:
        """What a model sees of these records."""
        if self.kept is not None:
            return self.kept[torch.from_numpy(self.index[places])].float()
        maps = self._read(places)
        return maps if self.transform is None else self.transform(maps).float()

    def batches(
        self, rows: Sequence[Rows], views: tuple[str, ...], epoch: int = 0, workers: int = 0
    ) -> Iterator[Inputs]:
        """The inputs of these batches of rows."""
        for part in rows:
            good = part[self.choices["clean"][part, 0] >= 0]
            found: dict[str, Tensor] = {}
            for view in views:
                found[view] = self.give(self._draw(view, good, epoch))
            yield Inputs(good, found)


def cached_maps(
    backbone: Backbone,
    name: str,
    pictures: Pictures,
    cache: Path,
    *,
    bank: Bank = _NO_BANK,
    workers: int = 0,
    progress: Callable[[int, int], object] = lambda done, total: None,
    broken: Callable[[str], object] = lambda message: None,
    told: Callable[[str], object] = lambda message: None,
) -> CachedMaps:
    """The maps of the frozen part of ``backbone`` for all pictures; missing ones are computed.

    Args:
        name: of the backbone, for people who look into the cache.
        cache: folder of all stores.
        bank: which views are kept beside the clean one.
        progress: is told how many of how many missing maps are computed.
        broken: is told about each picture that cannot be decoded.
        told: is told how large a bank becomes, before it is made.
    """
    device = next(backbone.buffers()).device
    with torch.inference_mode():
        blank = torch.zeros((1, 3, backbone.size, backbone.size), dtype=torch.uint8)
        shape = tuple(backbone.lower_maps(blank.to(device)).shape[1:])
    store = MapStore(cache / f"{name}-{_fingerprint(backbone)}", shape)
    backbone.eval()

    def compute(seen: Tensor) -> NDArray[Any]:
        with torch.inference_mode():
            return np.asarray(backbone.lower_maps(seen.to(device)).half().cpu().numpy())

    contents = [content_key(path) for path in pictures.paths]
    how: dict[str, Any] = {"workers": workers, "progress": progress}
    clean = fill(store, pictures, contents, compute, broken=broken, **how)
    choices = {"clean": [clean], "weak": [clean], "strong": []}
    first = contents[: bank.pictures]
    wanted = {view_key(one, view, number) for _, view, number in bank.views() for one in first}
    missing = len(wanted - store.places.keys())
    if missing:
        size, of_what = missing * store.size, count(missing, "further view", "further views")
        told(f"computing {of_what} of pictures, {size / 1e6:,.0f} MB in {store.folder}")
    names = [content.hex() for content in first]
    varied = Pictures(names, pictures.paths[: bank.pictures], backbone.size, seed=0)
    for serves, view, number in bank.views():
        places = clean.copy()  # a picture that is not in the bank is seen as it is
        places[: len(first)] = fill(store, varied, first, compute, view=view, number=number, **how)
        choices[serves].append(places)
    columns = {view: np.stack(each, axis=1) for view, each in choices.items() if each}
    return CachedMaps(store.maps(), columns, pictures.ids, pictures.seed)


def cache_pixels(
    pictures: Pictures,
    cache: Path,
    workers: int = 0,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> None:
    """Decode all pictures into a store on disk, and let ``pictures`` read from there."""
    store = MapStore(cache / f"pixels-{pictures.size}", (3, pictures.size, pictures.size), np.uint8)
    contents = [content_key(path) for path in pictures.paths]
    pictures.places = fill(
        store,
        pictures,
        contents,
        lambda seen: np.asarray(seen.numpy()),
        workers=workers,
        progress=progress,
    )
    pictures.decoded = store.maps()


def _fingerprint(backbone: Backbone) -> str:
    """A hash of the frozen weights, of where they end, and of the picture size."""
    digest = hashlib.blake2b(f"{backbone.size} {backbone.frozen}".encode(), digest_size=8)
    for name, value in sorted(backbone.lower.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
