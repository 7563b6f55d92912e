"""The interface of backends, which compute regions of a network instead of mtool's own C."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mtool.base import plural
from mtool.base.errors import BuildError, UsageError
from mtool.base.frozen import frozen
from mtool.base.option_values import Rounding
from mtool.compiler.ir import Graph
from mtool.compiler.ir.node import Attributes
from mtool.compiler.ir.types import Array, DType, Quant, TensorType
from mtool.compiler.kernels.external import Bytes, RegionCode
from mtool.compiler.kernels.target import Target


@frozen
class Operand:
    """A tensor that an operation reads or writes.

    value: its name in the graph, which is unique.
    tensor: its name in the user's model.
    type: its element type and shape, as it is stored.
    quant: the quantization of its integers; None: it is not quantized.
    data: the elements of a constant.
    """

    value: str
    tensor: str
    type: TensorType
    quant: Quant | None = None
    data: Array | None = field(default=None, compare=False, repr=False)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.type.shape

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant."""
        return self.data is not None

    @property
    def is_per_tensor(self) -> bool:
        """Whether it is quantized with one scale and one zero point."""
        return self.quant is not None and len(self.quant.scale) == 1

    @property
    def scales(self) -> tuple[float, ...]:
        """The scales of a quantized tensor."""
        assert self.quant is not None, f"{self.tensor} is not quantized"
        return self.quant.scale

    @property
    def zero_point(self) -> int:
        """The first zero point of a quantized tensor."""
        assert self.quant is not None, f"{self.tensor} is not quantized"
        return self.quant.zero_point[0]

    @property
    def elements(self) -> Array:
        """The elements; only constants have them."""
        assert self.data is not None, f"{self.tensor} is not constant"
        return np.ascontiguousarray(self.data)


@frozen
class Activation:
    """The real numbers between which an operation clips its result before it stores it.

    None: there is no limit on that side.
    """

    low: float | None = None
    high: float | None = None


@frozen
class Operation:
    """One operator of the user's model.

    kind: the operator, as ONNX calls it; "Pool" is every pooling; the attributes distinguish them.
    name: unique, derived from the model's own.
    origins: the nodes of the model that it comes from.
    inputs: its operands; None: an optional one that is absent.
    outputs: its results.
    attrs: its attributes, of the class that the kind has (mtool.compiler.operators).
    activation: the limits that clip its result; None: no limits.
    layout: "NHWC" or "NCHW" of an operator on images and sequences (channels last, or after the batch); "": the
        layout does not matter. Constants are as in ONNX: the weights of a Conv are OIHW.
    macs: its multiply-accumulates.
    """

    kind: str
    name: str
    origins: tuple[str, ...]
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand, ...]
    attrs: Attributes
    activation: Activation | None = None
    layout: str = ""
    macs: int = 0

    @property
    def output(self) -> Operand:
        """The first result."""
        return self.outputs[0]

    @property
    def variables(self) -> tuple[Operand, ...]:
        """The operands that are not constant."""
        return tuple(operand for operand in self.inputs if operand is not None and not operand.is_constant)

    def operand(self, number: int) -> Operand:
        """Return an operand that is present.

        Raises:
            IndexError: it is not.
        """
        operand = self.inputs[number]
        if operand is None:
            raise IndexError(f"{self.kind} {self.name} has no operand {number}")
        return operand


Allowed = bool | str | int | float | list[bool | str | int | float] | dict[Literal["min", "max"], int | float]
"""The allowed values of an attribute: one, several, or a number within limits."""


