"""What the run says about every label, on disk beside it, so that a page starts without torch."""

import hashlib
import json
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

_VERSION = 1


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
        images: the folder of the images.
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
    path = folder / "about.json"
    if not path.is_file():
        return None
    try:
        about: dict[str, Any] = json.loads(path.read_bytes())
        if about["version"] != _VERSION:
            return None
        table = LabelTable.open(folder / "labels.arrow")
        arrays = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ("scores", "decided", "suspects", "train")
        }
        vectors = folder / "features.npy"
        features = Features.open(vectors, folder / "scale.npy") if vectors.is_file() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(folder, f"damaged ({error}); remove it, and it is made again") from error
    if arrays["scores"].shape != table.shape[::-1]:
        raise FileError(folder, "damaged: does not fit its labels; remove it")
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
        for name in ("scores", "decided", "suspects", "train"):
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
        }
        (target / "about.json").write_text(json.dumps(about))


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
