"""Cached records of one network, or of several networks joined along their channels."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from partlabel.models.backbones import join

Records = NDArray[np.int64]
Choices = dict[str, Records]


class RecordSource(Protocol):
    """Records [m, *shape], read on demand."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[m, *shape]"""

    def __len__(self) -> int:
        """m"""

    def read(self, records: Records) -> NDArray[Any]:
        """[b, *shape] these records [b]."""


class JoinedRecords:
    """Records of several networks for the same images.

    Args:
        sources: the records of each network.
        numbers: [m, networks] which record of each network belongs to a joined record.
    """

    def __init__(self, sources: Sequence[RecordSource], numbers: Records) -> None:
        self.sources, self.numbers = sources, numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """[m, D, H, W]"""
        shapes = [source.shape for source in self.sources]
        channels = sum(shape[1] for shape in shapes)
        return (len(self), channels, *max(shape[2:] for shape in shapes))

    def __len__(self) -> int:
        return len(self.numbers)

    def read(self, records: Records) -> NDArray[Any]:
        """[b, D, H, W] these records [b]."""
        columns = zip(self.sources, self.numbers[records].T, strict=True)
        maps = [torch.from_numpy(source.read(column)).float() for source, column in columns]
        return np.asarray(join(maps).numpy())


def join_records(filled: Sequence[tuple[RecordSource, Choices]]) -> tuple[RecordSource, Choices]:
    """The records of networks as one source, and the records of each image in it.

    Args:
        filled: for each network its records, and for each view the records [n, k] of each image, -1
            for a broken image.
    """
    sources, choices = [source for source, _ in filled], [part for _, part in filled]
    if len(filled) == 1:
        return sources[0], choices[0]
    stacked = {view: np.stack([part[view] for part in choices], axis=-1) for view in choices[0]}
    rows = np.concatenate([each.reshape(-1, len(filled)) for each in stacked.values()])
    readable = (rows >= 0).all(axis=1)
    numbers, places = np.unique(rows[readable], axis=0, return_inverse=True)
    joined = np.full(len(rows), -1, dtype=np.int64)
    joined[readable] = places
    ends = np.cumsum([each[..., 0].size for each in stacked.values()])
    parts = np.split(joined, ends[:-1])
    views = zip(stacked.items(), parts, strict=True)
    return JoinedRecords(sources, numbers), {
        view: part.reshape(each.shape[:-1]) for (view, each), part in views
    }
