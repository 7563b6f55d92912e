"""Run-time sizes of an inference: read from the shapes of its inputs, and the shapes that follow from them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mtool.base.errors import UsageError
from mtool.base.formulas import parsed
from mtool.manifest import Operand, Tensor

Sizes = Mapping[str, int]
"""Run-time sizes by the symbols that formulas have for them."""


def sizes_of(tensors: Sequence[Tensor], arrays: Mapping[str, ArrayLike]) -> dict[str, int]:
    """Return the run-time sizes that inputs have.

    Args:
        tensors: the model's inputs.
        arrays: those that are given, by name.

    Raises:
        UsageError: two of them disagree about a size, or it is out of its range.
    """
    found: dict[str, tuple[int, str]] = {}
    for tensor in (tensor for tensor in tensors if tensor.dims is not None and tensor.name in arrays):
        shape = np.shape(arrays[tensor.name])
        for place, (text, size) in enumerate(zip(tensor.dims or (), shape, strict=False)):
            if text.isidentifier():
                where = f"dimension {place} of {tensor.name}"
                known, there = found.setdefault(text, (size, where))
                if known != size:
                    raise UsageError(
                        "the inputs disagree about a size", details=[f"{there} is {known}", f"{where} is {size}"]
                    )
    for tensor in tensors:
        limits = tensor.range
        if limits is None:
            continue
        if tensor.name in arrays:
            given = int(np.asarray(arrays[tensor.name]))
            if found.setdefault(limits.symbol, (given, tensor.name))[0] != given:
                raise UsageError(
                    "the inputs disagree about a size",
                    details=[f"{found[limits.symbol][1]} is {found[limits.symbol][0]}", f"{tensor.name} is {given}"],
                )
        size, where = found.get(limits.symbol, (limits.most, ""))
        if where and not limits.least <= size <= limits.most:
            raise UsageError(
                f"{limits.dimension} is {size}, out of its range",
                details=[f"expected  {limits.least} to {limits.most}", f"found     {size}, as {where}"],
                hint=f"for larger ones compile with: --max {limits.dimension}={size}" if size > limits.most else "",
            )
    return {symbol: size for symbol, (size, _) in found.items()}


def shape_at(tensor: Tensor, sizes: Sizes) -> tuple[int, ...]:
    """Return a tensor's shape at run-time sizes."""
    return tensor.shape if tensor.dims is None else tuple(parsed(text).at(sizes) for text in tensor.dims)


def bytes_at(tensor: Tensor, sizes: Sizes) -> int:
    """Return a tensor's bytes at run-time sizes."""
    if tensor.dims is None:
        return tensor.bytes
    return int(np.prod(shape_at(tensor, sizes), dtype=np.int64)) * np.dtype(tensor.stored).itemsize


def operand_at(operand: Operand, sizes: Sizes) -> Operand:
    """Return an operator's tensor as it is at run-time sizes."""
    own: dict[str, Any] = {}
    if operand.dims is not None:
        shape = tuple(parsed(text).at(sizes) for text in operand.dims)
        own = {"shape": shape, "bytes": math.prod(shape) * np.dtype(operand.stored).itemsize, "dims": None}
    source = operand.source
    if source is not None and source.reshapes is not None:
        shapes = iter([tuple(parsed(text).at(sizes) for text in each) for each in source.reshapes])
        moves = tuple((what, next(shapes) if what == "reshape" else numbers) for what, numbers in source.moves)
        own["source"] = source.model_copy(update={"moves": moves, "reshapes": None})
    return operand.model_copy(update=own) if own else operand


def largest(tensors: Sequence[Tensor]) -> dict[str, int]:
    """Return the largest sizes that a model takes."""
    return {tensor.range.symbol: tensor.range.most for tensor in tensors if tensor.range is not None}


def smallest(tensors: Sequence[Tensor]) -> dict[str, int]:
    """Return the smallest sizes that a model takes."""
    return {tensor.range.symbol: tensor.range.least for tensor in tensors if tensor.range is not None}


def given_inputs(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the inputs that the caller has to give: all but the sizes, which follow from those."""
    return [tensor for tensor in tensors if tensor.range is None]
