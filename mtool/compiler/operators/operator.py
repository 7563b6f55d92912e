"""The record of an operator: everything about it, from the file's node to internal operators, and its test cases.

Cases are random valid nodes for the unit tests, the fuzzers and the board tests.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.base.frozen import frozen
from mtool.compiler.ir import Attributes, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.bounds import Carry
from mtool.compiler.operators.folding import SLOW, Folding
from mtool.compiler.operators.lowering import Lower
from mtool.compiler.operators.onnx_node import Canonical, IndexRanges, OnnxNode

Infer = Callable[[Attributes, Sequence[TensorType]], Sequence[TensorType]]
"""Returns the types of the outputs, from the attributes and the types of the given inputs."""

Bound = Callable[[OnnxNode, int | None], Sequence[tuple[TensorType, int | None]]]
"""Returns the types of outputs whose size depends on data, with their maximum size.

The arguments are the node and the given maximum; without one it is derived from the inputs' shapes. Each type comes
with the dimension whose size depends on data, or None.
"""


Cases = Callable[["Draw", "Operator"], "Case"]
"""Draws a node of an operator; ValueError: no value is suitable."""


@frozen
class TfliteBuiltin:
    """A TFLite builtin that maps directly to an operator.

    inputs: the number of its inputs.
    is_stored: it computes with the stored elements, not with the real numbers that they represent.
    """

    name: str
    inputs: int = 1
    is_stored: bool = False


INSIDE = (0, -1)
BEHIND = (0, 0)


@frozen
class Operator:
    """An operator.

    name, domain: as in a model; "" is ONNX's own domain.
    attributes: the class of its canonical node's attributes, whose fields have the model's names.
    canonical: the canonical form, which emits canonical nodes; None: the node itself, if it has a lowering.
    expand: the ONNX nodes that it expands to; then it has no other form.
    rewrite: an equivalent ONNX node, if there is one, which replaces it before inference.
    words: the valid values of a string attribute.
    axis_ends: the valid range of the attribute `axis`: from the first less the input's rank, to the second plus the
        rank; None: it is not always an axis of the first input.
    check: checks the attributes against the shapes of the inputs; it raises `Unsupported`.
    check_constants: checks the values of the inputs if all are constants; it raises `Unsupported`.
    check_shapes: whether the shapes of inputs and outputs match, which onnx's inference may not check;
        shapes_from: the first opset that it applies to.
    index_ranges: the valid ranges of constant indices among the inputs.
    sizes: inputs whose values determine the shapes of the outputs; most_sizes: their largest number of elements.
    keeps_empty: an empty input gives an empty output, whatever the values of those inputs.
    is_declared: the model may declare the output's shape although those inputs are constants.
    bound: the maximum size of outputs whose size depends on data.
    carry: the position in the output of an input's dimension whose size depends on data.
    infer: the types of the outputs, if onnx has no inference.
    zero_point: the number of the input with the zero point of integer inputs; None: it has none.
    moves: it only moves elements: quantized constants stay integers.
    folding: its evaluation when all inputs are constants.
    tflite: the TFLite builtins that map directly to this operator.
    cases: random valid nodes for tests and fuzzers; None: its results are random or not tensors, or neither
        onnxruntime nor onnx computes it. mtool's own operators (`OWN`) have no cases: no file contains them.
    lower: its canonical node as internal operators; None: it has no canonical node.
    package: the entry point of the installed package that it is from; mtool sets it.
    """

    name: str
    _: KW_ONLY
    domain: str = ""
    attributes: type[Attributes] = Attributes
    canonical: Canonical | None = None
    expand: Canonical | None = None
    rewrite: Callable[[OnnxNode], onnx.NodeProto | None] | None = None
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    axis_ends: tuple[int, int] | None = INSIDE
    check: Callable[[OnnxNode], None] | None = None
    check_constants: Callable[[Sequence[Array]], None] | None = None
    check_shapes: Callable[[OnnxNode], bool] | None = None
    shapes_from: int = 1
    index_ranges: IndexRanges | None = None
    sizes: tuple[int, ...] = ()
    most_sizes: int = 1024
    keeps_empty: bool = False
    is_declared: bool = False
    bound: Bound | None = None
    carry: Carry | None = None
    infer: Infer | None = None
    zero_point: Callable[[int], int | None] | None = None
    moves: bool = False
    folding: Folding = SLOW
    tflite: tuple[TfliteBuiltin, ...] = ()
    cases: Cases | None = lambda draw, op: by_schema(draw, op)
    lower: Lower | None = None
    package: str = ""


SIZES = (1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12)


@frozen
class Value:
    """A tensor of a network."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)


