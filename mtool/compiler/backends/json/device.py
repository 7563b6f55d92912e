"""Device files: what an accelerator takes, and which programs and drivers belong to it."""

import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtool.base import invalid as problems
from mtool.base.errors import UsageError
from mtool.base.option_values import Rounding
from mtool.base.reserved import KEYWORDS

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