@frozen
class Pattern:
    """Operations of one kind that meet constraints.

    kind: the operator's, as ONNX calls it.
    dtypes: the element types that its variable operands and results may have (int8, float32); none: any.
    layout: the required layout; "": any.
    quantized: whether all variable operands and results are quantized with one scale; None: either.
    where: further constraints: each returns why an operation does not meet it, "" if it does.
    constant_dtypes: the element types of its constant operands; none: any.
    constants: the operands that must be constants if they are present, counted from 0.
    variables: the number of operands that are not constant.
    ranks: the numbers of dimensions that the first operand may have; none: any.
    same_shapes: all variable operands and results have one shape.
    same_grid: the first operand and the result are quantized alike.
    symmetric_weights: the zero points of constants are 0.
    groups: "one", "depthwise" (each channel by itself, to as many), "channelwise" (to any number); none: any.
    attributes: the allowed values of attributes; of a tuple, those of each number.
    """

    kind: str
    dtypes: Sequence[str] = ()
    layout: str = ""
    quantized: bool | None = None
    where: tuple[Callable[[Operation], str], ...] = ()
    constant_dtypes: Sequence[str] = field(default=(), kw_only=True)
    constants: Sequence[int] = field(default=(), kw_only=True)
    variables: int | None = field(default=None, kw_only=True)
    ranks: Sequence[int] = field(default=(), kw_only=True)
    same_shapes: bool = field(default=False, kw_only=True)
    same_grid: bool = field(default=False, kw_only=True)
    symmetric_weights: bool = field(default=False, kw_only=True)
    groups: Sequence[str] = field(default=(), kw_only=True)
    attributes: Mapping[str, Allowed] = field(default_factory=dict, kw_only=True)

    def refusal(self, operation: Operation) -> str:
        """Return why an operation of this kind does not match; "": it does."""
        return next(filter(None, self._refusals(operation)), "")

    def _refusals(self, operation: Operation) -> Iterator[str]:
        tensors = (*operation.variables, *operation.outputs)
        constants = [operand for operand in operation.inputs if operand is not None and operand.is_constant]
        for operands, dtypes in ((tensors, self.dtypes), (constants, self.constant_dtypes)):
            for x in operands:
                if dtypes and x.dtype.label not in dtypes:
                    yield f"{x.tensor} is {x.dtype.label}; expected {' or '.join(dtypes)}"
        if self.layout and operation.layout not in ("", self.layout):
            yield f"its layout is {operation.layout}; expected {self.layout}"
        if self.quantized:
            yield from (f"{x.tensor} is not quantized with one scale" for x in tensors if not x.is_per_tensor)
        if self.quantized is False and any(x.quant is not None for x in tensors):
            yield "it is quantized"
        first = operation.inputs[0] if operation.inputs else None
        if self.ranks and first is not None and len(first.shape) not in self.ranks:
            yield f"it has {plural.count(len(first.shape), 'dimension')}"
        if self.same_shapes and len({x.shape for x in tensors}) > 1:
            yield "its operands have several shapes"
        if self.same_grid and first is not None and first.quant != operation.output.quant:
            yield "its input and output are quantized differently"
        if self.variables is not None and len(operation.variables) != self.variables:
            yield f"{len(operation.variables)} of its operands are not constant; expected {self.variables}"
        for number, operand in enumerate(operation.inputs):
            if number in self.constants and operand is not None and not operand.is_constant:
                yield f"{operand.tensor} is not constant"
        if self.symmetric_weights and any(x.quant is not None and any(x.quant.zero_point) for x in constants):
            yield "its weights have zero points"
        group: int | None = getattr(operation.attrs, "group", None)
        if self.groups and group is not None and not self._takes_groups(group, operation.operand(1).shape):
            yield f"its channels are in {group} groups"
        for name, allowed in self.attributes.items():
            if name not in {field.name for field in fields(operation.attrs)}:
                yield f"it has no attribute {name}"
            value: Any = getattr(operation.attrs, name)
            if not all(_is_allowed(item, allowed) for item in (value if isinstance(value, tuple) else (value,))):
                yield f"its {name} is {value}"
        yield from (check(operation) for check in self.where)

    def _takes_groups(self, group: int, weights: Sequence[int]) -> bool:
        is_depthwise = group == weights[0] and weights[1] == 1
        return (
            (group == 1 and "one" in self.groups)
            or (is_depthwise and "depthwise" in self.groups)
            or (weights[1] == 1 and "channelwise" in self.groups)
        )


def _is_allowed(value: Any, allowed: Allowed) -> bool:
    if isinstance(allowed, dict):
        return bool(allowed.get("min", value) <= value <= allowed.get("max", value))
    return value in allowed if isinstance(allowed, list) else bool(value == allowed)


def refusal(patterns: Sequence[Pattern], operation: Operation) -> str:
    """Return why no pattern matches an operation, with the reason of the closest one; "": one matches."""
    same = [pattern for pattern in patterns if pattern.kind == operation.kind]
    if not same:
        return f"it has no pattern for {operation.kind}"
    reasons = [pattern.refusal(operation) for pattern in same]
    return "" if "" in reasons else reasons[-1]


class BackendError(BuildError):
    """A backend, or the compiler behind it, failed."""


