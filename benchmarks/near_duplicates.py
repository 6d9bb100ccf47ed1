"""Which copies of photos are found by their features, and how many different photos look alike.

    python -m benchmarks.near_duplicates voc/images coco18/images

For 120 photos of each folder, prints the share of changed copies whose features are similar enough
to count as near-duplicates; then all groups of near-duplicates in the folder.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from partlabel.images.folder import ImageFiles
from partlabel.images.pictures import Pictures
from partlabel.models import make_backbone
from partlabel.models.features import cached_maps, default_cache
from partlabel.training.near_duplicates import SIMILAR, similar_images

Change = Callable[[Image.Image], Image.Image]
Floats = NDArray[np.float32]

COPIES = 120
RANDOM = np.random.default_rng(0)


def cut(share: float) -> Change:
    """A random part of an image, with this share of its area."""

    def change(image: Image.Image) -> Image.Image:
        width, height = (int(side * share**0.5) for side in image.size)
        left = int(RANDOM.integers(0, image.width - width + 1))
        top = int(RANDOM.integers(0, image.height - height + 1))
        return image.crop((left, top, left + width, top + height))

    return change


CHANGES: dict[str, tuple[Change, int]] = {  # and the quality that the copy is saved with
    "mirrored": (lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), 85),
    "JPEG quality 50": (lambda image: image, 50),
    "cut to 90% of the area": (cut(0.9), 85),
    "30% brighter": (lambda image: ImageEnhance.Brightness(image).enhance(1.3), 85),
    "cut to 80% of the area": (cut(0.8), 85),
    "60% of the width and height": (
        lambda image: image.resize((image.width * 6 // 10, image.height * 6 // 10)),
        85,
    ),
    "rotated by 5 degrees": (lambda image: image.rotate(5), 85),
    "cut to 60% of the area": (cut(0.6), 85),
    "grey": (lambda image: image.convert("L").convert("RGB"), 85),
}


def features_of(paths: list[Path], cache: Path) -> Floats:
    """The mean features [n, D] of image files."""
    backbone = make_backbone("tf_efficientnet_lite0", "imagenet", "all", 224, None)
    pictures = Pictures([str(path) for path in paths], paths, 224, 0, backbone.interpolation)
    maps = cached_maps(backbone, pictures, cache, pooled=True)
    rows = [np.arange(start, min(start + 256, len(paths))) for start in range(0, len(paths), 256)]
    parts = [part.views["clean"].flatten(1).numpy() for part in maps.batches(rows, ("clean",))]
    return np.concatenate(parts)


def measure(folder: Path) -> None:
    """Print what is found in a folder of images."""
    paths = [folder / name for name in sorted(ImageFiles(folder).names)]
    features = features_of(paths, default_cache())
    mean = features.mean(axis=0)
    chosen = np.linspace(0, len(paths) - 1, COPIES).astype(int)
    print(f"{folder}: {len(paths):,} images")
    with tempfile.TemporaryDirectory() as name:
        for title, (change, quality) in CHANGES.items():
            copies = [Path(name) / f"{title}-{row}.jpg" for row in chosen]
            for row, copy in zip(chosen, copies, strict=True):
                with Image.open(paths[row]) as image:
                    change(image.convert("RGB")).save(copy, quality=quality)
            pair = [part - mean for part in (features_of(copies, Path(name)), features[chosen])]
            unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in pair]
            print(f"  {title}: {np.mean((unit[0] * unit[1]).sum(axis=1) >= SIMILAR):.0%}")
    start = time.monotonic()
    groups, remark = similar_images(features)
    seconds = time.monotonic() - start
    print(f"  {groups.images} images in {groups.groups} groups, {seconds:.1f} s {remark}")
    for first in np.unique(groups.first[groups.sizes > 1]):
        print("   ", *(paths[row].name for row in np.flatnonzero(groups.first == first)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", help="folders of images")
    for one in parser.parse_args().folders:
        measure(one)
