"""A message between two processes: plain values, bytes and arrays. Reading it runs nothing, as reading a pickle would.

A JSON text says what there is; it comes first, then the bytes and arrays that it counts. Each has its length before it.
"""

import json
import math
from collections.abc import Iterator
from typing import IO, Any

import ml_dtypes
import numpy as np

_LENGTH = 8  # bytes
_ARRAY, _BYTES, _TEXTS, _PLAIN = "array", "bytes", "texts", "plain"

assert ml_dtypes  # it gives NumPy the names of the types that NumPy itself does not have


def parts(value: Any) -> Iterator[bytes | memoryview]:
    """Return a message in parts.

    Args:
        value: made of None, numbers, text, bytes, arrays, and lists, tuples and dictionaries with text for keys.
    """
    blobs: list[bytes | memoryview] = []
    text = json.dumps(_described(value, blobs)).encode()
    for part in (text, *blobs):
        yield len(part).to_bytes(_LENGTH, "little")
        yield part


def read(file: IO[bytes]) -> Any:
    """Read a message; tuples have become lists.

    Raises:
        EOFError: the file ends before it does.
    """
    described = json.loads(_part(file))
    return _restored(described, file)


def _part(file: IO[bytes]) -> bytes:
    return _exactly(file, int.from_bytes(_exactly(file, _LENGTH), "little"))


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _described(value: Any, blobs: list[bytes | memoryview]) -> Any:
    """Return a value as JSON has it, each dictionary of which has one key: what its value is."""
    if isinstance(value, bytes):
        blobs.append(value)
        return {_BYTES: None}
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind in "OUS":
            return {_TEXTS: [list(array.shape), [str(one) for one in array.reshape(-1)]]}
        blobs.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return {_ARRAY: [array.dtype.name, list(array.shape)]}
    if isinstance(value, dict):
        return {_PLAIN: [[key, _described(inner, blobs)] for key, inner in value.items()]}
    if isinstance(value, list | tuple):
        return [_described(inner, blobs) for inner in value]
    return value


def _restored(described: Any, file: IO[bytes]) -> Any:
    """Return a value; its bytes and arrays are read in the order in which they were described."""
    if isinstance(described, list):
        return [_restored(inner, file) for inner in described]
    if not isinstance(described, dict):
        return described
    ((kind, what),) = described.items()
    if kind == _BYTES:
        return _part(file)
    if kind == _ARRAY:
        dtype, shape = np.dtype(what[0]), tuple(what[1])
        return np.frombuffer(bytearray(_part(file)), dtype, count=math.prod(shape)).reshape(shape)
    if kind == _TEXTS:
        return np.array(what[1], object).reshape(what[0])
    return {key: _restored(inner, file) for key, inner in what}
