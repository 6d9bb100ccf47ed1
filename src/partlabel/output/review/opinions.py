"""What the run says about every label, on disk beside it, so that a page starts without torch."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_folder
from partlabel.labels import LabelTable
from partlabel.output.review.learner import Features

_VERSION = 2
_ARRAYS = ("scores", "decided", "suspects", "train")


@dataclass(frozen=True)
class Opinions:
    """The labels under review, and what the run says about them.

    Args:
        table: the labels; its classes are those of the label file, then others of the run.
        scores: [C, n] calibrated scores, NaN where there is none.
        decided: [C, n] what the run fills in with a guarantee: 1, -1, or 0 for nothing.
        suspects: [m, 2] row and column of known labels that look wrong, the least likely first.
        guarantees: for each class the precision that is guaranteed of filled-in labels, ``present``
            and ``absent``, where there are such.
        images: where the images are.
        learns: empty if a head can learn from verdicts, otherwise the reason why it cannot.
        notes: remarks of the completion, such as why nothing is filled in.
        precision: the precision that is guaranteed.
        features: of the images; None if nothing can be learned.
    """

    table: LabelTable
    scores: NDArray[np.float32]
    decided: NDArray[np.int8]
    suspects: NDArray[np.int64]
    guarantees: Mapping[str, Mapping[str, float]]
    images: Path
    learns: str
    notes: list[str]
    precision: float
    features: Features | None = None
    train: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The rows that the run was trained on, whose labels the head on the page also learns from."""


def load_opinions(folder: Path) -> Opinions | None:
    """What :func:`save_opinions` wrote; None if there is nothing."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    try:
        about = _read_about(folder / "about.json")
        for name, checksum in about["files"].items():
            if file_checksum(folder / name) != checksum:
                raise ValueError(f"the checksum of {name} does not fit")
        table = LabelTable.open(folder / "labels.arrow")
        arrays = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in _ARRAYS
        }
        vectors = folder / "features.npy"
        features = Features.open(vectors, folder / "scale.npy") if vectors.is_file() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(folder, f"damaged ({error}); remove it, and it is made again") from error
    return Opinions(
        table,
        guarantees=about["guarantees"],
        images=Path(about["images"]),
        learns=about["learns"],
        notes=about["notes"],
        precision=about["precision"],
        features=features,
        **arrays,
    )


def save_opinions(opinions: Opinions, folder: Path, vectors: NDArray[Any] | None = None) -> None:
    """Write opinions to a new folder.

    Args:
        vectors: [n, D] features of all images, which the page learns on.
    """
    with atomic_folder(folder) as target:
        opinions.table.save(target / "labels.arrow")
        for name in _ARRAYS:
            np.save(target / f"{name}.npy", getattr(opinions, name))
        if vectors is not None:
            np.save(target / "features.npy", vectors)
            np.save(target / "scale.npy", scale_of(vectors))
        about = {
            "version": _VERSION,
            "guarantees": opinions.guarantees,
            "images": str(opinions.images.resolve()),
            "learns": opinions.learns,
            "notes": opinions.notes,
            "precision": opinions.precision,
            "files": {path.name: file_checksum(path) for path in sorted(target.iterdir())},
        }
        about["checksum"] = _checksum(about)
        (target / "about.json").write_text(json.dumps(about))


def _read_about(path: Path) -> dict[str, Any]:
    """The content of about.json."""
    about = json.loads(path.read_bytes())
    if not isinstance(about, dict):
        raise ValueError("about.json has no keys with values")
    if about.get("version") != _VERSION:
        raise ValueError("another version of the program made it")
    if about.pop("checksum", None) != _checksum(about):
        raise ValueError("the checksum of about.json does not fit")
    return about


def _checksum(about: Mapping[str, Any]) -> str:
    text = json.dumps(about, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def file_checksum(path: Path) -> int:
    """A checksum of a file that takes little time."""
    checksum = 0
    with path.open("rb") as stream:
        while part := stream.read(1 << 20):
            checksum = zlib.crc32(part, checksum)
    return checksum


def scale_of(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """[2, D] mean and standard deviation of features; a constant one has deviation 1."""
    sample = vectors[:: max(len(vectors) // 20_000, 1)].astype(np.float32)
    deviation = sample.std(axis=0)
    return np.stack([sample.mean(axis=0), np.where(deviation > 1e-6, deviation, 1.0)])


def table_digest(table: LabelTable) -> str:
    """A hash of the labels of a table."""
    digest = hashlib.blake2b(digest_size=16)
    for names in (table.ids, table.classes):
        digest.update("\n".join(names).encode() + b"\0")
    for part in (table.cells.starts, table.cells.columns, table.cells.values):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """A hash of the content of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()
