"""Device files: the operations that an accelerator supports, and its programs and drivers."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import ConfigDict, Field

from mtool.base import configuration, records
from mtool.base.errors import UsageError
from mtool.base.identifiers import is_keyword
from mtool.base.option_values import Rounding
from mtool.base.records import Strict
from mtool.compiler.backends.interface import Allowed, Operand, Operation, Pattern, Region
from mtool.compiler.backends.interface import refusal as refusal_by
from mtool.compiler.ir import DType

Function = Annotated[str, Field(pattern=r"^[A-Za-z_]\w{0,60}$")]
Hook = Literal["activate", "open", "before", "after", "close", "deactivate"]


class _Table(Strict):
    model_config = ConfigDict(strict=True)


class Operator(_Table):
    """Operations of one kind that a device supports. In the float16 mode, float32 is "float16".

    op: the operator's name in ONNX; "Pool" is every pooling.
    rounding: the roundings of mtool that its integers equal; none: those of the device.
    dtypes: the element types that variable operands and results may have; none: any.
    constant_dtypes: the element types of constant operands; none: any.
    quantized: whether all variable operands and results are quantized with one scale; missing: either.
    constants: the operands that must be constants if they are present, counted from 0.
    variables: the number of operands that are not constant.
    ranks: the numbers of dimensions that the first operand may have; none: any.
    same_shapes: all variable operands and results have one shape.
    same_grid: the first operand and the result have one scale and zero point.
    symmetric_weights: the zero points of constants are 0.
    groups: of a convolution's channels: "one", or "depthwise" (each channel by itself); none: any.
    attributes: the allowed values of attributes; of a tuple, those of each number.
    """

    op: str
    rounding: list[Rounding] = Field(default=[])
    dtypes: list[str] = Field(default=[])
    constant_dtypes: list[str] = Field(default=[])
    quantized: bool | None = None
    constants: list[int] = Field(default=[])
    variables: int | None = None
    ranks: list[int] = Field(default=[])
    same_shapes: bool = False
    same_grid: bool = False
    symmetric_weights: bool = False
    groups: list[Literal["one", "depthwise"]] = Field(default=[])
    attributes: dict[str, Allowed] = Field(default={})

    def pattern(self, layout: str) -> Pattern:
        """Return the pattern for a device with this layout."""
        return Pattern(self.op, layout=layout, **self.model_dump(exclude={"op", "rounding"}))


class Limits(_Table):
    """The limits of a region, which grows until one is reached.

    operations, inputs, outputs: their numbers.
    constant_bytes: all constants together.
    memory_bytes: the constants of an operation and the tensors that are needed while it is computed.
    """

    operations: int | None = Field(default=None, ge=1)
    inputs: int | None = Field(default=None, ge=1)
    outputs: int | None = Field(default=None, ge=1)
    constant_bytes: int | None = Field(default=None, ge=0)
    memory_bytes: int | None = Field(default=None, ge=0)


class Device(_Table):
    """A device file.

    name: the backend's name, valid in C.
    layout: "NHWC": images have their channels last; "": as the model has them.
    rounding: the roundings of mtool that its integers equal; others need --tolerance.
    compiler, simulator: commands, in which {here} is the folder of this file.
    driver: a C file, or a folder of .c, .h and .inc files, relative to this file.
    driver_name: the name before `_run`; default: the driver's file or folder name.
    scratch_bytes, alignment: the driver's working memory in the arena.
    hooks: C functions of the driver that are called around its work, by occasion (crt/include/mtool.h).
    resource: the driver's functions have one more parameter, the `void *resource` that the model's caller gives.
    memory: the board's memory where the device reads inputs and scratch and writes outputs; "": the arena's.
    cached: the core's cache holds what lies there.
    caches: C functions of the driver, void f(const void *address, size_t bytes): clean before its work, for what the
        device reads or writes; invalidate after it, for what it writes.
    limits: of a region.
    operators: an operation that meets one of them is claimed.
    """

    name: str = Field("json", pattern=r"^[a-z][a-z0-9_]{0,30}$")
    layout: Literal["", "NHWC"] = "NHWC"
    rounding: list[Rounding] = Field(default=["onnx", "tflite"])
    compiler: str = ""
    simulator: str = ""
    driver: str = ""
    driver_name: str = Field("", pattern=r"^([A-Za-z_]\w{0,60})?$")
    scratch_bytes: int = Field(0, ge=0, lt=2**31)
    alignment: Literal[4, 8, 16, 32, 64] = 4
    hooks: dict[Hook, Function] = Field(default={})
    resource: bool = False
    memory: str = Field("", pattern=r"^([A-Za-z_]\w{0,60})?$")
    cached: bool = True
    caches: dict[Literal["clean", "invalidate"], Function] = Field(default={})
    limits: Limits = Limits()
    operators: list[Operator]


def read(path: Path) -> Device:
    """Read a device file.

    Raises:
        UsageError: it is missing, is not TOML, or is malformed.
    """
    tables, problem = configuration.read_toml(path, "the device file ")[0], f"the device file {path} is malformed"
    device = records.read(Device, tables, problem, hint="docs/backends-json.md lists its keys", most=8)
    if device.caches and len(device.caches) != 2:
        raise UsageError(f"the device file {path} must name both clean and invalidate in [caches]")
    keyword = next((name for name in (device.name, device.driver_name) if is_keyword(name)), None)
    if keyword is not None:
        raise UsageError(f"the device file {path} has the name {keyword}, which is a keyword in C")
    return device


MOVES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"})
"""Operations that do not round."""


def on_device(region: Region) -> Region:
    """Return a region as a device in float16 mode computes it: its float32 tensors are float16."""
    return replace(
        region,
        operations=tuple(map(operation_on_device, region.operations)),
        inputs=tuple(map(_halved, region.inputs)),
        outputs=tuple(map(_halved, region.outputs)),
    )


def operation_on_device(operation: Operation) -> Operation:
    """Return an operation as a device in float16 mode computes it."""
    inputs = tuple(None if operand is None else _halved(operand) for operand in operation.inputs)
    return replace(operation, inputs=inputs, outputs=tuple(map(_halved, operation.outputs)))


def _halved(operand: Operand) -> Operand:
    if operand.dtype is not DType.FLOAT32:
        return operand
    with np.errstate(over="ignore"):
        data = None if operand.data is None else operand.data.astype(DType.FLOAT16.numpy)
    return replace(operand, type=replace(operand.type, dtype=DType.FLOAT16), data=data)


def refusal(device: Device, operation: Operation, roundings: Collection[Rounding] = ()) -> str:
    """Return why a device can't compute an operation; "": it can.

    Args:
        device: the device.
        operation: the operation, as the device computes it.
        roundings: those that integers must equal; none: they may differ.
    """
    candidates = [rule for rule in device.operators if rule.op == operation.kind]
    is_exact = operation.kind in MOVES or all(operand.dtype.is_float for operand in operation.outputs)
    rules = [rule for rule in candidates if is_exact or {*roundings} <= {*(rule.rounding or device.rounding)}]
    if candidates and not rules:
        allowed = dict.fromkeys(name for rule in candidates for name in rule.rounding or device.rounding)
        return f"it rounds as --rounding {' or '.join(allowed)} does: give that, or --tolerance 1"
    return refusal_by([rule.pattern(device.layout) for rule in rules], operation)


def too_much(limits: Limits, region: Region) -> str:
    """Return which of the device's limits a region exceeds; "": none."""
    constants = [
        sum(operand.type.bytes for operand in operation.inputs if operand is not None and operand.is_constant)
        for operation in region.operations
    ]
    counts = {
        "operations": len(region.operations),
        "inputs": len(region.inputs),
        "outputs": len(region.outputs),
        "constant_bytes": sum(constants),
        "memory_bytes": _most_bytes(region, constants) if limits.memory_bytes is not None else 0,
    }
    for name, count in counts.items():
        most = getattr(limits, name)
        if most is not None and count > most:
            return f"it has {count:,} {name.replace('_', ' ')}; at most {most:,} fit"
    return ""


def _most_bytes(region: Region, constants: list[int]) -> int:
    """Return the largest sum of an operation's constants and all tensors that are live then, in bytes."""
    count = len(region.operations)
    last = {x.value: number for number, operation in enumerate(region.operations) for x in operation.variables}
    last |= {x.value: count for x in region.outputs}
    lives = [(x, 0) for x in region.inputs]
    lives += [(x, number) for number, operation in enumerate(region.operations) for x in operation.outputs]
    needed = [*constants, 0]
    for operand, first in lives:
        for number in range(first, last.get(operand.value, first) + 1):
            needed[number] += operand.type.bytes
    return max(needed)
