"""Labels in the forms that other tools use, as 1 for present, -1 for absent and 0 for unknown."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from partlabel.base.errors import InputError, one_of


def ternary(
    labels: ArrayLike,
    known: ArrayLike | None = None,
    *,
    zero: Literal["absent", "unknown"] | None = None,
) -> NDArray[np.int8]:
    """Labels as 1 (present), -1 (absent) and 0 (unknown), in int8.

    Three forms are read:

    * 1, 0 and NaN for present, absent and unknown
    * 1, -1 and 0 for present, absent and unknown, which is already the form of partlabel
    * 1 and 0 with ``known``, which is true where a label is known

    Args:
        labels: an array, a tensor or a data frame of any shape.
        known: of the same shape, boolean or 1 and 0; None if ``labels`` has the unknown labels.
        zero: the meaning of 0. By default it is unknown if some label is -1, else absent. Set it if
            labels are converted in batches: one of them may have no -1.

    >>> ternary([[1, float("nan"), 0]])
    array([[ 1,  0, -1]], dtype=int8)
    >>> ternary([[1, 0, -1]])
    array([[ 1,  0, -1]], dtype=int8)
    >>> ternary([[1, 0, 0]], known=[[True, True, False]])
    array([[ 1, -1,  0]], dtype=int8)
    >>> ternary([[1, 0]], zero="unknown")
    array([[1, 0]], dtype=int8)
    """
    values = _numbers(labels, "the labels")
    if known is not None:
        values = _only_known(values, _numbers(known, "known"))
        if zero == "unknown":
            raise InputError("zero='unknown' has no effect with known")
    if zero is not None:
        one_of("meaning of 0", zero, ("absent", "unknown"))
    has_negative = bool((values == -1).any())
    if zero == "unknown" or (zero is None and has_negative and known is None):
        _refuse_others(values, (1, -1, 0), "labels are 1 (present), -1 (absent) or 0 (unknown)")
        return values.astype(np.int8)
    absent = -1 if has_negative and known is not None else 0
    message = f"labels are 1 (present), {absent} (absent) or NaN (unknown)"
    _refuse_others(values, (1, absent, np.nan), message)
    return np.where(np.isnan(values), 0, np.where(values == 1, 1, -1)).astype(np.int8)


def _only_known(values: NDArray[np.float64], mask: NDArray[np.float64]) -> NDArray[np.float64]:
    """Labels with NaN where they are not known."""
    if mask.shape != values.shape:
        raise InputError(
            f"known has the shape {list(mask.shape)}, and the labels have {list(values.shape)}"
        )
    _refuse_others(mask, (0, 1), "known must be true or false, or 1 or 0")
    return np.where(mask == 1, values, np.nan)


def _numbers(values: Any, what: str) -> NDArray[np.float64]:
    if hasattr(values, "detach"):  # a tensor, possibly on another device
        values = values.detach().cpu()
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be numbers ({error})") from error


def _refuse_others(
    values: NDArray[np.float64], allowed: tuple[float, ...], message: str
) -> None:  # fmt: skip
    """Raise an error at the first value that is not allowed."""
    other = ~np.isin(values, allowed)
    if any(np.isnan(value) for value in allowed):
        other &= ~np.isnan(values)
    if other.any():
        position = [int(axis[0]) for axis in np.nonzero(other)]
        raise InputError(f"{values[tuple(position)]:g} at {position}: {message}")
