"""Images turned upright, and much too large ones made smaller before other steps copy them."""

from collections.abc import Callable

from PIL import ExifTags, Image

Box = tuple[float, float, float, float]  # left, top, right, bottom

_METHODS = Image.Transpose
# per EXIF orientation: what turns the image, and where the point (x, y) of [w, h] then lies
_TURNS: dict[int, tuple[Image.Transpose, Callable[..., tuple[float, float]]]] = {
    2: (_METHODS.FLIP_LEFT_RIGHT, lambda x, y, w, h: (w - x, y)),
    3: (_METHODS.ROTATE_180, lambda x, y, w, h: (w - x, h - y)),
    4: (_METHODS.FLIP_TOP_BOTTOM, lambda x, y, w, h: (x, h - y)),
    5: (_METHODS.TRANSPOSE, lambda x, y, w, h: (y, x)),
    6: (_METHODS.ROTATE_270, lambda x, y, w, h: (h - y, x)),
    7: (_METHODS.TRANSVERSE, lambda x, y, w, h: (h - y, w - x)),
    8: (_METHODS.ROTATE_90, lambda x, y, w, h: (y, w - x)),
}


def upright(image: Image.Image, enough: int) -> tuple[Image.Image, Box]:
    """An image as it is to be looked at, smaller if it is much too large.

    A JPEG is decoded at a smaller size, which saves most of the time; an image of another format is
    averaged over squares. The last column and row of the smaller image may show less than a whole
    pixel. So the box must be given to ``resize``. If four times the size that is wanted is enough,
    the pixels are those that the whole image would give, but for one or two of 255 levels.

    Args:
        image: as opened, not yet decoded.
        enough: the least width and height that it must keep.

    Returns:
        The image, and the part of it that shows the whole.
    """
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    smaller, box = _shrink(image, enough)
    if orientation not in _TURNS:
        return smaller, box
    method, turn = _TURNS[orientation]
    (x0, y0), (x1, y1) = (turn(x, y, *smaller.size) for x, y in (box[:2], box[2:]))
    return smaller.transpose(method), (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))


def _shrink(image: Image.Image, enough: int) -> tuple[Image.Image, Box]:
    """An image whose shorter side is still this long, and the part of it that shows the whole."""
    drafted = image.draft("RGB", (enough, enough))
    if drafted is not None:
        return image, drafted[1]
    (width, height), factor = image.size, min(image.size) // enough
    if factor < 2 or image.mode not in ("L", "RGB", "RGBA", "CMYK", "YCbCr"):
        return image, (0, 0, width, height)
    return image.reduce(factor), (0, 0, width / factor, height / factor)
