"""Values that a user gives for inputs: they have to fit the input exactly."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mtool.base.errors import UsageError
from mtool.compiler.ir.types import Array

_NUMBERS = "biuf"


def stored_as(data: Array, dtype: np.dtype[Any]) -> Array | None:
    """Convert numbers to another type; None if they are not numbers, or the conversion would change integers."""
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


def described(data: Array) -> str:
    """Describe a value: its type, shape and range."""
    text = f"{data.dtype}[{','.join(map(str, data.shape))}]"
    return f"{text}, from {data.min()} to {data.max()}" if data.size and data.dtype.kind in _NUMBERS else text


def limits_of(dtype: np.dtype[Any]) -> str:
    """Return an integer type's range, for messages; "" for other types."""
    return f", from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}" if dtype.kind in "iu" else ""


def constant_of(
    name: str, data: Array, dtype: np.dtype[Any], dims: Sequence[int], shape: tuple[int, ...] | None, title: str
) -> Array:
    """Return a given value with the input's type and shape.

    Args:
        name: the input's name.
        data: the value.
        dtype: the input's type.
        dims: the input's dimensions; -1: any size.
        shape: the shape to give to a value with the same number of elements.
        title: the model's name in messages.

    Raises:
        UsageError: the value does not fit the input.
    """
    value = np.asarray(data)
    stored = stored_as(value, dtype)
    if stored is not None:
        if len(dims) == value.ndim and all(dim in (-1, size) for dim, size in zip(dims, value.shape, strict=True)):
            return stored
        if shape is not None and math.prod(shape) == value.size:
            return stored.reshape(shape)
    expected = f"{dtype}[{','.join('?' if size < 0 else str(size) for size in dims)}]{limits_of(dtype)}"
    raise does_not_fit(f"--const {name}", title, expected, value)


def does_not_fit(option: str, title: str, expected: str, data: Array) -> UsageError:
    """Return the error for a value that does not fit its input."""
    details = [f"expected  {expected}", f"found     {described(data)}"]
    return UsageError(f"{option} does not fit that input of {title}", details=details)


def check_names(names: Iterable[str], available: Iterable[str], role: str, title: str) -> None:
    """Check that the model has all given names.

    Raises:
        UsageError: one is unknown.
    """
    unknown = sorted(set(names) - set(available))
    if unknown:
        raise UsageError(f"{title} has no {role} named {', '.join(unknown)}")
