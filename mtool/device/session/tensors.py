"""Convert inputs and outputs between NumPy and the device's bytes."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtool.base.errors import UsageError
from mtool.base.formulas import parsed
from mtool.device.rpc import protocol
from mtool.manifest import Operand, Tensor

# Run-time sizes of an inference: from the shapes of its inputs, and the shapes that follow from them.


Sizes = Mapping[str, int]
"""Run-time sizes by their symbols in formulas."""


def sizes_of(tensors: Sequence[Tensor], arrays: Mapping[str, ArrayLike]) -> dict[str, int]:
    """Return the run-time sizes of the inputs.

    Args:
        tensors: the model's inputs.
        arrays: the arrays by name; some may be missing.

    Raises:
        UsageError: two of them disagree about a size, or it is out of range.
    """
    sizes: dict[str, tuple[int, str]] = {}

    def note(symbol: str, size: int, where: str) -> None:
        first_size, first_place = sizes.setdefault(symbol, (size, where))
        if first_size != size:
            details = [f"{first_place} is {first_size}", f"{where} is {size}"]
            raise UsageError("the inputs disagree about a size", details=details)

    for tensor in (tensor for tensor in tensors if tensor.dims is not None and tensor.name in arrays):
        shape = np.shape(arrays[tensor.name])
        for place, (text, size) in enumerate(zip(tensor.dims or (), shape, strict=False)):
            if text.isidentifier():
                note(text, size, f"dimension {place} of {tensor.name}")
    for tensor in tensors:
        limits = tensor.range
        if limits is None:
            continue
        if tensor.name in arrays:
            note(limits.symbol, int(np.asarray(arrays[tensor.name])), tensor.name)
        size, where = sizes.get(limits.symbol, (limits.most, ""))
        if where and not limits.least <= size <= limits.most:
            raise UsageError(
                f"{limits.dimension} is out of range: {size}",
                details=[f"expected  {limits.least} to {limits.most}", f"found     {size}, as {where}"],
                hint=f"for larger sizes compile with: --max {limits.dimension}={size}" if size > limits.most else "",
            )
    return {symbol: size for symbol, (size, _) in sizes.items()}


def shape_at(tensor: Tensor, sizes: Sizes) -> tuple[int, ...]:
    """Return a tensor's shape at run-time sizes."""
    return tensor.shape if tensor.dims is None else tuple(parsed(text).at(sizes) for text in tensor.dims)


def tensor_at(tensor: Tensor, sizes: Sizes) -> Tensor:
    """Return a tensor with its shape at run-time sizes."""
    if tensor.dims is None:
        return tensor
    return tensor.model_copy(update={"shape": shape_at(tensor, sizes), "bytes": bytes_at(tensor, sizes)})


def bytes_at(tensor: Tensor, sizes: Sizes) -> int:
    """Return a tensor's bytes at run-time sizes."""
    if tensor.dims is None:
        return tensor.bytes
    return math.prod(shape_at(tensor, sizes)) * np.dtype(tensor.stored).itemsize


def operand_at(operand: Operand, sizes: Sizes) -> Operand:
    """Return an operator's tensor with its shape at run-time sizes."""
    changes: dict[str, Any] = {}
    if operand.dims is not None:
        shape = tuple(parsed(text).at(sizes) for text in operand.dims)
        changes = {"shape": shape, "bytes": math.prod(shape) * np.dtype(operand.stored).itemsize, "dims": None}
    source = operand.source
    if source is not None and source.reshapes is not None:
        shapes = iter([tuple(parsed(text).at(sizes) for text in shape) for shape in source.reshapes])
        moves = tuple((what, next(shapes) if what == "reshape" else numbers) for what, numbers in source.moves)
        changes["source"] = source.model_copy(update={"moves": moves, "reshapes": None})
    return operand.model_copy(update=changes) if changes else operand


_KINDS = {"inputs": protocol.INPUTS, "outputs": protocol.OUTPUTS, "arena": protocol.ARENA}


def place_of(operand: Operand) -> tuple[int, int, int]:
    """Return the place of an operator's tensor on the device: the kind of memory, its number, the offset in it."""
    return _KINDS[operand.memory], operand.index, operand.offset


def largest(tensors: Sequence[Tensor]) -> dict[str, int]:
    """Return the largest sizes of a model."""
    return {tensor.range.symbol: tensor.range.most for tensor in tensors if tensor.range is not None}


def smallest(tensors: Sequence[Tensor]) -> dict[str, int]:
    """Return the smallest sizes of a model."""
    return {tensor.range.symbol: tensor.range.least for tensor in tensors if tensor.range is not None}


