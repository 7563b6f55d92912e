"""Values that a user gives for inputs: they go into an input as they are, or not at all."""

from typing import Any

import numpy as np

from mtool.compiler.ir.types import Array

_NUMBERS = "biuf"


def stored_as(data: Array, dtype: np.dtype[Any]) -> Array | None:
    """Return numbers as another type; None if they are no numbers, or would be other integers there."""
    if data.dtype == dtype or dtype.kind == "O":  # such as strings
        return data.astype(dtype)
    if data.dtype.kind not in _NUMBERS and not (data.dtype.kind == "V" and data.dtype.names is None):
        return None  # V: bfloat16 and the like
    if dtype.kind in "iu" and data.size:
        if data.dtype.kind == "f" and not (np.isfinite(data).all() and (data == np.trunc(data)).all()):
            return None
        limits = np.iinfo(dtype)
        if not limits.min <= int(data.min()) <= int(data.max()) <= limits.max:
            return None
    with np.errstate(all="ignore"):
        return data.astype(dtype)


def found_in(data: Array) -> str:
    """Return what a value is: its type and shape, and between which numbers it lies."""
    told = f"{data.dtype}[{','.join(map(str, data.shape))}]"
    return f"{told}, from {data.min()} to {data.max()}" if data.size and data.dtype.kind in _NUMBERS else told


def limits_of(dtype: np.dtype[Any]) -> str:
    """Return what a message says of the numbers of an integer type."""
    return f", from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}" if dtype.kind in "iu" else ""
