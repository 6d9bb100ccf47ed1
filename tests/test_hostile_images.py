"""Image files from anywhere: no decoder that nobody chose, no blocking, no flood, no way out."""

import os
import shutil
import subprocess
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from partlabel import LabelTable, read_labels, write_labels
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.images.folder import ImageFiles, unreadable, why_unreadable
from partlabel.images.pictures import BrokenPictureError, read_picture
from partlabel.labels.formats import Notes
from partlabel.labels.inspection import inspect

EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 8 8
(pwned) print
showpage
"""


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.new("RGB", (8, 6), "red").save(path)
    return path


def test_formats_that_nobody_named_reach_no_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An EPS file would start Ghostscript, whatever it is called."""

    def no_process(*_: object, **__: object) -> None:
        raise AssertionError("a decoder was started")

    monkeypatch.setattr(subprocess, "Popen", no_process)
    path = tmp_path / "x.jpg"
    path.write_bytes(EPS)
    assert "cannot identify" in str(why_unreadable(path))
    with pytest.raises(BrokenPictureError, match="cannot identify"):
        read_picture(path, 8)
    for form in ("PPM", "ICO", "TGA", "PCX", "SGI"):
        Image.new("RGB", (8, 8)).save(path, form)
        assert why_unreadable(path) is not None, form


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_formats_that_are_named_are_read(form: str, tmp_path: Path) -> None:
    path = tmp_path / "named-otherwise.jpg"
    Image.new("RGB", (8, 8), "blue").save(path, form)
    assert why_unreadable(path) is None
    assert read_picture(path, 8).shape == (3, 8, 8)


def test_a_link_to_itself_is_one_unreadable_image(tmp_path: Path, photo: Path) -> None:
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    assert ImageFiles(tmp_path).names == ["loop.jpg", photo.name]
    assert "symbolic links" in str(why_unreadable(tmp_path / "loop.jpg"))
    with pytest.raises(BrokenPictureError, match=r"loop\.jpg"):
        read_picture(tmp_path / "loop.jpg", 8)


def test_pipes_and_devices_are_no_images(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "zero.jpg").symlink_to("/dev/zero")
    for name in ImageFiles(tmp_path).names:
        assert why_unreadable(tmp_path / name) == "not a regular file"
        with pytest.raises(BrokenPictureError, match="not a regular file"):
            read_picture(tmp_path / name, 8)


def png(width: int, height: int) -> bytes:
    """A small file that decodes to width x height black pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return len(data).to_bytes(4, "big") + kind + data + crc.to_bytes(4, "big")

    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + width)) for _ in range(height)) + packer.flush()
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def test_images_with_too_many_pixels_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png(11_000, 10_000))
    assert path.stat().st_size < 200_000
    assert "11,000 x 10,000 pixels are more than the limit" in str(why_unreadable(path))
    monkeypatch.setenv("PARTLABEL_MAX_PIXELS", "200000000")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_picture(path, 16).shape == (3, 16, 16)
    monkeypatch.setenv("PARTLABEL_MAX_PIXELS", "many")
    with pytest.raises(InputError, match="PARTLABEL_MAX_PIXELS is 'many'"):
        read_picture(path, 16)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_large_images_are_decoded_whole(suffix: str, orientation: int, tmp_path: Path) -> None:
    """As other programs decode them, so that an exported model gets the same pixels from these."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    noise = np.random.default_rng(0).normal(0, 6, (1019, 1511, 1))
    coarse = Image.fromarray(np.random.default_rng(1).integers(0, 256, (9, 12, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((1511, 1019), Image.Resampling.BICUBIC))
    path = tmp_path / f"large.{suffix}"
    image = Image.fromarray((smooth + noise).clip(0, 255).astype(np.uint8))
    image.save(path, exif=exif, quality=95)
    with Image.open(path) as stored:
        whole = ImageOps.exif_transpose(stored).resize((32, 32), Image.Resampling.BICUBIC)
    assert np.array_equal(read_picture(path, 32).permute(1, 2, 0), np.asarray(whole))


def test_warnings_of_decoders_name_the_image(tmp_path: Path) -> None:
    """Also those of threads, and each once."""
    paths = [tmp_path / f"odd{i}.jpg" for i in range(20)]
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.new("RGB", (8, 8)).save(paths[0], exif=exif)
    content = bytearray(paths[0].read_bytes())
    entries = content.index(b"Exif") + 6 + 8  # after the name and the header
    content[entries : entries + 2] = (200).to_bytes(2)  # more than there are
    for path in paths:
        path.write_bytes(content)
    with pytest.warns(PartlabelWarning, match=r"odd0\.jpg: Corrupt EXIF data") as caught:
        read_picture(paths[0], 8)
    assert len(caught) == 1
    with pytest.warns(PartlabelWarning, match="Corrupt EXIF data") as caught:
        assert unreadable(paths) == {}
    names = sorted(str(warning.message).split(":")[0] for warning in caught)
    assert names == sorted(map(str, paths))


def test_file_names_that_are_not_text_are_kept_apart(tmp_path: Path, photo: Path) -> None:
    os.link(photo, os.fsencode(tmp_path) + b"/\xff.png")
    os.link(photo, tmp_path / "é.png")
    files = ImageFiles(tmp_path)
    assert sorted(files.names) == sorted([photo.name, "é.png"])
    assert files.undecodable == ["\\xff.png"]
    table = LabelTable(["é"], ["c"], [[1]])
    write_labels(table, tmp_path / "t.csv")
    assert set(read_labels(tmp_path / "t.csv", images=tmp_path).ids) == {"é", photo.name}
    result = inspect(table, Notes(), tmp_path)
    assert result.files is not None
    assert result.files.unmentioned == [photo.name, "\\xff.png"]


def test_no_id_leads_out_of_the_folder(tmp_path: Path, photo: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    shutil.copy(photo, folder / "in.png")
    (folder / "sub").mkdir()
    files = ImageFiles(folder)
    outside = [str(photo), "../photo.png", "sub/../../photo.png", "/etc/passwd", "x" * 5000]
    assert files.locate(outside) == [None] * 5
    assert files.locate([str(folder / "in.png"), "images/in.png", "in"]) == [folder / "in.png"] * 3


def test_links_below_the_folder_are_followed_unless_forbidden(
    tmp_path: Path, photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "images"
    elsewhere.mkdir()
    folder.mkdir()
    shutil.copy(photo, elsewhere / "a.png")
    (folder / "album").symlink_to(elsewhere)
    (folder / "again").symlink_to(elsewhere)
    (folder / "one.png").symlink_to(photo)
    (elsewhere / "loop").symlink_to(folder)
    (folder / "self").symlink_to(folder)
    names = ImageFiles(folder).names
    assert {"album/a.png", "again/a.png", "one.png"} <= set(names)
    assert len(names) < 12
    monkeypatch.setenv("PARTLABEL_NO_SYMLINKS", "1")
    assert ImageFiles(folder).names == []
