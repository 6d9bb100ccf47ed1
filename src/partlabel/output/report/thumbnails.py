"""Images inside the page: thumbnails, and heat maps over images."""

import base64
import io
from collections.abc import Sequence

import matplotlib as mpl
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from partlabel.images.named_images import open_images
from partlabel.images.pictures import BrokenPictureError, read_picture
from partlabel.images.stored import ImageFile
from partlabel.training.run import Run


def thumbnails(run: Run, names: Sequence[str], size: int = 144) -> list[str]:
    """Images of a run as data addresses; empty for one that cannot be read.

    A run on features shows the images that were named, if there are any.
    """
    if not run.has_images:
        return [""] * len(names)
    paths = open_images(run.images).locate(names)
    return ["" if path is None else _thumbnail(path, size) for path in paths]


def _thumbnail(path: ImageFile, size: int) -> str:
    try:
        return data_address(read_picture(path, size))
    except BrokenPictureError:
        return ""


def data_address(pixels: Tensor) -> str:
    """An image [3, H, W] in uint8 as a data address."""
    stream = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(stream, format="JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()


def overlay(picture: Tensor, heat: Tensor) -> Tensor:
    """An image [3, S, S] in uint8, almost grey, under the colours of a heat map [H, W].

    Where the map is 0 only the image is visible, where it is 1 the colour almost covers it.
    """
    size = picture.shape[1:]
    values = interpolate(heat[None, None], size, mode="bilinear", align_corners=False)[0, 0]
    colours = mpl.colormaps["turbo"](0.3 + 0.58 * values.numpy())[..., :3]
    colour = torch.from_numpy(colours).permute(2, 0, 1).float() * 255
    pale = 0.3 * picture + 0.7 * picture.float().mean(dim=0)
    return torch.lerp(pale, colour, 0.7 * values.sqrt()).round().to(torch.uint8)
