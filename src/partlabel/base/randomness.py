"""Counter-based random numbers: each is a hash of a seed, a purpose and names.

No generator carries state from one draw to the next. So the number drawn for an image does not
depend on the order of the images, on the other images, or on the number of processes.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key(*parts: object) -> int:
    """A 64-bit hash of the text of ``parts``, the same in every process.

    >>> key(0, "partial") == key(0, "partial"), key(0, "partial") == key(1, "partial")
    (True, False)
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def keys(names: Iterable[str]) -> Keys:
    """One 64-bit key per name."""
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def uniform(stream: int, *item_keys: Keys) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), one per combination of keys.

    Args:
        stream: a key of the seed and the purpose of the numbers, see :func:`key`.
        item_keys: arrays of keys that broadcast, such as the keys of each cell's image and class.
    """
    state: Keys = np.asarray(stream, dtype=np.uint64)
    for array in item_keys:
        state = _mix(state ^ _mix(array))
    return _from_bits(state)


def uniform_of_mixed(stream: int, mixed: Keys) -> NDArray[np.float64]:
    """The numbers of ``uniform(stream, keys)`` for :func:`mixed_keys`; faster if used again.

    >>> names = keys(["a", "b"])
    >>> uniform_of_mixed(7, mixed_keys(names)).tolist() == uniform(7, names).tolist()
    True
    """
    return _from_bits(_mix(np.uint64(stream) ^ mixed))


def mixed_keys(item_keys: Keys) -> Keys:
    """Keys for :func:`uniform_of_mixed`."""
    return _mix(item_keys)


def _from_bits(state: Keys) -> NDArray[np.float64]:
    return np.asarray(_mix(state) >> np.uint64(11)) * 2.0**-53


def _mix(x: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014).

    Every bit of the result depends on every bit of the input.
    """
    with np.errstate(over="ignore"):
        x = x + _GOLDEN
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))
