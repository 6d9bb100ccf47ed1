"""From image files to batches: decoded, upright, squashed, in the views that a method asks for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from partlabel.base import torchvision_shim  # noqa: F401  # before torchvision
from partlabel.base.errors import PartlabelError
from partlabel.base.randomness import key

if TYPE_CHECKING:
    from torch import nn

Rows = NDArray[np.int64]


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


def clean(picture: Tensor) -> Tensor:
    """The picture itself."""
    return picture


def flip(picture: Tensor) -> Tensor:
    """The picture, mirrored."""
    return picture.flip(-1)


def weak(picture: Tensor) -> Tensor:
    """The picture, mirrored in half of the cases."""
    return flip(picture) if torch.rand(()) < 0.5 else picture


def strong(picture: Tensor) -> Tensor:
    """RandAugment, then Cutout: a grey square of half the side at a random place."""
    from torchvision.transforms import v2

    changed: Tensor = v2.RandAugment()(weak(picture))
    size = picture.shape[-1]
    half = size // 4
    y, x = (int(torch.randint(size, ())) for _ in range(2))
    changed = changed.clone()
    changed[:, max(y - half, 0) : y + half, max(x - half, 0) : x + half] = 127
    return changed


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "clean": clean,
    "flip": flip,
    "weak": weak,
    "strong": strong,
}


def seed_generator(seed: int) -> None:
    """Seed torch's generators; what ``torch.manual_seed`` does, at a hundredth of its cost.

    That one formats a stack trace for each kind of accelerator that is not there.
    """
    torch.default_generator.manual_seed(seed)
    if torch.accelerator.is_available():
        torch.get_device_module().manual_seed_all(seed)


def view_of(picture: Tensor, view: str, *counter: object) -> Tensor:
    """A view of a picture; what is random in it depends on ``counter`` and on nothing else."""
    if view == "clean":
        return picture
    with torch.random.fork_rng(devices=[]):
        seed_generator(key("view", view, *counter))
        return VIEWS[view](picture)


@dataclass
class Batch:
    """What a method's loss sees.

    Args:
        rows: [B] the rows of the training table.
        labels: [B, C] in {-1, 0, 1}, float.
        views: for each view the inputs of the model, [B, ...].
        teacher: a running mean of the model, if the method keeps one.
    """

    rows: Tensor
    labels: Tensor
    views: dict[str, Tensor]
    teacher: "nn.Module | None" = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class Inputs:
    """The inputs of one batch, before labels join them; broken pictures are left out."""

    rows: Rows
    views: dict[str, Tensor]
    broken: dict[int, str] = field(default_factory=dict)


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


def in_batches(rows: Rows, size: int) -> list[Rows]:
    """Rows cut into batches of a size; the last may be smaller."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
