"""Pictures for the page: thumbnails, made once and kept, and larger ones."""

import hashlib
import io
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from PIL import Image, ImageOps

from partlabel.base.errors import InputError, JobError
from partlabel.base.files import atomic_file
from partlabel.images.decoding import open_image, shrink
from partlabel.images.folder import ImageFiles

THUMBNAIL, LARGE = 256, 1280  # longest side in pixels


class MissingImageError(InputError):
    """An image file is gone, or cannot be decoded."""


class ReviewImages:
    """The images of a table.

    Args:
        folder: of the images; only files that are listed below it are read.
        names: the images, by row.
        cache: a folder for thumbnails.
    """

    def __init__(self, folder: Path, names: Sequence[str], cache: Path) -> None:
        self.folder, self.names, self.cache = folder, names, cache

    @cached_property
    def _paths(self) -> list[Path | None]:
        return ImageFiles(self.folder).locate(self.names)

    def path(self, row: int) -> Path:
        """The file of an image."""
        path = self._paths[row]
        if path is None or not path.is_file():
            raise MissingImageError(f"{self.names[row]}: the file is not in {self.folder} any more")
        return path

    def thumbnail(self, row: int) -> bytes:
        """A small JPEG, from the cache if it was made before."""
        path = self.path(row)
        status = path.stat()
        about = f"{path}\0{status.st_mtime_ns}\0{status.st_size}\0{THUMBNAIL}"
        name = hashlib.blake2b(about.encode(errors="surrogateescape"), digest_size=16).hexdigest()
        kept = self.cache / name[:2] / f"{name}.jpg"
        try:
            return kept.read_bytes()
        except OSError:
            content = self._jpeg(path, row, THUMBNAIL)
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(kept) as stream:
                stream.write(content)
        except (OSError, JobError, InputError):
            pass  # without a cache it is made again; a full disk must not hide the picture
        return content

    def large(self, row: int) -> bytes:
        """A JPEG that fills a window."""
        return self._jpeg(self.path(row), row, LARGE)

    def _jpeg(self, path: Path, row: int, size: int) -> bytes:
        try:
            with open_image(path) as image:
                image.draft("RGB", (2 * size, 2 * size))
                upright = ImageOps.exif_transpose(shrink(image, size))
                upright.thumbnail((size, size), Image.Resampling.BICUBIC)
                stream = io.BytesIO()
                upright.convert("RGB").save(stream, format="JPEG", quality=88)
                return stream.getvalue()
        except InputError:
            raise
        except Exception as error:  # decoders raise almost any exception for damaged files
            reason = str(error) or type(error).__name__
            raise MissingImageError(f"{self.names[row]}: cannot be decoded ({reason})") from error
