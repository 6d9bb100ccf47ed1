"""Decoding images: one at a time, or as a dataset of batches."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from partlabel.base.errors import InputError, PartlabelError
from partlabel.base.launch import on_this_computer
from partlabel.images.batches import Inputs, Rows
from partlabel.images.decoding import Picture, named_warnings, open_image
from partlabel.images.stored import ImageFile
from partlabel.images.views import view_of

_FEW_IMAGES = 256


class BrokenPictureError(PartlabelError):
    """An image that cannot be decoded."""


def read_picture(
    picture: Picture, size: int, interpolation: str = "bicubic", name: str | None = None
) -> Tensor:
    """Decode an image as upright RGB [3, size, size] in uint8, resized to a square.

    The aspect ratio is not kept, and nothing is cropped. Transparent pixels become white, 16-bit
    images keep their upper 8 bits, and an animation gives its first frame. A large JPEG is decoded
    whole: at a smaller size it would take half the time, but other programs, which decode it whole,
    would get other scores from an exported model.

    Args:
        picture: where it is stored, its content, or pixels.
        name: of a content or of pixels in errors; others have a name of their own.
    """
    with named_warnings():
        return _read_picture(picture, size, interpolation, name)


def _read_picture(
    picture: Picture, size: int, interpolation: str, name: str | None = None
) -> Tensor:
    """As :func:`read_picture`, also in a thread; the caller gives warnings their names."""
    try:
        with open_image(picture) as image:
            upright = ImageOps.exif_transpose(image)
            rgb = _to_rgb(upright).resize((size, size), _resampling(interpolation))
    except InputError:  # of a setting, not of this image
        raise
    except Exception as error:  # decoders raise almost any exception for damaged files
        shown = picture if isinstance(picture, ImageFile) else name
        raise BrokenPictureError(f"{shown}: {error or type(error).__name__}") from error
    return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def _resampling(interpolation: str) -> Image.Resampling:
    """Pillow's filter for a name; bicubic for a name that it does not have."""
    return getattr(Image.Resampling, interpolation.upper(), Image.Resampling.BICUBIC)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode == "I":
        sixteen_bit = np.asarray(image).astype(np.int64)
        return Image.fromarray((sixteen_bit >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        return Image.fromarray(np.asarray(image).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        transparent = image.convert("RGBA")
        white = Image.new("RGBA", transparent.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, transparent).convert("RGB")
    return image.convert("RGB")


def choose_workers(images: int, views: Sequence[str]) -> int:
    """Number of processes that decode images while the network computes.

    None for a few images, for which starting processes takes longer than decoding. None if the
    network computes on the CPU too: both would wait for each other's cores, and it is faster that
    all cores decode a batch and then all compute. Strong views, which threads cannot make, are the
    exception. Otherwise one less than there are cores, at most 8.
    """
    if images < _FEW_IMAGES or not (torch.accelerator.is_available() or "strong" in views):
        return 0
    return min(_cores() - 1, 8)


def _cores() -> int:
    """The cores of this process; several that torchrun started share those of the computer."""
    return max(1, len(os.sched_getaffinity(0)) // on_this_computer())


class DecodedImages(Protocol):
    """Images that are decoded already, read on demand."""

    def read(self, records: Rows) -> NDArray[Any]:
        """[b, 3, size, size] these images [b]."""


class Pictures(Dataset[Inputs]):
    """Batches of images, decoded on demand.

    Args:
        ids: a name per row; random views depend on it.
        paths: where the image of each row is stored.
        size: width and height in pixels.
        seed: seed of the random views.
        interpolation: how images are resized: bicubic, bilinear, or another filter of Pillow.

    Attributes:
        decoded: images that are decoded already; None if there are none.
        places: [n] the index of each row in ``decoded``, -1 for a row that is not there.
    """

    def __init__(
        self,
        ids: Sequence[str],
        paths: Sequence[ImageFile],
        size: int,
        seed: int,
        interpolation: str = "bicubic",
    ) -> None:
        self.ids, self.paths, self.size, self.seed = ids, paths, size, seed
        self.interpolation = interpolation
        self.decoded: DecodedImages | None = None
        self.places: Rows = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.paths)

    def _picture(self, row: int) -> Tensor:
        if self.decoded is not None and self.places[row] >= 0:
            return torch.from_numpy(self.decoded.read(self.places[[row]])[0])
        return _read_picture(self.paths[row], self.size, self.interpolation)

    def _picture_or_error(self, row: int) -> Tensor | BrokenPictureError:
        try:
            return self._picture(row)
        except BrokenPictureError as error:
            return error

    def _decode(self, rows: list[int]) -> list[Tensor | BrokenPictureError]:
        """The images of these rows; all cores decode, unless other processes do the same."""
        threads = min(_cores(), len(rows)) if get_worker_info() is None else 1
        with named_warnings():
            if threads < 2:
                return [self._picture_or_error(row) for row in rows]
            with ThreadPoolExecutor(threads) as pool:
                return list(pool.map(self._picture_or_error, rows))

    def __getitem__(self, request: "tuple[Rows, tuple[str, ...], int]") -> Inputs:
        """The inputs for one batch; a request is the rows, the views and the epoch."""
        rows, views, epoch = request
        pictures: dict[str, list[Tensor]] = {view: [] for view in views}
        decoded_rows: list[int] = []
        broken: dict[int, str] = {}
        for row, picture in zip(rows.tolist(), self._decode(rows.tolist()), strict=True):
            if isinstance(picture, BrokenPictureError):
                broken[row] = str(picture)
                continue
            decoded_rows.append(row)
            for view in views:
                pictures[view].append(view_of(picture, view, self.seed, epoch, self.ids[row]))
        empty = torch.empty((0, 3, self.size, self.size), dtype=torch.uint8)
        stacked = {view: torch.stack(p) if p else empty for view, p in pictures.items()}
        return Inputs(np.array(decoded_rows, dtype=np.int64), stacked, broken)

    def batches(
        self,
        rows: Sequence[Rows],
        views: tuple[str, ...],
        epoch: int = 0,
        workers: int | None = None,
    ) -> Iterator[Inputs]:
        """The inputs for these batches of rows, in this order.

        Either all cores decode a batch when it is due, or other processes decode the next batches
        while the caller uses one.

        Args:
            workers: number of these processes; 0 to decode in this one, None to choose.
        """
        if workers is None:
            images = sum(map(len, rows)) if self.decoded is None else 0
            workers = choose_workers(images, views)
        requests = [(batch_rows, views, epoch) for batch_rows in rows]
        loader: DataLoader[Any] = DataLoader(
            self,
            batch_size=None,
            sampler=requests,
            num_workers=workers,
            prefetch_factor=2 if workers else None,
        )
        return iter(loader)


class GivenPictures(Pictures):
    """Batches of images that may be in memory.

    Args:
        pictures: where they are stored, contents of files, or pixels.
        size, interpolation: as in :class:`Pictures`.
    """

    def __init__(self, pictures: Sequence[Picture], size: int, interpolation: str) -> None:
        super().__init__([f"image {row}" for row in range(len(pictures))], [], size, 0)
        self.pictures, self.interpolation = pictures, interpolation

    def __len__(self) -> int:
        return len(self.pictures)

    def _picture(self, row: int) -> Tensor:
        return _read_picture(self.pictures[row], self.size, self.interpolation, self.ids[row])