@frozen
class Grid:
    """The scale of integers, and the constants that are their scale and their zero point."""

    scale: float
    names: tuple[str, str]


@dataclass(slots=True)
class Draw:
    """A network under construction: the values that a node may read, and constants.

    other_types: the probability of an element type other than float32, for operators with several.
    """

    rng: random.Random
    inputs: list[Value] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    grids: dict[str, "Grid"] = field(default_factory=dict)
    opset: int = 18
    other_types: float = 0.2
    numbering: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def fresh(self, stem: str) -> str:
        """Return an unused name."""
        return f"{stem}{next(self.numbering)}"

    def input(self, dtype: Any, shape: Sequence[int]) -> Value:
        """Add an input."""
        value = Value(self.fresh("x"), np.dtype(dtype), tuple(shape))
        self.inputs.append(value)
        self.values[value.name] = value
        return value

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Draw a shape; equal sizes are frequent, so that a mistaken axis changes values instead of shapes."""
        rng = self.rng
        rank = rng.choice((0, 1, 2, 2, 3, 3, 4, 4, 4, 5)) if rank is None else rank
        if rng.random() < 0.35:
            return (rng.choice((2, 3, 3, 4)),) * rank
        if rank == 4 and rng.random() < 0.6:
            return (1, rng.choice((1, 2, 3, 4, 6, 8)), rng.randint(3, 9), rng.randint(3, 9))
        return tuple(rng.choice(SIZES if rank < 4 else (1, 2, 3, 3, 4, 5, 7)) for _ in range(rank))

    def pick(self, dtype: Any = np.float32, rank: int | None = None) -> Value:
        """Choose a value, preferring recent ones; for types other than float32, add an input if needed.

        Raises:
            ValueError: there is no suitable value.
        """
        values = [v for v in self.values.values() if v.dtype == dtype and (rank is None or v.rank == rank)]
        if not values and dtype is np.float32:
            raise ValueError("no suitable value")
        if not values:
            return self.input(dtype, self.shape(self.rng.choice((1, 2, 3)) if rank is None else rank))
        return values[-1] if self.rng.random() < 0.5 else self.rng.choice(values[-6:])

    def axis(self, value: Value) -> int:
        """Choose an axis, sometimes counted from the end.

        Raises:
            ValueError: it has no dimensions.
        """
        return self.rng.randrange(-value.rank, value.rank)

    def numbers(self) -> "np.random.Generator":
        """Return a generator seeded by the network's own one."""
        return np.random.default_rng(self.rng.getrandbits(32))

    def constant(self, data: Any, dtype: Any) -> str:
        """Add a constant and return its name."""
        name = self.fresh("k")
        self.constants[name] = np.asarray(data, dtype)
        return name

    def normal(self, shape: Sequence[int], spread: float = 0.5) -> str:
        """Add a constant of random float32 and return its name."""
        return self.constant(self.numbers().normal(0, spread, tuple(shape)), np.float32)

    def whole(self, numbers: Sequence[int]) -> str:
        """Add a constant of int64 and return its name."""
        return self.constant(list(numbers), np.int64)

    def like(self, value: Value, shape: Sequence[int], most: int = 9) -> str:
        """Add a constant of a value's type, integers from 1 to `most`, and return its name."""
        if value.dtype.kind == "f":
            return self.constant(self.numbers().normal(0, 1, shape), value.dtype)
        return self.constant(self.numbers().integers(0 if value.dtype == bool else 1, most + 1, shape), value.dtype)

    def grid(self, dtype: Any, scale: float) -> Grid:
        """Make a grid of about this scale; sometimes a power of two, with which ties are frequent."""
        rng = self.rng
        scale = float(np.float32(2.0 ** round(np.log2(scale)) if rng.random() < 0.15 else scale))
        middle = 128 if np.dtype(dtype) == np.uint8 else 0
        zero = rng.choice((middle, middle, middle + rng.randint(-100, 100)))
        return Grid(scale, (self.constant(scale, np.float32), self.constant(zero, dtype)))

    def grid_of(self, value: Value) -> Grid:
        """Return the grid of a value's integers."""
        if value.name not in self.grids:
            self.grids[value.name] = self.grid(value.dtype, self.rng.uniform(0.01, 0.06))
        return self.grids[value.name]

    def spread(self, value: Value) -> tuple[int, ...]:
        """Draw a shape that broadcasts to a value's."""
        shape = [1 if self.rng.random() < 0.4 else size for size in value.shape]
        return tuple(shape[self.rng.randint(0, len(shape)) :] if self.rng.random() < 0.4 else shape)


