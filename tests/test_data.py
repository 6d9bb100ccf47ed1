"""Images of all formats and modes decode to upright RGB; views depend only on their counter."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from partlabel.images.batches import in_batches
from partlabel.images.pictures import BrokenPictureError, Pictures, read_picture
from partlabel.images.views import view_of

RED, SIZE = (200, 30, 40), 32


def picture() -> Image.Image:
    """An image with a red upper half and a black lower half."""
    image = Image.new("RGB", (40, 60), RED)
    image.paste((0, 0, 0), (0, 30, 40, 60))
    return image


def colours(path: Path) -> tuple[list[int], list[int]]:
    """The mean colours of the upper and the lower quarter."""
    pixels = read_picture(path, SIZE).float()
    assert pixels.shape == (3, SIZE, SIZE)
    return [
        [round(float(c)) for c in part.mean(dim=(1, 2))] for part in (pixels[:, :8], pixels[:, -8:])
    ]  # type: ignore[return-value]


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "gif", "bmp", "tiff"])
def test_file_formats(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    picture().save(path)
    upper, lower = colours(path)
    assert upper == pytest.approx(RED, abs=8)
    assert lower == pytest.approx((0, 0, 0), abs=8)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation(orientation: int, tmp_path: Path) -> None:
    undo = {
        1: None, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_270,
    }[orientation]  # fmt: skip
    stored = picture() if undo is None else picture().transpose(undo)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "a.jpg", exif=exif)
    upper, lower = colours(tmp_path / "a.jpg")
    assert upper == pytest.approx(RED, abs=8)
    assert lower == pytest.approx((0, 0, 0), abs=8)


def test_colour_modes(tmp_path: Path) -> None:
    grey = picture().convert("L")
    level = grey.getpixel((0, 0))
    assert isinstance(level, int)
    sixteen_bit = Image.fromarray(np.asarray(grey).astype(np.uint16) << 8)
    transparent = picture().convert("RGBA")
    transparent.putalpha(Image.new("L", transparent.size, 0))
    palette = picture().quantize(4)
    for name, image, expected in [
        ("l.png", grey, [level] * 3),
        ("la.png", grey.convert("LA"), [level] * 3),
        ("16bit.png", sixteen_bit, [level] * 3),
        ("16bit.tiff", sixteen_bit, [level] * 3),
        ("p.png", palette, RED),
        ("cmyk.jpg", picture().convert("CMYK"), RED),
        ("transparent.png", transparent, (255, 255, 255)),
        ("bits.png", Image.new("1", (40, 60), 1), (255, 255, 255)),
        ("float.tiff", grey.convert("F"), [level] * 3),
    ]:
        image.save(tmp_path / name)
        assert colours(tmp_path / name)[0] == pytest.approx(list(expected), abs=8), name


def test_an_animation_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in (RED, (0, 0, 255))]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert colours(tmp_path / "a.gif")[0] == pytest.approx(RED, abs=8)


@given(st.binary(max_size=300), st.integers(0, 200))
@settings(max_examples=150, deadline=None)
def test_damaged_files_raise_no_other_error(noise: bytes, start: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.png"
        picture().save(path)
        good = path.read_bytes()
        path.write_bytes(good[:start] + noise + good[start + len(noise) :])
        try:
            pixels = read_picture(path, 16)
        except BrokenPictureError as error:
            message = str(error)
        else:
            message = "a.png"
            assert pixels.shape == (3, 16, 16)
        assert "a.png" in message


def test_decompression_bombs_are_errors(tmp_path: Path) -> None:
    Image.new("1", (30000, 30000)).save(tmp_path / "bomb.png")
    with pytest.raises(BrokenPictureError, match="more than the limit"):
        read_picture(tmp_path / "bomb.png", 16)


@pytest.mark.parametrize("view", ["weak", "strong"])
def test_views_depend_only_on_their_counter(view: str) -> None:
    original = torch.arange(3 * 32 * 32).reshape(3, 32, 32).remainder(251).to(torch.uint8)
    torch.manual_seed(0)
    first = [view_of(original, view, 0, epoch, "a") for epoch in range(20)]
    state = torch.get_rng_state()
    again = [view_of(original, view, 0, epoch, "a") for epoch in range(20)]
    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, first, again))
    assert len({pixels.numpy().tobytes() for pixels in first}) > (1 if view == "weak" else 10)
    assert all(pixels.shape == original.shape for pixels in first)
    assert all(pixels.dtype == torch.uint8 for pixels in first)


@pytest.mark.exact
def test_batches_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    paths = []
    for number in range(10):
        paths.append(tmp_path / f"{number}.png")
        Image.effect_noise((20, 20), 80).save(paths[-1])
    paths[3].write_bytes(b"not an image")
    pictures = Pictures([path.name for path in paths], paths, SIZE, seed=1)
    rows = in_batches(np.random.default_rng(0).permutation(10), 4)
    runs = [list(pictures.batches(rows, ("weak", "strong"), 5, workers)) for workers in (0, 2)]
    for batch, other in zip(*runs, strict=True):
        assert np.array_equal(batch.rows, other.rows)
        assert batch.broken == other.broken
        for view in ("weak", "strong"):
            assert torch.equal(batch.views[view], other.views[view])
    broken = {row: message for batch in runs[0] for row, message in batch.broken.items()}
    assert list(broken) == [3]
    assert "3.png" in broken[3]
    assert 3 not in np.concatenate([batch.rows for batch in runs[0]])
