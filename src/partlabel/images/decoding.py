"""Opening image files: only regular files, only the formats named here, only up to a size.

Images come from anywhere. A file must not reach a decoder that nobody chose (Pillow would start
Ghostscript for an EPS file), block the program (a pipe), or fill the memory (a small file can
decode to gigabytes).
"""

import io
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.images.stored import ImageFile, Member, UnreadableImageError, is_regular

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}

MAX_PIXELS = 100_000_000
"""Most pixels of an image; the environment variable PARTLABEL_MAX_PIXELS sets another limit."""

# Pillow has a limit of its own, with a warning that does not name the file. Ours takes its place.
Image.MAX_IMAGE_PIXELS = None

DECODING = 4
"""To be raised when the same file gives other pixels, so that cached features are not mixed."""

_thread = threading.local()  # its path is the image that the thread opened last

Picture = ImageFile | bytes | NDArray[np.uint8]
"""An image: where it is stored, its content, or pixels [H, W], [H, W, 3] or [H, W, 4]."""


@contextmanager
def open_image(picture: Picture) -> Iterator[Image.Image]:
    """Open an image; the pixels of a file are decoded later.

    Raises:
        UnreadableImageError: it is no regular file, or has too many pixels.
        Exception: almost any, from the decoder of a damaged file.
    """
    _thread.path = picture if isinstance(picture, ImageFile) else ""
    if isinstance(picture, np.ndarray):
        yield _from_pixels(picture)
        return
    with _decoder(picture) as image:
        width, height = image.size
        limit = max_pixels()
        if width * height > limit:
            raise UnreadableImageError(
                f"{width:,} x {height:,} pixels are more than the limit of {limit:,}; "
                "PARTLABEL_MAX_PIXELS sets another"
            )
        yield image


def _decoder(picture: ImageFile | bytes) -> Image.Image:
    """The decoder that fits the content of an image."""
    if isinstance(picture, Path):
        if not is_regular(picture):
            raise UnreadableImageError("not a regular file")
        return Image.open(picture, formats=FORMATS)
    content = picture.read() if isinstance(picture, Member) else picture
    try:
        return Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:  # it would name an object in memory
        raise UnreadableImageError("cannot identify image file") from None


def _from_pixels(pixels: NDArray[np.uint8]) -> Image.Image:
    """Pixels as an image."""
    grey_or_colour = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    if pixels.dtype != np.uint8 or not grey_or_colour or not pixels.size:
        raise UnreadableImageError(
            f"an array of {pixels.dtype} in the shape {pixels.shape} is no image; give numbers "
            "from 0 to 255 (uint8) in the shape (height, width, 3)"
        )
    return Image.fromarray(np.ascontiguousarray(pixels))


@contextmanager
def named_warnings() -> Iterator[None]:
    """Give the warnings of decoders the name of the image, also of those in threads of the block.

    The block itself must not run in a thread, because filters of warnings belong to the process.
    """
    messages: dict[tuple[str, type[Warning]], None] = {}  # each once, in order

    def note(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        kind = PartlabelWarning if issubclass(category, UserWarning) else category
        messages[f"{getattr(_thread, 'path', '')}: {message}", kind] = None

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        yield
    for text, category in messages:
        warnings.warn(text, category, stacklevel=3)


def max_pixels() -> int:
    """The most pixels that an image may have."""
    text = os.environ.get("PARTLABEL_MAX_PIXELS", "")
    if not text:
        return MAX_PIXELS
    if not text.isascii() or not text.isdigit() or not int(text):
        raise InputError(f"PARTLABEL_MAX_PIXELS is '{text}'; set a whole number above 0")
    return int(text)
