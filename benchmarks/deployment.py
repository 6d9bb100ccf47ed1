"""An exported model beside predict: how far probabilities differ, and what decoding costs.

    python -m benchmarks.deployment RUN PHOTOS

The photos are used as they are, enlarged, and reduced; all are JPEG files. The ONNX file gets whole
images, decoded by Pillow, or images that Pillow has also resized. A program may save time by
decoding a JPEG at a smaller size: the last columns show what that costs.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image

from benchmarks.report import machine
from partlabel import export, load, predict
from partlabel.images.folder import ImageFiles
from partlabel.images.pictures import read_picture
from partlabel.output.bench.sheets import Sheet, markdown

WIDTHS: tuple[int | None, ...] = (None, 160, 640, 1600, 4000)  # None: as they are


def prepare(photos: list[Path], width: int | None, folder: Path, seed: int = 0) -> list[Path]:
    """The photos as JPEG files of this width, with noise if enlarged, as cameras add it."""
    files, generator = [], np.random.default_rng(seed)
    for number, photo in enumerate(photos):
        image = Image.open(photo).convert("RGB")
        if width is not None:
            size = width, max(round(width * image.height / image.width), 1)
            enlarged = width > image.width
            image = image.resize(size, Image.Resampling.BICUBIC)
            if enlarged:
                noise = generator.normal(0, 6, (*image.size[::-1], 3))
                rough = (np.asarray(image) + noise).clip(0, 255)
                image = Image.fromarray(rough.astype(np.uint8))
        files.append(folder / f"{width}-{number}.jpg")
        image.save(files[-1], quality=90)
    return files


def whole(path: Path) -> NDArray[np.uint8]:
    """All pixels of an image."""
    return np.asarray(Image.open(path).convert("RGB"))


def drafted(path: Path, size: int) -> NDArray[np.uint8]:
    """A JPEG decoded at the smallest size that is large enough."""
    image = Image.open(path)
    image.draft("RGB", (size, size))
    return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC))


def squashed(path: Path, size: int) -> NDArray[np.uint8]:
    """A whole image, resized by Pillow."""
    image = Image.open(path).convert("RGB")
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC))


def seconds(work: Callable[[Path], Any], files: list[Path]) -> float:
    """CPU time per file."""
    start = time.process_time()
    for file in files:
        work(file)
    return (time.process_time() - start) / len(files)


def _differences(some: NDArray[Any], others: NDArray[Any]) -> str:
    """The largest difference, and the one that 99% are below."""
    apart = np.abs(some - others)
    return f"{apart.max():.1g}, {np.quantile(apart, 0.99):.1g}"


def main() -> None:
    """Compare and measure, for each width."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("run", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--count", type=int, default=60)
    options = parser.parse_args()
    found = ImageFiles(options.photos)
    photos = [found.at(name) for name in found.names]
    photos = photos[:: max(len(photos) // options.count, 1)][: options.count]
    size = load(options.run).backbone.size
    print(machine())
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export(options.run, folder / "model.onnx", "onnx", tested=False)
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"))

        def answer(pixels: NDArray[np.uint8]) -> list[NDArray[Any]]:
            result: list[NDArray[Any]] = session.run(None, {"pixels": pixels[None]})
            return result

        for width in WIDTHS:
            files = prepare(photos, width, folder)
            table = predict(options.run, files)
            wanted = table.cells.scores_or_nan().reshape(table.shape)
            raw = [answer(whole(file)) for file in files]
            given, labels = (np.concatenate([one[part] for one in raw]) for part in (0, 1))
            resized = np.concatenate([answer(squashed(file, size))[0] for file in files])
            smaller = np.concatenate([answer(drafted(file, size))[0] for file in files])
            rows.append(
                [
                    "as they are" if width is None else f"{width:,}",
                    _differences(given, wanted),
                    _differences(resized, wanted),
                    _differences(smaller, wanted),
                    f"{int((labels != table.dense()).sum())} of {labels.size:,}",
                    f"{1000 * seconds(lambda file: read_picture(file, size), files):.1f}",
                    f"{1000 * seconds(lambda file: drafted(file, size), files):.1f}",
                ]
            )
    header = [
        "width",
        "whole images",
        "resized by Pillow",
        "decoded at the size needed",
        "other labels",
        "ms of predict",
        "ms at the size needed",
    ]
    print(markdown(Sheet(header, rows)))


if __name__ == "__main__":
    main()
