"""The target ``hf``: a folder of images and labels that ``datasets.load_dataset`` reads."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_folder
from partlabel.images.decoding import SUFFIXES
from partlabel.images.stored import ImageFile, Member, UnreadableImageError
from partlabel.labels import LabelTable, Names
from partlabel.labels.formats import write_labels


def write_dataset(
    table: LabelTable, files: Sequence[ImageFile], images: Path, folder: Path
) -> None:
    """Write a folder with the images and their labels: 1, 0, or null if unknown.

    Images are hard links, or copies where these are not possible. Each split is a folder with a
    file metadata.parquet; a table without splits is one split ``train``. Images of a folder keep
    their paths in it. Images of shards and lists are called by the numbers of their rows: a name in
    an archive could be any path.

    Args:
        table: the labels.
        files: where each image is stored.
        images: the folder of the images, if they are in one.
        folder: a new folder.
    """
    splits = ["train"] * len(table) if table.splits is None else list(table.splits)
    splits = [split or "no_split" for split in splits]
    names = [_name_in(images, file, row) for row, file in enumerate(files)]
    with atomic_folder(folder) as temporary:
        for split in dict.fromkeys(splits):
            home = temporary / _folder_of(split)
            home.mkdir()
            rows = np.flatnonzero(np.array(splits) == split)
            part = table.subset(rows)
            cells = part.cells.with_details(scores=None, sources=None)
            own = LabelTable.from_cells(
                Names([names[row] for row in rows]), part.classes, cells, None, part.origins
            )
            write_labels(own, home / "metadata.parquet", "hf")
            for row in rows.tolist():
                _place(files[row], home / names[row])
        card = _card(folder.name, dict.fromkeys(splits), table)
        (temporary / "README.md").write_text(card, encoding="utf-8")


def _name_in(images: Path, file: ImageFile, row: int) -> str:
    if isinstance(file, Path) and images.is_dir():
        try:
            return file.relative_to(images).as_posix()
        except ValueError as error:
            raise FileError(file, f"lies outside of {images}") from error
    suffix = PurePosixPath(file.name).suffix.lower()
    return f"{row:08d}{suffix if suffix in SUFFIXES else '.jpg'}"


def _folder_of(split: str) -> str:
    """The name of a split in a dataset, which may have letters, digits and underscores only.

    >>> _folder_of("my split-2")
    'my_split_2'
    """
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in split)


def _place(source: ImageFile, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, Member):
        target.write_bytes(_content(source))
        return
    try:
        os.link(source.resolve(), target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)


def _content(member: Member) -> bytes:
    try:
        return member.read()
    except (OSError, UnreadableImageError) as error:
        raise FileError(member, f"cannot be read ({error})") from error


def _card(name: str, splits: Sequence[str] | dict[str, None], table: LabelTable) -> str:
    """README.md of the dataset; its head tells ``load_dataset`` which folder is which split."""
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    for split in splits:
        folder = _folder_of(split)
        lines += [f"  - split: {folder}", f'    path: "{folder}/**"']
    lines += [
        "---",
        f"# {name}",
        "",
        f"{len(table):,} images with {len(table.classes):,} classes. A label is 1 (present), 0 "
        f"(absent) or null (unknown). {table.known:.1%} of the labels are known.",
        "",
    ]
    return "\n".join(lines)
