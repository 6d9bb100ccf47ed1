"""Decoding image files, one at a time or as a dataset of batches."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from partlabel.base.errors import PartlabelError
from partlabel.images.batches import Inputs, Rows
from partlabel.images.views import view_of


class BrokenPictureError(PartlabelError):
    """An image file that cannot be decoded."""


def read_picture(path: Path, size: int) -> Tensor:
    """An image as upright RGB [3, size, size] in uint8, squashed to a square.

    Transparent pixels become white; 16-bit images keep their upper bits; of an animation the first
    frame is taken.
    """
    try:
        with Image.open(path) as image:
            image.draft("RGB", (size, size))
            upright = ImageOps.exif_transpose(image)
            rgb = _to_rgb(upright).resize((size, size), Image.Resampling.BICUBIC)
    except Exception as error:  # decoders of damaged files raise almost anything
        raise BrokenPictureError(f"{path}: {error or type(error).__name__}") from error
    return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode == "I":
        wide = np.asarray(image).astype(np.int64)
        return Image.fromarray((wide >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        return Image.fromarray(np.asarray(image).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        white = Image.new("RGBA", clear.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, clear).convert("RGB")
    return image.convert("RGB")


class Pictures(Dataset[Inputs]):
    """Batches of pictures, decoded when asked for.

    Args:
        ids: a name per row, which random views depend on.
        paths: a file per row.
        size: pixels on a side.
        seed: of the random views.

    ``decoded`` may hold pictures that are decoded already, at ``places`` [n] (-1: not there).
    """

    def __init__(self, ids: Sequence[str], paths: Sequence[Path], size: int, seed: int) -> None:
        self.ids, self.paths, self.size, self.seed = ids, paths, size, seed
        self.decoded: NDArray[Any] | None = None
        self.places: Rows = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.paths)

    def _picture(self, row: int) -> Tensor:
        if self.decoded is not None and self.places[row] >= 0:
            return torch.from_numpy(np.array(self.decoded[self.places[row]]))
        return read_picture(self.paths[row], self.size)

    def __getitem__(self, order: "tuple[Rows, tuple[str, ...], int]") -> Inputs:
        rows, views, epoch = order
        found: dict[str, list[Tensor]] = {view: [] for view in views}
        kept: list[int] = []
        broken: dict[int, str] = {}
        for row in rows.tolist():
            try:
                picture = self._picture(row)
            except BrokenPictureError as error:
                broken[row] = str(error)
                continue
            kept.append(row)
            for view in views:
                seen = view_of(picture, view, self.seed, epoch, self.ids[row])
                found[view].append(seen)
        empty = torch.empty((0, 3, self.size, self.size), dtype=torch.uint8)
        stacked = {v: torch.stack(p) if p else empty for v, p in found.items()}
        return Inputs(np.array(kept, dtype=np.int64), stacked, broken)

    def batches(
        self, rows: Sequence[Rows], views: tuple[str, ...], epoch: int = 0, workers: int = 0
    ) -> Iterator[Inputs]:
        """The inputs of these batches of rows, in this order."""
        orders = [(part, views, epoch) for part in rows]
        loader: DataLoader[Any] = DataLoader(
            self,
            batch_size=None,
            sampler=orders,
            num_workers=workers,
            prefetch_factor=2 if workers else None,
        )
        return iter(loader)
