"""Where the image of each row of a table is stored."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from partlabel.base.errors import FileError, count, some
from partlabel.images.batches import Rows
from partlabel.images.collection import Images
from partlabel.images.folder import unreadable
from partlabel.images.matching import describe, spellings
from partlabel.images.named_images import open_images
from partlabel.images.stored import ImageFile
from partlabel.labels import LabelTable


def _refuse_shared_files(files: Images, names: list[str], paths: list[ImageFile]) -> None:
    """Raise an error if two images are one file: it could be trained on and tested on."""
    times = Counter(paths)
    shared = [path for path, number in times.items() if number > 1]
    if shared:
        same = [name for name, path in zip(names, paths, strict=True) if path == shared[0]]
        raise FileError(
            files.where,
            f"{count(len(shared), 'file')} with more than one image of the labels, such as "
            f"{shared[0].name} with {some(same)}; join their rows with `partlabel convert LABELS "
            "NEW --images DIR`",
        )


def find_files(
    table: LabelTable,
    files: Images,
    rows: Rows,
    *,
    strict: bool = False,
    on_note: Callable[[str], object] = lambda message: None,
) -> dict[int, ImageFile]:
    """Where each image is; a missing one is an error, and with ``strict`` a broken one.

    ``on_note`` is called with a message if files are spelled differently from their images.
    """
    names = list(table.ids.take(rows))
    matches = files.match(names)
    missing = [name for name, match in zip(names, matches, strict=True) if match is None]
    if missing:
        raise FileError(
            files.where,
            f"{count(len(missing), 'image')} of the label file not found: {some(missing)}; "
            f"{files.hint} `partlabel inspect LABELS --images DIR` lists them. Add the images, or "
            "delete their rows in the label file",
        )
    paths = {
        row: files.at(match.file)
        for row, match in zip(rows.tolist(), matches, strict=True)
        if match is not None
    }
    _refuse_shared_files(files, names, list(paths.values()))
    if spelled := spellings(matches):
        on_note(f"files of images: {describe(spelled)}")
    if strict:
        broken = unreadable(list(paths.values()))
        if broken:
            path, why = next(iter(broken.items()))
            number = count(len(broken), "image file")
            hint = f"{number} in all. Leave out --strict to skip them"
            raise FileError(path, f"cannot be decoded ({why}); {hint}")
    return paths


def locate_all(table: LabelTable, images: Path) -> list[ImageFile]:
    """Where the image of each row of a table is; a missing one is an error."""
    files = find_files(table, open_images(images), np.arange(len(table)))
    return [files[row] for row in range(len(table))]
