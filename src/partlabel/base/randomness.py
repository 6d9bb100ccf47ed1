"""Random numbers by counter: each is a function of its seed, its purpose and what it belongs to.

No generator carries state from one draw to the next, so what is drawn for an image depends neither
on the order of the images, nor on which others there are, nor on how many processes draw.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key(*parts: object) -> int:
    """A 64-bit key of anything that prints the same every time.

    >>> key(0, "partial") == key(0, "partial"), key(0, "partial") == key(1, "partial")
    (True, False)
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def keys(names: Iterable[str]) -> Keys:
    """One 64-bit key per name."""
    digests = b"".join(hashlib.blake2b(n.encode(), digest_size=8).digest() for n in names)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def uniform(stream: int, *where: Keys) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), one for each combination of keys (which broadcast).

    Args:
        stream: what the numbers are for, see :func:`key`.
        where: arrays of keys, such as one per cell for its image and one for its class.
    """
    state: Keys = np.asarray(stream, dtype=np.uint64)
    for part in where:
        state = _mix(state ^ _mix(part))
    return np.asarray(_mix(state) >> np.uint64(11)) * 2.0**-53


def _mix(x: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit depends on every bit."""
    with np.errstate(over="ignore"):
        x = x + _GOLDEN
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))
