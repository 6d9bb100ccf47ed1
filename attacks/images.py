"""Hostile image files: an error that names the file, no process, and bounded memory and time."""

import io
import os
import struct
import subprocess
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from PIL import Image

from attacks.harness import Failure, command, make_scene, training
from attacks.mutations import mutate

COUNT = 1_000
ATTACKS = "images"
LIMIT = 60
MEMORY = 3 << 30
SECONDS = 30  # of CPU

_FORMS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
_OTHERS = ("PPM", "ICO", "TGA", "PCX", "SGI", "PDF", "EPS", "JPEG2000", "DDS", "ICNS", "MPO")
_TEXTS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(x) print\nshowpage\n",
    b"%PDF-1.4\n1 0 obj <</Type /Catalog>> endobj\ntrailer <</Root 1 0 R>>\n",
    b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    b"#!/bin/sh\ntouch pwned\n",
    b"push graphic-context\nimage over 0,0 0,0 '|touch pwned'\npop graphic-context\n",
    b"",
)
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".JPG")


@dataclass(frozen=True)
class Shared:
    """A run to predict with, and small images of each format."""

    run: Path
    samples: list[bytes]


def prepare(folder: Path) -> Shared:
    """Train, and draw images of several modes in all formats that Pillow can write."""
    run = folder / "run"
    command(*training(make_scene(folder), run, "--method", "bce", "--epochs", "1")).check((0,))
    samples = []
    for form in (*_FORMS, *_OTHERS):
        for mode in ("RGB", "L", "P", "RGBA", "CMYK", "I;16", "1"):
            stream = io.BytesIO()
            try:
                Image.linear_gradient("L").resize((24, 16)).convert(mode).save(stream, form)
            except (OSError, ValueError, KeyError):
                continue
            samples.append(stream.getvalue())
    frames = [Image.new("L", (8, 8), shade) for shade in range(0, 200, 10)]
    for form in ("GIF", "TIFF", "WEBP", "PNG"):
        stream = io.BytesIO()
        frames[0].save(stream, form, save_all=True, append_images=frames[1:])
        samples.append(stream.getvalue())
    return Shared(run, samples)


def _declared(rng: Random) -> bytes:
    """A small file whose header declares very many pixels."""
    width, height = (rng.choice((0, 1, 65_535, 30_000, 2**31 - 1)) for _ in range(2))
    match rng.randrange(4):
        case 0:
            header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
            packed = zlib.compress(bytes(rng.choice((0, 10, 10**7))))
            chunks = ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b""))
            return b"\x89PNG\r\n\x1a\n" + b"".join(
                struct.pack(">I", len(data))
                + kind
                + data
                + struct.pack(">I", zlib.crc32(kind + data))
                for kind, data in chunks
            )
        case 1:
            return (
                b"GIF89a"
                + struct.pack("<HHBBB", width % 65536, height % 65536, 0x80, 0, 0)
                + bytes(50)
            )
        case 2:
            height *= rng.choice((1, -1))
            sizes = struct.pack("<IHHIIiiHH", 54, 0, 0, 54, 40, width, height, 1, 24)
            return b"BM" + sizes + bytes(24)
        case _:
            tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (262, 3, 1), (273, 4, 8)]
            tags += [(259, 3, rng.choice((1, 5, 8))), (278, 4, height), (279, 4, 2**31)]
            entries = b"".join(
                struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags
            )
            return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)


def _write(path: Path, shared: Shared, rng: Random) -> None:
    match rng.randrange(20):
        case 0:
            os.mkfifo(path)
        case 1:
            path.symlink_to(rng.choice(("/dev/zero", "/dev/full", "/dev/random", "/nowhere", path)))
        case 2:
            path.mkdir()
        case 3:
            path.write_bytes(rng.choice(_TEXTS))
        case 4 | 5 | 6:
            path.write_bytes(_declared(rng))
        case 7:
            path.write_bytes(rng.choice(shared.samples))
            path.chmod(0)
        case 8 | 9 | 10:
            content = rng.choice(shared.samples)
            path.write_bytes(content[: rng.randrange(len(content))])
        case _:
            path.write_bytes(mutate(rng.choice(shared.samples), rng))


def _write_shard(images: Path, folder: Path, rng: Random) -> Path:
    """The regular files of a folder as an archive or a Parquet file, half of the time damaged."""
    files = [path for path in images.iterdir() if path.is_file() and not path.is_symlink()]
    if rng.random() < 0.5:
        shard = folder / "shard.tar"
        with tarfile.open(shard, "w") as archive:
            for path in files:
                archive.add(path, rng.choice(("", "/", "../../")) + path.name)
    else:
        shard = folder / "shard.parquet"
        rows = [{"bytes": path.read_bytes(), "path": path.name} for path in files]
        groups = rng.choice((1, 3, 100))
        pyarrow.parquet.write_table(pa.table({"image": rows}), shard, row_group_size=groups)
    if rng.random() < 0.5:
        shard.write_bytes(mutate(shard.read_bytes(), rng))
    return shard


def _no_process() -> None:
    """Starting any process is a failure."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    subprocess.Popen.__init__ = refuse  # type: ignore[method-assign]
    os.system = os.posix_spawn = os.execve = refuse  # type: ignore[assignment]


def attack(shared: Shared, folder: Path, rng: Random) -> int:
    """A folder of ten hostile images, and one good one."""
    images = folder / "images"
    images.mkdir()
    for number in range(10):
        _write(images / f"{number}{rng.choice(_SUFFIXES)}", shared, rng)
    Image.new("RGB", (20, 20), "red").save(images / "good.png")
    names = [path.name for path in images.iterdir()]
    labels = folder / "labels.csv"
    labels.write_text("image,cat\n" + "".join(f"{name},1\n" for name in names))
    limits: dict[str, Any] = {"seconds": SECONDS, "memory": MEMORY, "before": _no_process}
    what = rng.choice(("inspect", "predict", "one", "shard"))
    if what == "inspect":
        command("inspect", labels, "--images", images, **limits).check((0,))
    elif what == "shard":
        shard = _write_shard(images, folder, rng)
        command("inspect", labels, "--images", shard, **limits).check((0, 2), str(shard))
        outcome = command("predict", shared.run, shard, "-o", folder / "out.csv", **limits)
        outcome.check((0, 1, 2), str(shard))
    elif what == "predict":
        outcome = command("predict", shared.run, images, "-o", folder / "out.csv", **limits)
        outcome.check((0, 1, 2), str(images))
    else:
        path = images / rng.choice(names)
        outcome = command("predict", shared.run, path, "-o", folder / "out.csv", **limits)
        outcome.check((0, 1, 2), str(path), "there are no images to predict")  # in a folder
    if (folder / "pwned").exists() or Path("pwned").exists():
        raise Failure("a file was executed")
    return 10