@frozen
class Case:
    """A node: the names of its inputs, its attributes, the number of its outputs, and the grid of the first one."""

    inputs: Sequence[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    grid: Grid | None = None


Part = Callable[[Draw, Value], Any]
"""Draws an attribute, or a constant and returns its name, for a node with this value as first input."""


def case(
    *operands: Part,
    dtype: Any = np.float32,
    rank: int | Sequence[int] | None = None,
    fits: Callable[[tuple[int, ...]], Any] = lambda shape: True,
    outputs: int = 1,
    **attrs: Part | Sequence[Any],
) -> Cases:
    """Return the cases of an operator on a value, and on operands derived from it.

    Args:
        operands: draw the inputs after the first.
        dtype: the value's type.
        rank: the value's rank, or the possible ones.
        fits: whether a shape is suitable.
        outputs: the number of outputs.
        attrs: for each attribute, a function that draws it, or its possible values.
    """

    def draw_case(draw: Draw, op: Operator) -> Case:
        value = draw.pick(dtype, draw.rng.choice(rank) if isinstance(rank, Sequence) else rank)
        if not fits(value.shape) or not value.size:
            raise ValueError(f"{op.name} has no case for {value.shape}")
        drawn = {name: part(draw, value) if callable(part) else draw.rng.choice(part) for name, part in attrs.items()}
        return Case([value.name, *(part(draw, value) for part in operands)], drawn, outputs)

    return draw_case


def axis(draw: Draw, value: Value) -> int:
    """Draw an axis."""
    return draw.axis(value)


def normal(shape: Callable[[tuple[int, ...]], Sequence[int]], spread: float = 0.5) -> Part:
    """Return an operand: float32 with a shape derived from the value's."""
    return lambda draw, value: draw.normal(shape(value.shape), spread)


def constant(data: Any, dtype: Any = np.int64) -> Part:
    """Return a fixed operand."""
    return lambda draw, value: draw.constant(data, dtype)


def numbers(count: Callable[[tuple[int, ...]], int]) -> Part:
    """Return an attribute: random floats."""
    return lambda draw, value: draw.numbers().normal(0, 1, count(value.shape)).tolist()


LIKE = normal(lambda shape: shape)
LAST = normal(lambda shape: shape[-1:])
CHANNELS = normal(lambda shape: shape[1:2])
FLAGS = {"exclusive", "keepdims", "largest", "reverse", "select_last_index", "upper"}
DRAWN: Sequence[tuple[str, Any]] = (
    ("tensor(float)", np.float32), ("tensor(int32)", np.int32), ("tensor(uint8)", np.uint8), ("tensor(bool)", np.bool_),
    ("tensor(int64)", np.int64),
)  # fmt: skip


def by_schema(draw: Draw, op: Operator) -> Case:
    """Draw a node by ONNX's schema: inputs of one type with broadcasting, and the record's attributes."""
    schema = onnx.defs.get_schema(op.name, 3 if op.domain else draw.opset, op.domain)
    types: dict[str, Any] = {}
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    first: Value | None = None
    inputs: list[str] = []
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    for formal in schema.inputs:
        if formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional:
            break
        names = allowed.get(formal.type_str, {formal.type_str})
        dtypes = [dtype for name, dtype in DRAWN if name in names]
        dtype = types.setdefault(
            formal.type_str, draw.rng.choice(dtypes) if draw.rng.random() < draw.other_types else dtypes[0]
        )
        for _ in range(draw.rng.randint(1, 3) if formal.option == variadic else 1):
            if first is None:
                first = draw.pick(dtype)
                inputs.append(first.name)
                continue
            same = [v for v in draw.values.values() if v.dtype == dtype and v.shape == first.shape]
            typed = Value("", np.dtype(dtype), first.shape)
            is_value = dtype in (np.float32, np.bool_) and draw.rng.random() < 0.4 and same
            inputs.append(draw.rng.choice(same).name if is_value else draw.like(typed, draw.spread(first)))
    attrs: dict[str, Any] = {
        name: draw.rng.choice(words) for name, words in op.words.items() if name in schema.attributes
    }
    if "axis" in schema.attributes and op.axis_ends is not None and first is not None:
        attrs["axis"] = draw.axis(first)
    attrs |= {name: draw.rng.randint(0, 1) for name in sorted(FLAGS & {*schema.attributes})}
    for name, attr in sorted(schema.attributes.items()):
        if attr.type == onnx.defs.OpSchema.AttrType.FLOAT and attr.default_value.type:
            attrs[name] = draw.rng.choice((helper.get_attribute_value(attr.default_value), 0.25, 1.0))
    return Case(inputs, attrs, max(schema.min_output, 1))


def integers(cases: Cases, places: str, scale: Callable[..., float] = lambda *scales: max(scales)) -> Cases:
    """Return the cases of an operator on 8-bit integers, from those of the float operator.

    Args:
        cases: the float operator's cases.
        places: the inputs in order: a digit is an input of the float operator with its grid, "*" all of them with
            their grids, "b" the last one as a bias, "y" the grid of the result.
        scale: returns the result's scale from those of the inputs.
    """

    def draw_case(draw: Draw, op: Operator) -> Case:
        candidates = [value for value in draw.values.values() if value.dtype in (np.int8, np.uint8)]
        dtype = (
            candidates or [draw.input(draw.rng.choice((np.int8, np.uint8)), draw.shape(draw.rng.choice((2, 4, 4))))]
        )[-1].dtype
        values = {value.name: value for value in draw.values.values() if value.dtype == dtype}
        floats = {name: replace(value, dtype=np.dtype(np.float32)) for name, value in values.items()}
        drawn = cases(replace(draw, values=floats), replace(op, name=op.name.removeprefix("QLinear")))
        draw.values |= {name: value for name, value in floats.items() if name not in values}
        zero, scales, inputs = 0 if dtype == np.int8 else 64, list[float](), list[str]()

        def operand(name: str) -> list[str]:
            if name in values:
                grid = draw.grid_of(values[name])
                scales.append(grid.scale)
                return [name, *grid.names]
            if name not in draw.constants or draw.constants[name].dtype == bool:
                return [name]
            data = draw.constants[name]
            scales.append(abs(data).max() / 64)
            names = (draw.constant(np.rint(data / scales[-1]) + zero, dtype), draw.constant(scales[-1], np.float32))
            return [*names, draw.constant(zero, dtype)]

        operands = [operand(name) for name in drawn.inputs[: 2 if "b" in places else None]]
        output_grid = draw.grid(dtype, scale(*scales))
        for place in places:
            if place == "y":
                inputs += output_grid.names
            elif place == "b":
                bias = [draw.constant(draw.constants[name] * 4000, np.int32) for name in drawn.inputs[2:]]
                inputs += bias or ([""] if places.endswith("y") else [])
            else:
                inputs += itertools.chain(*operands) if place == "*" else operands[int(place)]
        return Case(inputs, drawn.attrs, grid=output_grid)

    return draw_case


def product(*scales: float) -> float:
    """Return the scale of a sum of products of integers of these scales."""
    return 300 * prod(scales)
