"""An ONNX node during import, from which an operator's canonical form is made.

All opset versions of an operator have the same canonical form: axes, pads, shapes and bounds are plain attributes,
never negative; all kinds of views are a `Reshape` with one input.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from math import prod
from typing import Any, Self, TypeVar

import numpy as np
import onnx
from onnx import helper

from mtool.base.frozen import frozen
from mtool.compiler.ir import Attributes, DType, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.bounds import Bound
from mtool.compiler.operators.budget import Budget
from mtool.compiler.operators.problems import Unsupported, ValueNeeded

OPSET = {"": 23}
"""The opset of the nodes that operators expand to."""
Attrs = Mapping[str, Any]
A = TypeVar("A", bound=Attributes)
Operand = str | float | list[int] | Array | np.generic
NO_ATTRIBUTES = Attributes()


class Names:
    """The names of the values and nodes of a model under construction."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last number of each stem

    def is_taken(self, name: str) -> bool:
        """Whether this name is in use."""
        return name in self._names

    def unique(self, stem: str) -> str:
        """Return a name that is not taken."""
        number = self._numbers.get(stem, 0)
        name = f"{stem}.{number}" if number else stem
        while self.is_taken(name):
            number += 1
            name = f"{stem}.{number}"
        self._numbers[stem] = number
        self._names.add(name)
        return name


class ImportState(Names):
    """The part of an import's state that operators need; the rest is in mtool/compiler/frontend/importer.py."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self.budget = budget
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.bounds: dict[str, Bound] = {}

    def is_taken(self, name: str) -> bool:
        """Whether this name is in use."""
        return name in self._names or name in self.types

    def constant(self, stem: str, data: Array) -> str:
        """Add a constant and return its name."""
        name = self.unique(stem)
        self.add_constant(name, data)
        return name

    def add_constant(self, name: str, data: Array) -> None:
        """Make a value a constant."""
        data = np.ascontiguousarray(data).reshape(np.shape(data))
        self.budget.spend("constants", data.nbytes, f"constant {name!r}")
        self.constants[name] = data
        self.types[name] = TensorType(DType.of(data.dtype), data.shape)

    def value_of(self, name: str, role: str) -> Array:
        """Return the value of a constant; `role` is the operator's name for this input.

        Raises:
            ValueNeeded: it is not a constant.
        """
        if name not in self.constants:
            raise ValueNeeded(name, role)
        return self.constants[name]

    def emit(
        self, op: str, origin: str, inputs: list[str], outputs: list[str], attrs: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Append a canonical node; its outputs must have types."""
        raise NotImplementedError

    def run(self, proto: onnx.NodeProto, opsets: Mapping[str, int]) -> None:
        """Import one node; a problem with it is recorded, and nodes that depend on it are skipped.

        Raises:
            ModelError: it exceeds the budget.
        """
        raise NotImplementedError


def attributes_of(kind: type[A], attrs: Attrs, **fixed: Any) -> A:
    """Return an operator's attributes from the file's attributes with the names of the class's fields.

    Missing attributes have the field's default; attributes without a field are ignored. `fixed` are fields with given
    values.
    """
    names = {field.name for field in fields(kind)}
    return kind(**{**{name: value for name, value in attrs.items() if name in names}, **fixed})


