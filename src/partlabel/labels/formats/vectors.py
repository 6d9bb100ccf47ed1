"""A vector per class, such as word embeddings: ``class,number,number,...``."""

import os

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count, some
from partlabel.labels.formats.named_numbers import read_named
from partlabel.labels.formats.source import Source

_LARGEST = float(np.finfo(np.float32).max)


def read_vectors(path: str | os.PathLike[str], classes: list[str]) -> NDArray[np.float32]:
    """[C, d] the vectors of these classes; a class without vector is an error."""
    vectors: dict[str, list[float]] = {}
    for source, line, (name,), numbers in read_named(path, ["class"]):
        if name in vectors:
            raise source.error(f"a second vector for '{name}'", line)
        if not numbers:
            raise source.error("expected numbers after the name of the class", line)
        if max(map(abs, numbers)) > _LARGEST:
            raise source.error("a number is too large for single precision", line)
        vectors[name] = numbers
    missing = [name for name in classes if name not in vectors]
    if missing:
        raise Source(path).error(
            f"no vector for {count(len(missing), 'class', 'classes')}: {some(missing)}"
        )
    return np.array([vectors[name] for name in classes], dtype=np.float32)
