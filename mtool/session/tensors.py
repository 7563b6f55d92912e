"""Inputs and outputs between NumPy and the bytes that the device holds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtool.errors import UsageError
from mtool.manifest import Operand, Tensor

Array = NDArray[Any]


def to_bytes(tensors: Sequence[Tensor], arrays: Mapping[str, ArrayLike]) -> list[bytes]:
    """Return each input's bytes, row-major and little-endian, in the model's order.

    Raises:
        UsageError: an input is missing or unknown, or has another shape or type; the message names expected and found.
    """
    expected = {tensor.name: tensor for tensor in tensors}
    if set(arrays) != set(expected):
        raise UsageError(
            "these are not the model's inputs",
            details=[f"expected  {', '.join(map(_described, tensors))}", f"found     {', '.join(arrays) or 'nothing'}"],
        )
    return [bytes_of(tensor.name, tensor, np.asarray(arrays[tensor.name])) for tensor in tensors]


def from_bytes(tensors: Sequence[Tensor], pieces: Sequence[bytes]) -> dict[str, Array]:
    """Return the outputs by name; the arrays own their memory and can be written to."""
    return {tensor.name: array_of(tensor, piece) for tensor, piece in zip(tensors, pieces, strict=True)}


def bytes_of(name: str, tensor: Tensor | Operand, array: Array) -> bytes:
    """Return an input's bytes, row-major and little-endian.

    Raises:
        UsageError: it has another shape or type than the model's or the operator's; the message names both.
    """
    if array.dtype != np.dtype(tensor.dtype) or array.shape != tensor.shape:
        what = "type" if array.shape == tensor.shape else "shape"
        raise UsageError(
            f"the input {name} has another {what} than the model's",
            details=[
                f"expected  {tensor.dtype}[{_shape(tensor.shape)}]",
                f"found     {array.dtype}[{_shape(array.shape)}]",
            ],
            hint=f"convert it: x.astype('{tensor.dtype}')"
            if what == "type"
            else f"x.reshape({tensor.shape})"
            if array.size == np.prod(tensor.shape, dtype=int)
            else "",
        )
    data = array.astype(_wire_dtype(tensor)).tobytes()
    assert len(data) == tensor.bytes, f"{name} has {tensor.bytes} bytes in the manifest, {len(data)} in NumPy"
    return data


def array_of(tensor: Tensor | Operand, data: bytes) -> Array:
    """Return the array that a tensor's bytes are; it owns its memory and can be written to."""
    return np.frombuffer(data, _wire_dtype(tensor)).astype(tensor.dtype).reshape(tensor.shape)


def _wire_dtype(tensor: Tensor | Operand) -> np.dtype[Any]:
    return np.dtype(tensor.stored).newbyteorder("<")


def _described(tensor: Tensor) -> str:
    return f"{tensor.name} ({tensor.dtype}[{_shape(tensor.shape)}])"


def _shape(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))