class OperationsRefused(BackendError):
    """A compiler behind a backend refuses operations that the backend has claimed; the others are tried again.

    Args:
        what: the message.
        reasons: why, by the names of the operations.
        details, hint: as of every error.
    """

    def __init__(self, what: str, reasons: Mapping[str, str], *, details: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(what, details=[*details], hint=hint)
        self.reasons = dict(reasons)


@frozen
class BoardMemory:
    """A memory of the board (boards.yaml): its bytes, and its other contents ("data", "arena", "code", …)."""

    bytes: int
    holds: tuple[str, ...] = ()


@frozen
class Context:
    """The target that a backend compiles for.

    target: the core.
    board: the board's name.
    memories: the board's memories by name; none where an operating system places things.
    rounding: how integers are rounded in the rest of the network: "onnx" or "tflite".
    tolerance: by how many steps an integer of the backend may differ from that.
    """

    target: Target
    board: str = "host"
    memories: Mapping[str, BoardMemory] = field(default_factory=dict)
    rounding: Rounding = "onnx"
    tolerance: int = 0


@frozen
class Region:
    """A part of a network that one backend computes in one call.

    name: unique among the regions, used in C names.
    model: the network's name, the prefix of all its C names.
    operations: in an order in which they can be computed.
    inputs, outputs: the tensors that cross its border, each once.
    context: the target.
    body: the same as a graph, as the frontend leaves it and rounded as the rest of the network, for backends
        that compile graphs: its inputs and outputs are the region's. None: the region was not separated yet.
    """

    name: str
    model: str
    operations: tuple[Operation, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    context: Context
    body: Graph | None = field(default=None, compare=False, repr=False)

    @property
    def border_bytes(self) -> int:
        """The bytes that cross its border in one inference."""
        return sum(operand.type.bytes for operand in (*self.inputs, *self.outputs))

    @property
    def macs(self) -> int:
        """Its multiply-accumulates."""
        return sum(operation.macs for operation in self.operations)


@frozen
class Buffer:
    """A piece of a board memory that a region has while it is computed; its initial contents are undefined.

    memory: the board's name of the memory. If the board lists no memories, the buffer lies anywhere.
    bytes: its size; 0: that of the tensor or scratch that lies there.
    alignment: of its address, in bytes.
    cached: the core's cache holds what lies there.
    """

    memory: str
    bytes: Bytes = 0
    alignment: Bytes = 4
    cached: bool = True


@frozen
class Product(RegionCode):
    """A compiled region: the C of its call (mtool.compiler.kernels.external.RegionCode), its constants and buffers.

    constants: arrays in flash, by C name; none is empty.
    layouts: a description of their layout, by name.
    hooks: C functions of type `int32_t f(void)`, declared in the headers, that are called around the device's work:
        "activate", "open", "before", "after", "close", "deactivate"; mtool.h says when. Equal ones of several
        regions are called once.
    buffers: memories of the board, by name: "input0", "output0", …, "scratch", which then lie there while the region
        is computed, tensors being copied there before and back afterwards; any other name is working memory, which
        the three texts know as a `uint8_t *`.
    device: how the device itself, not the core, accesses memory: "reads", "writes" or "both" by `input0`, `scratch`,
        a buffer's or constant's name. A cached one is cleaned before the body, and invalidated after it if the device
        writes it.
    caches: C functions of type `void f(const void *address, size_t bytes)`, declared in the headers, which do that:
        "clean" and "invalidate". None: the core has no data cache, or none that the device does not see.
    """

    constants: Mapping[str, Array] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict)
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    device: Mapping[str, str] = field(default_factory=dict)
    caches: Mapping[str, str] = field(default_factory=dict)


class Backend:
    """A backend: derive a class, give it a `name`, and define what it claims and how it is compiled.

    Args:
        options: as the user gave them: `--backend name:key=value`.

    Raises:
        UsageError: an option is not one of `options`, or its value is invalid.
    """

    name: str = ""
    patterns: Sequence[Pattern] = ()
    """The operations that it can compute."""
    options: Mapping[str, str] = {}
    """Its own options, with a description of each."""
    layout: str = ""
    """"NHWC": operators on images need their channels last; transpositions are put at the borders."""
    whole_regions: bool = True
    """Whether a region may have several operations."""

    def __init__(self, options: Mapping[str, str]) -> None:
        unknown = next((key for key in options if key not in self.options), None)
        if unknown is not None:
            message = f"the backend {self.name} has no option {unknown}"
            raise UsageError(message, details=[f"it has: {', '.join(sorted(self.options)) or 'none'}"])
        self.values = dict(options)

    def one_of(self, key: str, values: Sequence[str], default: str = "") -> str:
        """Return the value of an option with these allowed values.

        Raises:
            UsageError: it is another.
        """
        value = self.values.get(key, default)
        if value not in values:
            message = f"the backend {self.name} has {key}={value}; expected {' or '.join(filter(None, values))}"
            raise UsageError(message, hint=f"for instance: --backend {self.name}:{key}={next(filter(None, values))}")
        return value

    def refusal(self, operation: Operation, context: Context) -> str:
        """Return why it can't compute an operation; "": it can."""
        return refusal(self.patterns, operation)

    def claims(self, region: Region) -> str:
        """Return why it can't compute a region whose operations it can compute one by one; "": it can.

        It is called as a region grows, so that a device's limits can stop the growth.
        """
        return ""

    def cost(self, region: Region) -> float | None:
        """Return the cost of a region in instructions of the core, including copies at its border.

        The region is compiled to C instead if mtool's own estimate for that is not larger; `mtool check` reports
        this. None: it is always worth it.
        """
        return None

    def files(self, region: Region) -> Mapping[str, bytes]:
        """Return the input files of a region's external compiler, by file name; none: there is no such compiler."""
        return {}

    def compile(self, region: Region, folder: Path) -> Product:
        """Return the product that computes a region.

        Args:
            region: the region.
            folder: an empty folder for the backend's own files; it is deleted afterwards.

        Raises:
            BackendError: it can't; the region is left to C if the user allows that.
        """
        raise NotImplementedError