class OnnxNode:
    """One node of the model. A canonical form calls `emit`; an operator that expands to others calls the node.

    attrs: its attributes, except graphs; version: its operator set's version; origin: its name in messages.
    """

    def __init__(self, state: ImportState, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        self.state, self.proto, self.origin, self.attrs, self.version = state, proto, origin, attrs, version
        self.op, self.inputs, self.outputs = proto.op_type, list(proto.input), list(proto.output)

    def input(self, index: int) -> str:
        """Return the name of an input; empty: it is not given."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def kind(self, value: str | int) -> TensorType:
        """Return the type of a value, or of an input by its number."""
        return self.state.types[value if isinstance(value, str) else self.inputs[value]]

    def dtype(self, value: str) -> Any:
        """Return a value's NumPy type."""
        return self.kind(value).dtype.numpy

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first input."""
        return self.kind(0).shape

    @property
    def result(self) -> TensorType:
        """The type of the first output."""
        return self.state.types[self.outputs[0]]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of all inputs; () for inputs that are not given."""
        types = self.state.types
        return [types[name].shape if name in types else () for name in self.inputs]

    @property
    def ins(self) -> list[tuple[int, ...]]:
        """The same, with () also for omitted inputs at the end."""
        return [*self.shapes, *[()] * 8]

    @property
    def outs(self) -> list[tuple[int, ...]]:
        """The shapes of the outputs that exist."""
        return [self.state.types[name].shape for name in self.outputs if name]

    def is_absent_or(self, index: int, *expected: tuple[int, ...]) -> bool:
        """Whether an input is not given, or has one of these shapes."""
        return not self.input(index) or self.shapes[index] in expected

    def axis(self, default: int, rank: int | None = None) -> int:
        """Return the attribute `axis` as 0 … rank - 1; the default rank is the first input's."""
        axis: int = self.attrs.get("axis", default)
        return axis % max(len(self.shape) if rank is None else rank, 1)

    def vector(self, key: str, index: int) -> tuple[int, ...] | None:
        """Return a list that is an attribute in old opsets and a constant input in new ones; None: not given."""
        if key in self.attrs:
            return tuple(self.attrs[key])
        if self.input(index):
            return tuple(int(number) for number in np.atleast_1d(self.state.value_of(self.inputs[index], key)))
        return None

    def number(self, index: int, role: str) -> int:
        """Return a constant scalar input."""
        return int(self.state.value_of(self.inputs[index], role).item())

    def word(self, key: str, default: str = "NONE") -> str:
        """Return a string attribute."""
        return str(self.attrs.get(key, default))

    def value(self, stem: str, kind: TensorType) -> str:
        """Return the name of a new value of a type."""
        name = self.state.unique(f"{self.origin}/{stem}")
        self.state.types[name] = kind
        return name

    def emit(
        self,
        attrs: Attributes | None = None,
        *,
        op: str = "",
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> None:
        """Append a canonical node; by default, of this operator with all its inputs and outputs."""
        ins, outs = (self.inputs if inputs is None else inputs), (self.outputs if outputs is None else outputs)
        self.state.emit(op or self.op, self.origin, list(ins), list(outs), attrs or NO_ATTRIBUTES)

    @classmethod
    def form(cls, write: Callable[[Self], None]) -> "Canonical":
        """Return the form of an operator that `write` expands."""
        return lambda node: write(cls(node.state, node.proto, node.origin, node.attrs, node.version))

    def __call__(self, op: str, *operands: Operand, **attrs: Any) -> str:
        """Write an ONNX node with one output and return that; otherwise as `several`.

        Raises:
            Unsupported: it can't be compiled; the reason is recorded.
        """
        return self.several(op, 1, *operands, **attrs)[0]

    def several(self, op: str, count: int, *operands: Operand, **attrs: Any) -> list[str]:
        """Write an ONNX node and return its outputs; attributes of None are omitted.

        An operand is a value's name or a constant: a number gets the type of the named operands, a list int64, and a
        NumPy value keeps its type.

        Raises:
            Unsupported: it can't be compiled; the reason is recorded.
        """
        inputs = [operand if isinstance(operand, str) else self._operand(operand, operands) for operand in operands]
        outputs = [self.state.unique(f"{self.origin}/{op}") for _ in range(count)]
        self.write(op, inputs, outputs, **attrs)
        if any(output not in self.state.types for output in outputs):
            raise Unsupported(f"it expands to a {op} that can't be compiled")
        return outputs

    def _operand(self, data: Any, others: Sequence[Operand]) -> str:
        if isinstance(data, np.ndarray | np.generic | list):
            return self.constant(data, np.int64 if isinstance(data, list) else data.dtype)
        named = [self.dtype(operand) for operand in others if isinstance(operand, str)]
        return self.constant(data, next((dtype for dtype in named if dtype != np.bool_), np.float32))

    def write(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> None:
        """Write an ONNX node with named outputs, such as this node's; attributes of None are omitted."""
        present = {key: value for key, value in attrs.items() if value is not None}
        self.state.run(helper.make_node(op, inputs, outputs, name=self.origin, **present), OPSET)

    def canonical(self, op: str, inputs: Sequence[str], output: str, attrs: Attributes | None = None) -> str:
        """Append a canonical node with one output, a new value, and return that."""
        self.emit(attrs, op=op, inputs=inputs, outputs=[output])
        return output

    def constant(self, data: Any, dtype: Any = np.float32) -> str:
        """Add a constant and return its name."""
        return self.state.constant(f"{self.origin}/parameter", np.asarray(data, dtype))

    def set_output(self, value: str, index: int = 0) -> None:
        """Set the operator's output `index`, if the node has it, to a value."""
        if index < len(self.outputs) and self.outputs[index]:
            self.write("Identity", [value], [self.outputs[index]])

    def refuse(self, **named: Any) -> None:
        """Refuse inputs and attributes that are given but not supported, by name.

        Raises:
            Unsupported: one is given.
        """
        for name, value in named.items():
            if value:
                raise Unsupported(f"its {name} is not supported")


def spreads(shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether one shape can be broadcast to another."""
    try:
        return np.broadcast_shapes(shape, result) == result
    except ValueError:
        return False


def scalars_behind_first(node: OnnxNode) -> bool:
    """Whether every input except the first is a single number."""
    return all(prod(shape) == 1 for shape in node.shapes[1:])


Canonical = Callable[[OnnxNode], None]


def with_axis(kind: type[Attributes], default: int) -> Canonical:
    """Return the form of an operator with an `axis`, which becomes 0 … rank - 1; `default`: if it is not given."""
    return lambda node: node.emit(attributes_of(kind, node.attrs, axis=node.axis(default)))


def first_input(node: OnnxNode) -> None:
    """The form of an operator whose further inputs only determine its output's shape."""
    node.emit(inputs=node.inputs[:1])


def computed(*roles: str) -> Canonical:
    """Return the form of an operator that is computed at compile time and needs constant inputs."""

    def canonical(node: OnnxNode) -> None:
        for name, role in zip(node.inputs, roles, strict=False):
            node.state.value_of(name, role)

    return canonical


def as_in_onnx(node: OnnxNode) -> None:
    """The form of an operator of another domain that is also in ONNX."""
    for index, output in enumerate(node.several(node.op, len(node.outputs), *node.inputs, **node.attrs)):
        node.set_output(output, index)


# The valid ranges of constant indices and lengths among a node's inputs.


@frozen
class IndexRange:
    """The valid range of a node's input; `low` and `high` are broadcast to it.

    size: the sizes of the dimensions, for messages.
    """

    index: int
    low: Array
    high: Array
    size: Array


IndexRanges = Callable[[OnnxNode], IndexRange]
"""Returns a node's range; IndexError or ValueError: it can't be determined."""


def index_of(index: int, size: Any, *, from_end: bool = True) -> IndexRange:
    """Return the range of an index into dimensions of a size; `from_end`: it may be negative."""
    sizes = np.asarray(size, np.int64)
    return IndexRange(index, -sizes if from_end else np.zeros_like(sizes), sizes - 1, sizes)


def length_of(index: int, size: int) -> IndexRange:
    """Return the range of a length along a dimension."""
    return IndexRange(index, np.array(0), np.array(size), np.array(size))


def index_along(node: OnnxNode) -> IndexRange:
    """Return the range of the second input as indices along `axis` of the first."""
    return index_of(1, node.shapes[0][node.attrs.get("axis", 0)])


# QOperator models: each QLinear operator is written as dequantize, the float operator, quantize.
#
# Sources: ONNX QLinearConv, QLinearMatMul (ai.onnx 10), and onnxruntime's contrib operators (com.microsoft) that its
# quantizer writes. Each is in the file of its float operator.


class QLinear(OnnxNode):
    """A node with integer operands, each followed by a scale and a zero point."""

    def dequantize(self, start: int, axis: int | None = None) -> str:
        """Dequantize input `start` by the scale and zero point that follow it."""
        return self.dequantize_by(self.inputs[start], self.input(start + 1), self.input(start + 2), axis=axis)

    def dequantize_by(self, value: str, scale: str, zero_point: str = "", *, axis: int | None = None) -> str:
        """Dequantize a value; several scales lie along `axis`."""
        per_axis = len(self.kind(scale).shape) == 1 and self.kind(scale).count > 1
        inputs = [value, scale, zero_point] if zero_point else [value, scale]
        return self("DequantizeLinear", *inputs, axis=axis if per_axis else None)

    def bias(self, index: int, x_scale: str, w_scale: str) -> str:
        """Dequantize a bias, whose scale is the product of the operands'."""
        constants = self.state.constants
        if x_scale in constants and w_scale in constants:
            scale = (constants[x_scale] * constants[w_scale]).astype("float32")
            product = self.state.constant(f"{self.origin}/bias_scale", scale)
        else:
            product = self("Mul", x_scale, w_scale)
        return self.dequantize_by(self.inputs[index], product, axis=0)

    def quantize(self, value: str, start: int) -> None:
        """Quantize into the operator's own output by inputs `start` and `start + 1`."""
        parameters = [name for name in self.inputs[start : start + 2] if name]
        self.write("QuantizeLinear", [value, *parameters], self.outputs[:1])


def qlinear_unary(op: str, *without: str) -> Canonical:
    """Return the form of an operator with one operand; `without`: attributes that the float operator lacks."""

    def write(parts: QLinear) -> None:
        attrs: dict[str, Any] = {key: value for key, value in parts.attrs.items() if key not in without}
        parts.quantize(parts(op, parts.dequantize(0), **attrs), 3)

    return QLinear.form(write)


def qlinear_binary(op: str) -> Canonical:
    """Return the form of an operator with two operands."""
    return QLinear.form(lambda parts: parts.quantize(parts(op, parts.dequantize(0), parts.dequantize(3)), 6))
