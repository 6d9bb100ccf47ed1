"""The ``folders`` format: a folder of images per class, with or without a folder per split."""

from pathlib import Path, PurePosixPath

import numpy as np

from partlabel.images.folder import ImageFiles
from partlabel.labels import PRESENT, Names
from partlabel.labels.formats.format import ReadOnlyFormat
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated

_SPLITS = ("train", "training", "val", "valid", "validation", "test", "testing", "holdout")
_MARKERS = ("Annotations", "dataset_info.json", "dataset_dict.json", "annotations.xml")


class ClassFolders(ReadOnlyFormat):
    """``CLASS/IMAGE`` or ``SPLIT/CLASS/IMAGE``, as for YOLO and torchvision's ImageFolder.

    The name of an image is its path in the folder. Folders within a class belong to it.
    """

    name = "folders"
    lists_only_present = True

    def matches(self, source: Source) -> bool:
        """Whether all images lie in subfolders, and nothing else describes their labels."""
        if source.kind != "folder" or any((source.path / name).exists() for name in _MARKERS):
            return False
        if any(source.path.glob("*.xml")) or _metadata(source.path):
            return False
        paths = _images(source.path)
        return bool(paths) and all(len(path.parts) > 1 for path in paths)

    def read(self, source: Source) -> Stated:
        """One statement per image: the class of its folder is present."""
        if source.kind != "folder":
            raise source.error("the folders format is a folder with a subfolder per class")
        paths = _images(source.path)
        if not paths:
            raise source.error("no images in the folder and its subfolders")
        depth = 2 if _has_splits(paths) else 1  # of the folders that say something
        for path in paths:
            if len(path.parts) <= depth:
                expected = "SPLIT/CLASS/IMAGE" if depth == 2 else "CLASS/IMAGE"
                raise source.error(f"'{path}' is in no class folder; expected {expected}")
        labels = [path.parts[depth - 1] for path in paths]
        classes = sorted(set(labels) | _empty_classes(source.path, paths, depth))
        columns = {name: column for column, name in enumerate(classes)}
        return Stated(
            Names([str(path) for path in paths]),
            Names(classes),
            np.arange(len(paths)),
            np.array([columns[label] for label in labels], dtype=np.int64),
            np.full(len(paths), PRESENT, dtype=np.int8),
            splits=[path.parts[0] for path in paths] if depth == 2 else None,
        )


def _metadata(folder: Path) -> bool:
    """Whether metadata files describe the images, as in the format ``hf``."""
    return any(folder.glob("metadata.*")) or any(folder.glob("*/metadata.*"))


def _images(folder: Path) -> list[PurePosixPath]:
    """The images below a folder, without those in hidden folders."""
    paths = [PurePosixPath(name) for name in ImageFiles(folder).names]
    return [path for path in paths if not any(part.startswith(".") for part in path.parts)]


def _has_splits(paths: list[PurePosixPath]) -> bool:
    """Whether the top folders are splits and hold class folders."""
    return all(len(path.parts) > 2 and path.parts[0].lower() in _SPLITS for path in paths)


def _empty_classes(folder: Path, paths: list[PurePosixPath], depth: int) -> set[str]:
    """The names of class folders without images."""
    parents = [folder] if depth == 1 else [folder / name for name in {p.parts[0] for p in paths}]
    return {
        path.name
        for parent in parents
        for path in parent.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    }
