"""A sequence of names in Arrow's compact memory format."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from partlabel.base.errors import InputError, some

_CHUNK = 1 << 16

_INVALID = r"^$|[\x00-\x1f\x7f\x{FFFE}\x{FFFF}]"
_DIRECTIONS = r"\x{061C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2066}-\x{2069}"
_INVALID_CLASS = rf"{_INVALID}|[\x{{80}}-\x{{9F}}{_DIRECTIONS}]"


class Names(Sequence[str]):
    """A read-only list of strings backed by an Arrow array, which may be memory-mapped.

    >>> names = Names(["cat", "dog"])
    >>> names[1], len(names), names == ["cat", "dog"], names.find(["dog", "cow"]).tolist()
    ('dog', 2, True, [1, -1])
    """

    __hash__ = None  # type: ignore[assignment]  # equality is by content, as for a list

    array: pa.Array

    def __init__(self, names: "Iterable[str] | pa.Array | NDArray[Any]") -> None:
        array: Any = names.array if isinstance(names, Names) else names
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        self.array = array if isinstance(array, pa.Array) else _to_arrow(array)
        if pa.types.is_string(self.array.type):
            self.array = self.array.cast(pa.large_string())

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "Names": ...
    def __getitem__(self, index: int | slice) -> "str | Names":
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        return str(self.array[int(index)].as_py())

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK):
            yield from self.array.slice(start, _CHUNK).to_pylist()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.find([name])[0] >= 0)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names) and other.array.type == self.array.type:
            return bool(self.plain().equals(other.plain()))
        if isinstance(other, (str, bytes)) or not hasattr(other, "__len__"):
            return NotImplemented
        others: Any = other
        return len(others) == len(self) and all(a == b for a, b in zip(self, others, strict=True))

    def __repr__(self) -> str:
        return f"Names([{some(self[:4], most=3)}])" if len(self) > 3 else f"Names({list(self)})"

    def plain(self) -> pa.Array:
        """The names as an Arrow array of strings, also if they are stored as dictionary codes."""
        return self.array.cast(pa.large_string())

    def take(self, rows: NDArray[np.int64]) -> "Names":
        """The names at these positions."""
        return Names(self.array.take(pa.array(rows)))

    def find(self, names: "Iterable[str] | Names") -> NDArray[np.int64]:
        """The position of each of ``names`` in this sequence, -1 if it is missing."""
        names = names if isinstance(names, Names) else Names(names)
        positions = pc.index_in(names.plain(), value_set=self.plain())
        return np.asarray(positions.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)

    def missing(self, names: "Sequence[str] | Names") -> list[str]:
        """Those of ``names`` that this sequence does not have."""
        found = zip(names, self.find(names).tolist(), strict=True)
        return [name for name, position in found if position < 0]


def _to_arrow(names: Iterable[str]) -> pa.Array:
    values = names if isinstance(names, (list, np.ndarray)) else list(names)
    try:
        array = pa.array(values, type=pa.large_string())
    except (pa.ArrowException, UnicodeEncodeError, TypeError) as error:
        raise InputError(f"names must be valid text: {error}") from error
    if array.null_count:
        raise InputError(f"names must be text, but number {array.is_null().index(True)} is missing")
    return array


def check_names(kind: str, names: Names) -> None:
    """Raise an error for names that are empty, repeated, or contain control characters."""
    array = names.plain()
    strict = kind == "class"  # class names are shown everywhere, and there are few
    if strict or _may_be_invalid(array):
        invalid = pc.match_substring_regex(array, _INVALID_CLASS if strict else _INVALID)
        position = invalid.index(True).as_py()
        if position >= 0:
            raise InputError(
                f"{kind} number {position + 1} is called {array[position].as_py()!r}; a name must "
                "have at least one character, and no control characters or line breaks"
            )
    # sorting needs a tenth of the time and the memory of Arrow's hash tables
    ordered = array.take(pc.sort_indices(array))
    repeated = pc.equal(ordered[1:], ordered[: max(len(array) - 1, 0)])
    if pc.any(repeated).as_py():
        name = ordered[repeated.index(True).as_py()].as_py()
        raise InputError(f"the {kind} name '{name}' occurs more than once")


def _may_be_invalid(array: pa.Array) -> bool:
    """A fast check of the bytes; a regular expression on all names would take too long."""
    if len(array) == 0:
        return False
    if pc.min(pc.binary_length(array)).as_py() == 0:
        return True
    data = np.frombuffer(array.buffers()[2], dtype=np.uint8)
    return any(
        chunk.min() < 0x20 or bool(((chunk == 0x7F) | (chunk == 0xEF)).any())
        for chunk in np.array_split(data, len(data) // _CHUNK + 1)
    )
