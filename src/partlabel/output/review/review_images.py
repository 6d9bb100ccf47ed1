"""Pictures for the page: thumbnails, made once and kept, and larger ones."""

import hashlib
import io
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from PIL import Image, ImageOps

from partlabel.base.errors import InputError, JobError
from partlabel.base.files import atomic_file
from partlabel.images.decoding import open_image
from partlabel.images.named_images import open_images
from partlabel.images.stored import ImageFile, version_of

THUMBNAIL, LARGE = 256, 1280  # longest side in pixels


class MissingImageError(InputError):
    """An image file is gone, or cannot be decoded."""


class ReviewImages:
    """The images of a table.

    Args:
        folder: of the images, or shards or a list; only images that are listed there are read.
        names: the images, by row.
        cache: a folder for thumbnails.
    """

    def __init__(self, folder: Path, names: Sequence[str], cache: Path) -> None:
        self.folder, self.names, self.cache = folder, names, cache

    @cached_property
    def _located(self) -> list[ImageFile | None]:
        return open_images(self.folder).locate(self.names)

    def stored(self, row: int) -> ImageFile:
        """Where an image is stored."""
        image = self._located[row]
        if image is None or (isinstance(image, Path) and not image.is_file()):
            raise MissingImageError(f"{self.names[row]}: the file is not in {self.folder} any more")
        return image

    def thumbnail(self, row: int) -> bytes:
        """A small JPEG, from the cache if it was made before."""
        image = self.stored(row)
        try:
            about = f"{version_of(image)}\0{THUMBNAIL}"
        except OSError as error:
            raise MissingImageError(f"{self.names[row]}: {error.strerror or error}") from error
        name = hashlib.blake2b(about.encode(errors="surrogateescape"), digest_size=16).hexdigest()
        kept = self.cache / name[:2] / f"{name}.jpg"
        try:
            return kept.read_bytes()
        except OSError:
            content = self._jpeg(image, row, THUMBNAIL)
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(kept) as stream:
                stream.write(content)
        except (OSError, JobError, InputError):
            pass  # without a cache it is made again; a full disk must not hide the picture
        return content

    def large(self, row: int) -> bytes:
        """A JPEG that fills a window."""
        return self._jpeg(self.stored(row), row, LARGE)

    def _jpeg(self, stored: ImageFile, row: int, size: int) -> bytes:
        try:
            with open_image(stored) as image:
                image.draft("RGB", (2 * size, 2 * size))  # decodes a JPEG faster
                upright = ImageOps.exif_transpose(image)
                upright.thumbnail((size, size), Image.Resampling.BICUBIC)
                stream = io.BytesIO()
                upright.convert("RGB").save(stream, format="JPEG", quality=88)
                return stream.getvalue()
        except InputError:
            raise
        except Exception as error:  # decoders raise almost any exception for damaged files
            reason = str(error) or type(error).__name__
            raise MissingImageError(f"{self.names[row]}: cannot be decoded ({reason})") from error