def required_inputs(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the inputs that the caller must pass: all except the sizes, which follow from their shapes."""
    return [tensor for tensor in tensors if tensor.range is None]


Array = NDArray[Any]


def named(tensors: Sequence[Tensor], name: str) -> Tensor:
    """Return a tensor by its name.

    Raises:
        UsageError: there is none; the message lists the names.
    """
    for tensor in tensors:
        if tensor.name == name:
            return tensor
    raise UsageError(
        f"the model has no input {name!r}",
        details=[f"available: {', '.join(map(_described, required_inputs(tensors)))}"],
    )


def check_set(tensors: Sequence[Tensor], name: str, array: ArrayLike) -> None:
    """Check an input that is set before its run, unless that depends on run-time sizes.

    Raises:
        UsageError: the model has no such input, or it has another shape or type.
    """
    tensor = named(tensors, name)
    if tensor.dims is None and tensor.range is None:
        bytes_of(name, tensor, as_array(name, array))


def to_bytes(tensors: Sequence[Tensor], arrays: Mapping[str, ArrayLike]) -> list[bytes]:
    """Return each input's bytes, row-major and little-endian, in the model's order.

    Run-time sizes may be omitted: they follow from the other inputs' shapes.

    Raises:
        UsageError: an input is missing or unknown, or has another shape or type; the message has expected and found.
    """
    check_named(tensors, arrays)
    expected = {tensor.name for tensor in tensors}
    sized = {tensor.name for tensor in tensors if tensor.range is not None}
    if not expected - sized <= set(arrays) <= expected:
        needed = ", ".join(map(_described, required_inputs(tensors)))
        raise UsageError(
            "the names are not those of the model's inputs",
            details=[f"expected  {needed}", f"found     {', '.join(map(str, arrays)) or 'nothing'}"],
        )
    converted = {tensor.name: as_array(tensor.name, arrays[tensor.name]) for tensor in tensors if tensor.name in arrays}
    for tensor in required_inputs(tensors):
        if tensor.dims is not None and converted[tensor.name].ndim != len(tensor.dims):
            bytes_of(tensor.name, tensor, converted[tensor.name])  # raises the error that says what is wrong
    sizes = sizes_of(tensors, converted)
    return [
        bytes_of(tensor.name, tensor_at(tensor, sizes), converted[tensor.name])
        if tensor.range is None
        else np.int32(sizes[tensor.range.symbol]).astype("<i4").tobytes()
        for tensor in tensors
    ]


def zeros(tensors: Sequence[Tensor]) -> list[bytes]:
    """Return inputs of zeros, at the largest run-time sizes."""
    most = largest(tensors)
    return [
        bytes(tensor.bytes) if tensor.range is None else most[tensor.range.symbol].to_bytes(4, "little")
        for tensor in tensors
    ]


def sizes_in(tensors: Sequence[Tensor], data: Sequence[bytes]) -> dict[str, int]:
    """Return the run-time sizes from the bytes of the inputs."""
    return {
        tensor.range.symbol: int(np.frombuffer(piece, "<i4")[0])
        for tensor, piece in zip(tensors, data, strict=True)
        if tensor.range is not None
    }


def from_bytes(tensors: Sequence[Tensor], pieces: Sequence[bytes], sizes: Sizes | None = None) -> dict[str, Array]:
    """Return the outputs by name, at run-time sizes; the arrays own their memory and are writable."""
    return {
        tensor.name: array_of(tensor, piece, shape_at(tensor, sizes or {}))
        for tensor, piece in zip(tensors, pieces, strict=True)
    }


def check_named(tensors: Sequence[Tensor], arrays: object) -> None:
    """Refuse inputs without names.

    Raises:
        UsageError: they are not a mapping.
    """
    if not isinstance(arrays, Mapping):
        name = next((tensor.name for tensor in tensors), "input")
        raise UsageError(
            f"the inputs have the type {type(arrays).__name__}",
            details=["expected a mapping from input names to arrays"],
            hint=f'example: {{"{name}": array}}',
        )


def as_array(name: str, value: ArrayLike) -> Array:
    """Return an input as an array.

    Raises:
        UsageError: it is not one.
    """
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as wrong:
        raise UsageError(f"the input {name} is not an array", details=[str(wrong)]) from None


def bytes_of(name: str, tensor: Tensor | Operand, array: Array) -> bytes:
    """Return an input's bytes, row-major and little-endian.

    Raises:
        UsageError: its shape or type is not the model's or operator's; the message has both.
    """
    if array.dtype != np.dtype(tensor.dtype) or array.shape != tensor.shape:
        what = "type" if array.shape == tensor.shape else "shape"
        hint = f"x.reshape({tensor.shape})" if array.size == math.prod(tensor.shape) else ""
        if what == "type":
            hint = f"convert it: x.astype('{tensor.dtype}')"
        raise UsageError(
            f"input {name} has the wrong {what}",
            details=[
                f"expected  {shown(tensor.dtype, tensor.shape)}",
                f"found     {shown(array.dtype, array.shape)}",
            ],
            hint=hint,
        )
    if isinstance(tensor, Tensor) and tensor.stream is not None and tensor.stream.order:
        array = array.transpose(tensor.stream.order)
    data = array.astype(_wire_dtype(tensor.stored), copy=False).tobytes()
    assert len(data) == tensor.bytes, f"{name} has {tensor.bytes} bytes in the manifest, {len(data)} in NumPy"
    return data


def array_of(tensor: Tensor | Operand, data: bytes, shape: Sequence[int] | None = None) -> Array:
    """Return the array for a tensor's bytes; it owns its memory and is writable."""
    flat = np.frombuffer(data, _wire_dtype(tensor.stored)).astype(tensor.dtype)
    return flat.reshape(tensor.shape if shape is None else shape)


@functools.cache
def _wire_dtype(stored: str) -> np.dtype[Any]:
    return np.dtype(stored).newbyteorder("<")


def _described(tensor: Tensor) -> str:
    return f"{tensor.name} ({shown(tensor.dtype, tensor.dims or tensor.shape)})"


def shown(dtype: object, shape: Iterable[object]) -> str:
    """Return a type and a shape as text."""
    return f"{dtype}[{','.join(map(str, shape))}]"
