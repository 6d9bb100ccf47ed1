"""A vector for each class, as word embeddings are: ``class,number,number,...``."""

import os

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count, some
from partlabel.labels.formats.named_numbers import read_named
from partlabel.labels.formats.source import Source

_LARGEST = float(np.finfo(np.float32).max)


def read_vectors(path: str | os.PathLike[str], classes: list[str]) -> NDArray[np.float32]:
    """[C, d] the vectors of these classes; one that is not there is an error."""
    found: dict[str, list[float]] = {}
    for source, line, (name,), values in read_named(path, ["class"]):
        if name in found:
            raise source.error(f"'{name}' a second time", line)
        if not values:
            raise source.error("expected numbers after the name of a class", line)
        if max(map(abs, values)) > _LARGEST:
            raise source.error("a number is too large for single precision", line)
        found[name] = values
    missing = [name for name in classes if name not in found]
    if missing:
        raise Source(path).error(
            f"no vector for {count(len(missing), 'class', 'classes')}: {some(missing)}"
        )
    return np.array([found[name] for name in classes], dtype=np.float32)
