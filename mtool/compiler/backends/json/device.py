"""Device files: what an accelerator takes of a network, and which programs and drivers belong to it."""

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtool.base import invalid as problems
from mtool.base.errors import UsageError
from mtool.base.identifiers import KEYWORDS
from mtool.base.option_values import Rounding
from mtool.compiler.backends.interface import Operand, Operation, Pattern, Region
from mtool.compiler.ir import DType

Number = int | float
Allowed = bool | str | Number | list[bool | str | Number] | dict[Literal["min", "max"], Number]
Function = Annotated[str, Field(pattern=r"^[A-Za-z_]\w{0,60}$")]
Hook = Literal["activate", "open", "before", "after", "close", "deactivate"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Operator(_Table):
    """Operations of one kind that a device takes.

    op: the operator's name in ONNX; "Pool" is every pooling.
    rounding: the roundings of mtool that its integers equal; none: those of the device.
    dtypes: the element types of its variable operands and results; "float16" for float32 in the float16 mode.
    constant_dtypes: those of its constant operands; none: any.
    quantised: whether all of these variables stand on a grid with one scale, or on none.
    constants: the operands that have to be constants, if they are given, from 0.
    variables: how many operands are no constants.
    ranks: the dimensions that the first operand may have; none: any.
    same_shapes: all variable operands and results have one shape.
    same_grid: the first operand and the result stand on one grid.
    symmetric_weights: the zero points of constants are 0.
    groups: "one", "depthwise" (each channel by itself, to as many), or both; none: any.
    attributes: what an attribute may be: a value, a list of values, or {min=, max=}; for tuples, each number.
    """

    op: str
    rounding: list[Rounding] = []
    dtypes: list[str] = []
    constant_dtypes: list[str] = []
    quantised: bool | None = None
    constants: list[int] = []
    variables: int | None = None
    ranks: list[int] = []
    same_shapes: bool = False
    same_grid: bool = False
    symmetric_weights: bool = False
    groups: list[Literal["one", "depthwise"]] = []
    attributes: dict[str, Allowed] = {}


class Limits(_Table):
    """What a region may have at most; None: any amount.

    operations, inputs, outputs: how many.
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

    name: what mtool calls the backend, a name in C.
    layout: "NHWC": images have their channels last; "": as the model has them.
    rounding: the roundings of mtool that its integers equal; others need --tolerance.
    compiler, simulator: commands, in which {here} is the folder of this file.
    driver: a C file, or a folder of them, from this file on.
    driver_name: what stands before `_run`; default: the driver's file or folder name.
    scratch_bytes, alignment: what the driver wants of the arena.
    hooks: C functions of the driver that are called around its work, by occasion (crt/include/mt_device.h).
    resource: the driver's functions have one more parameter, the `void *resource` that the model's caller gives.
    memory: the board's memory where the device reads inputs and scratch and writes outputs; "": the arena's.
    cached: the core's cache holds what lies there.
    caches: C functions of the driver that clean and invalidate a range of the cache.
    """

    name: str = Field("json", pattern=r"^[a-z][a-z0-9_]{0,30}$")
    layout: Literal["", "NHWC"] = "NHWC"
    rounding: list[Rounding] = ["onnx", "tflite"]
    compiler: str = ""
    simulator: str = ""
    driver: str = ""
    driver_name: str = Field("", pattern=r"^([A-Za-z_]\w{0,60})?$")
    scratch_bytes: int = Field(0, ge=0, lt=2**31)
    alignment: Literal[4, 8, 16, 32, 64] = 4
    hooks: dict[Hook, Function] = {}
    resource: bool = False
    memory: str = Field("", pattern=r"^([A-Za-z_]\w{0,60})?$")
    cached: bool = True
    caches: dict[Literal["clean", "invalidate"], Function] = {}
    limits: Limits = Limits()
    operators: list[Operator]

    @cached_property
    def by_kind(self) -> Mapping[str, list[Operator]]:
        """The operators by their kind."""
        found: dict[str, list[Operator]] = {}
        for one in self.operators:
            found.setdefault(one.op, []).append(one)
        return found


def read(path: Path) -> Device:
    """Return what a device file says.

    Raises:
        UsageError: it is not there, no TOML, or says what makes no sense.
    """
    try:
        table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as failed:
        raise UsageError(f"the device file {path}: {failed.strerror}") from failed
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failed:
        raise UsageError(f"the device file {path} is no TOML", details=[str(failed)]) from failed
    try:
        found = Device.model_validate(table)
    except ValidationError as invalid:
        details = problems.lines(invalid, 8)
        raise UsageError(
            f"the device file {path} is malformed", details=details, hint="docs/backends-json.md lists what it may have"
        ) from invalid
    if found.caches and len(found.caches) != 2:
        raise UsageError(f"the device file {path} has to name both clean and invalidate in [caches]")
    taken = next((one for one in (found.name, found.driver_name) if one in KEYWORDS), None)
    if taken is not None:
        raise UsageError(f"the device file {path} has the name {taken}, which is a word of C")
    return found


MOVES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"})
"""Operations that round nothing."""


def dtype_of(operand: Operand, half: bool) -> DType:
    """Return the element type that an operand has on the device: float16 in place of float32 in the float16 mode."""
    return DType.FLOAT16 if half and operand.dtype is DType.FLOAT32 else operand.dtype


def bytes_of(operand: Operand, half: bool) -> int:
    """Return the bytes that an operand takes on the device."""
    return operand.type.count * dtype_of(operand, half).size


def refusal(device: Device, operation: Operation, half: bool, roundings: Collection[Rounding] = ()) -> str:
    """Return why a device can't compute an operation; "": it can.

    Args:
        device: what it takes.
        operation: the operation.
        half: float32 is float16 on the device.
        roundings: those that integers have to equal; none: they may differ.
    """
    known = device.by_kind.get(operation.kind)
    if known is None:
        return f"it has no {operation.kind}"
    is_exact = operation.kind in MOVES or all(one.dtype.is_float for one in operation.outputs)
    rules = [one for one in known if is_exact or {*roundings} <= {*(one.rounding or device.rounding)}]
    if not rules:
        allowed = dict.fromkeys(name for one in known for name in one.rounding or device.rounding)
        return f"it rounds as --rounding {' or '.join(allowed)} does: give that, or --tolerance 1"
    reasons = [_refused(one, device, operation, half) for one in rules]
    return "" if "" in reasons else reasons[-1]


def _refused(rule: Operator, device: Device, operation: Operation, half: bool) -> str:
    tensors = (*operation.variables, *operation.outputs)
    constants = [one for one in operation.inputs if one is not None and one.is_constant]
    return (
        _types(tensors, rule.dtypes, half)
        or _types(constants, rule.constant_dtypes, half)
        or Pattern(rule.op, (), device.layout, rule.quantised).refusal(operation)
        or _shape(rule, operation)
        or _operands(rule, operation)
        or _groups(rule, operation)
        or _attributes(rule.attributes, operation)
    )


def _types(tensors: Iterable[Operand], dtypes: list[str], half: bool) -> str:
    wrong = next((one for one in tensors if dtypes and dtype_of(one, half).label not in dtypes), None)
    return "" if wrong is None else f"{wrong.tensor} is {dtype_of(wrong, half).label}; it takes {' or '.join(dtypes)}"


def _shape(rule: Operator, operation: Operation) -> str:
    first = operation.inputs[0] if operation.inputs else None
    if rule.ranks and first is not None and len(first.shape) not in rule.ranks:
        return f"it has {len(first.shape)} dimensions"
    shapes = {one.shape for one in (*operation.variables, *operation.outputs)}
    if rule.same_shapes and len(shapes) > 1:
        return "its operands have several shapes"
    if rule.same_grid and first is not None and first.quant != operation.output.quant:
        return "its input and output are on two grids"
    return ""


def _operands(rule: Operator, operation: Operation) -> str:
    if rule.variables is not None and len(operation.variables) != rule.variables:
        return f"{len(operation.variables)} of its operands are no constants; it takes {rule.variables}"
    given = dict(enumerate(operation.inputs))
    wrong = next((given[one] for one in rule.constants if given.get(one) and not given[one].is_constant), None)  # type: ignore[union-attr]
    if wrong is not None:
        return f"{wrong.tensor} is no constant"
    quants = [one.quant for one in operation.inputs if one is not None and one.is_constant and one.quant is not None]
    return "its weights have zero points" if rule.symmetric_weights and any(any(q.zero_point) for q in quants) else ""


def _groups(rule: Operator, operation: Operation) -> str:
    group: Any = getattr(operation.attrs, "group", None)
    if not rule.groups or group is None:
        return ""
    weights = operation.operand(1).shape
    is_depthwise = group == weights[0] and weights[1] == 1
    fits = (group == 1 and "one" in rule.groups) or (is_depthwise and "depthwise" in rule.groups)
    return "" if fits else f"its channels are in {group} groups"


def _attributes(rules: Mapping[str, Allowed], operation: Operation) -> str:
    for name, allowed in rules.items():
        if name not in {one.name for one in fields(operation.attrs)}:
            return f"it has no attribute {name}"
        value: Any = getattr(operation.attrs, name)
        if any(not _meets(one, allowed) for one in (value if isinstance(value, tuple) else (value,))):
            return f"its {name} is {value}"
    return ""


def _meets(value: Any, allowed: Allowed) -> bool:
    if isinstance(allowed, dict):
        return bool(allowed.get("min", value) <= value <= allowed.get("max", value))
    return value in allowed if isinstance(allowed, list) else bool(value == allowed)


def too_much(limits: Limits, region: Region, half: bool) -> str:
    """Return what of a region is more than a device has; "": nothing."""
    constants = [
        sum(bytes_of(one, half) for one in operation.inputs if one is not None and one.is_constant)
        for operation in region.operations
    ]
    found = {
        "operations": len(region.operations),
        "inputs": len(region.inputs),
        "outputs": len(region.outputs),
        "constant_bytes": sum(constants),
        "memory_bytes": _most_bytes(region, constants, half) if limits.memory_bytes is not None else 0,
    }
    for name, count in found.items():
        most = getattr(limits, name)
        if most is not None and count > most:
            return f"it has {count:,} {name.replace('_', ' ')}; at most {most:,} fit"
    return ""


def _most_bytes(region: Region, constants: list[int], half: bool) -> int:
    """Return the bytes of an operation's constants and of all tensors that are needed then, where these are most."""
    count = len(region.operations)
    last = {one.value: number for number, operation in enumerate(region.operations) for one in operation.variables}
    last |= {one.value: count for one in region.outputs}
    lives = [(one, 0) for one in region.inputs]
    lives += [(one, number) for number, operation in enumerate(region.operations) for one in operation.outputs]
    needed = [*constants, 0]
    for operand, first in lives:
        for number in range(first, last.get(operand.value, first) + 1):
            needed[number] += bytes_of(operand, half)
    return max(needed)
