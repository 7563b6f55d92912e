"""Loops over expressions with Helium: one axis of a nest by vectors, with the functions of mt_mve_loop.h.

Expressions are computed four elements at a time, as int32 or float. Elements that are only moved, or of 8 bits and
looked up in tables, are processed 16 or 8 at a time. Parts of an expression that are the same along the axis are
computed before it.
"""

import contextlib
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType, Expr, Graph, Node
from mtool.compiler.ir.expr import Reduction, const, first_of
from mtool.compiler.ir.expr import load as load_of
from mtool.compiler.ir.node import expression_of
from mtool.compiler.ir.scalar import (
    MUL,
    Requantize,
    Rescale,
    RescalePair,
    Shifted,
    Text,
    evaluate,
    largest,
    literal,
    loaded,
    render,
)
from mtool.compiler.kernels.expressions import has_fixed16, operand_names, operands_read
from mtool.compiler.kernels.loop_text import axis_name, float_sum, indented, loop, loops
from mtool.compiler.kernels.periods import Block, blocks_that_pay

LARGEST = 120  # parts of an expression
TERMS = 8  # of a reduction, which are computed one after the other
LANES = 4  # of int32 or float
LOOP = 3  # instructions that a round of the inner loop takes beside its functions,
TAIL = 5  # that conditional loads and stores take more,
ROW = 6  # and the rounds of the loops around it
EIGHT = 8  # results of 8 bits that are stored together,
JOINED = 4  # instructions that join and limit them
SCATTERED = {"i8", "f32"}  # elements that are stored at equal distances
INTEGERS = {DType.INT8, DType.UINT8, DType.INT16, DType.INT32}
COSTS = {
    "max_f32": 5, "min_f32": 5, "quantize": 6, "requantize": 5, "clamp": 2, "scaled_pair": 6, "div_f32": 4,
    "div_n_f32": 4, "sqrt_f32": 4, "weighted": 3, "nearest": 3,
    "rescale": 2, "rescale_twice": 4, "mean": 3, "logistic16": 70, "tanh16": 75,
}  # fmt: skip
"""The instructions of functions that take more than one."""


class NotVectorsError(Exception):
    """A loop that is not written with vectors."""


@frozen
class Offset:
    """The flat offset of a load: axes times factors, a constant, and other expressions times factors."""

    factors: Mapping[int, int]
    first: int
    others: tuple[tuple[Expr, int], ...] = ()

    @classmethod
    def of(cls, load: Expr, shape: Sequence[int]) -> "Offset":
        """Return the offset of a load from an operand of a shape."""
        factors, first, others = Counter[int](), 0, list[tuple[Expr, int]]()
        waiting = [(index, prod(shape[dim + 1 :])) for dim, index in enumerate(load.args) if shape[dim] != 1]
        while waiting:
            index, factor = waiting.pop(0)
            if index.op == "axis":
                factors[index.value] += factor
            elif index.op == "const":
                first += index.value * factor
            elif index.op in ("add", "sub") and index.value == "index":
                left, right = index.args
                waiting += [(left, factor), (right, factor if index.op == "add" else -factor)]
            elif index.op == "mul" and index.value == "index" and index.args[1].op == "const":
                waiting.append((index.args[0], factor * index.args[1].value))
            else:
                others.append((index, factor))
        return cls({axis: factor for axis, factor in factors.items() if factor}, first, tuple(others))


@frozen
class Axis:
    """An axis of a nest: dimensions of the output through which all operands step as through one.

    number: that of its innermost dimension; stride: the distance of its elements in the output.
    """

    number: int
    size: int
    stride: int
    dims: frozenset[int]


@frozen
class Nest:
    """A node's expression, the C names of its operands, and the output's axes.

    acc: the C of the place of a kernel's sums; "": there are none.
    """

    node: Node
    graph: Graph
    expr: Expr
    names: Mapping[int, str]
    axes: tuple[Axis, ...]
    acc: str = ""

    @classmethod
    def of(cls, node: Node, graph: Graph) -> "Nest":
        """Return the nest of a loop.

        Raises:
            NotVectorsError: it is too large, or its C is written for several sizes.
        """
        expr, shape = expression_of(node), graph.types[node.outputs[0]].shape
        if expr is None or graph.is_sample or not prod(shape) or expr.size > LARGEST:
            raise NotVectorsError
        plain = cls(node, graph, expr, operand_names(node, graph, expr), ())
        reads, alone, waiting = list[Offset](), set[int](), [expr]
        while waiting:
            part = waiting.pop()
            if part.op == "load":
                reads.append(plain.offset(part))
                waiting += [index for index, _ in reads[-1].others]
            elif part.op == "axis":
                alone.add(part.value)
            waiting += part.args if part.op != "load" else ()
        axes: list[Axis] = []
        for number, size in enumerate(shape):
            if size == 1:
                continue
            stride, before = prod(shape[number + 1 :]), axes[-1].number if axes else -1
            if (
                before >= 0
                and not {before, number} & alone
                and all(_joins(read, before, number, size) for read in reads)
            ):
                last = axes.pop()
                axes.append(Axis(number, last.size * size, stride, last.dims | {number}))
            else:
                axes.append(Axis(number, size, stride, frozenset([number])))
        return cls(node, graph, expr, plain.names, tuple(axes) or (Axis(0, 1, 1, frozenset([0])),))

    @property
    def rank(self) -> int:
        """The number of the output's dimensions; axes from there on are those of reductions."""
        return len(self.graph.types[self.node.outputs[0]].shape)

    def axes_of(self, part: Expr) -> frozenset[int]:
        """Return the axes of reductions around a part on which it depends."""
        axes = {part.value} if part.op == "axis" and part.value >= self.rank else set()
        inside = axes.union(*(self.axes_of(arg) for arg in part.args))
        return frozenset(inside - ({number for number, _ in part.value.axes} if part.op == "reduce" else set()))

    def offset(self, load: Expr) -> Offset:
        """Return a load's offset."""
        return Offset.of(load, self.graph.types[self.node.inputs[load.value]].shape)

    def dtype(self, load: Expr) -> DType:
        """Return the element type that a load reads."""
        return self.graph.types[self.node.inputs[load.value]].dtype

    def is_uniform(self, part: Expr, axis: Axis) -> bool:
        """Whether a part has one value along an axis."""
        if part.op == "acc":
            return False
        if part.op == "axis":
            return part.value not in axis.dims
        if part.op == "load":
            read = self.offset(part)
            return not axis.dims & {*read.factors} and all(self.is_uniform(index, axis) for index, _ in read.others)
        return part.op != "reduce" and all(self.is_uniform(arg, axis) for arg in part.args)

    def place(self, read: Offset, axis: Axis, uniform: Callable[[Expr], str] | None = None) -> str:
        """Return the C of an offset; other expressions that differ along an axis are left out.

        `uniform` is the C of those that do not.
        """
        numbers = {other.number for other in self.axes} | {number for number in read.factors if number >= self.rank}
        parts = [
            axis_name(number) if factor == 1 else f"{axis_name(number)} * {factor}"
            for number, factor in sorted(read.factors.items())
            if factor and number in numbers
        ]
        for index, factor in read.others:
            if self.is_uniform(index, axis):
                text = Text(uniform(index)) if uniform else self.scalar(index, axis)
                parts.append(text.c if factor == 1 else f"{text.at(MUL)} * {factor}")
        parts += [str(read.first)] if read.first or not parts else []
        return " + ".join(parts).replace("+ -", "- ")

    def scalar(self, part: Expr, axis: Axis) -> Text:
        """Return the C of a part that is uniform along an axis."""

        def leaf(inner: Expr) -> Text:
            if inner.op == "axis":
                shape = self.graph.types[self.node.outputs[0]].shape
                return Text("0") if shape[inner.value : inner.value + 1] == (1,) else Text(axis_name(inner.value))
            if inner.op != "load" or inner.dtype.is_half:
                raise NotVectorsError
            return Text(loaded(f"{self.names[inner.value]}[{self.place(self.offset(inner), axis)}]", self.dtype(inner)))

        return render(part, leaf)

    def variables(self, parts: Mapping[Expr, str], axis: Axis) -> list[str]:
        """Return the C of variables for parts that are uniform along an axis."""
        return [f"const {part.dtype.computed} {name} = {self.scalar(part, axis).c};" for part, name in parts.items()]

    def bounds(self, index: Expr) -> tuple[int, int]:
        """Return the smallest and largest value that an index may have."""
        shape = self.graph.types[self.node.outputs[0]].shape
        if index.op == "const":
            return index.value, index.value
        if index.op == "axis" and index.value < len(shape):
            return 0, shape[index.value] - 1
        if index.op in ("add", "sub", "mul") and index.value == "index":
            ends = [self.bounds(arg) for arg in index.args]
            how = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}[index.op]
            values = [how(a, b) for a in ends[0] for b in ends[1]]
            return min(values), max(values)
        if index.op == "cast" and index.args[0].op == "load" and index.args[0].dtype in INTEGERS:
            return index.args[0].dtype.limits
        if index.op == "load" and (data := self.graph.constants.get(self.node.inputs[index.value])) is not None:
            return int(data.min()), int(data.max())
        raise NotVectorsError

    def check_reads(self, part: Expr) -> None:
        """Check that all that a part reads is in range, whatever the conditions around it.

        Raises:
            NotVectorsError: it is not.
        """
        for load in (load for load in part.parts() if load.op == "load"):
            for index, size in zip(load.args, self.graph.types[self.node.inputs[load.value]].shape, strict=True):
                low, high = self.bounds(index)
                if low < 0 or high >= size:
                    raise NotVectorsError


def _joins(read: Offset, before: int, number: int, size: int) -> bool:
    return read.factors.get(before, 0) == read.factors.get(number, 0) * size


@frozen
class Call:
    """A call of a function `mt_mve_<name>`; its arguments are C, other calls, or numbers of parts."""

    name: str
    args: tuple["Piece", ...]


Piece = str | int | Call
NONE = "mt_mve_all_i32(0)"


@dataclass
class Body:
    """The C of one vector of a nest.

    Attributes:
        before: lines before all loops.
        outside: lines before the innermost loop.
        lines: those of a vector.
        cost: its instructions, about.
    """

    lines: list[str]
    cost: int
    before: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


@dataclass
class Scope:
    """What is computed in the same loop: in that over vectors, or in one over the terms of a reduction.

    Attributes:
        axes: the axes of the reductions around it.
        numbers: the numbers of its parts.
        items: its numbers in order, and lines between them.
        uniforms: parts that are the same in all lanes.
    """

    axes: frozenset[int]
    numbers: dict[Expr, int] = field(default_factory=dict)
    items: list[int | str] = field(default_factory=list)
    uniforms: dict[Expr, str] = field(default_factory=dict)


class Vectors:
    """The C of vectors of four int32 or floats along a nest's innermost axis.

    half: "even" or "odd", of vectors of every second element of eight, which are loaded together; "": of all elements.
    pointers: those of the eights, by their types and first places.
    """

    def __init__(self, nest: Nest, half: str = "") -> None:
        self.pointers = dict[tuple[str, str], str]()
        self.nest, self.axis, self.half, self.letter = nest, nest.axes[-1], half, "z" if half == "odd" else "x"
        self.parts: list[tuple[Expr, Piece]] = []
        self.uses, self.counts = Counter[int](), Counter[str]()
        self.scopes = [Scope(frozenset())]
        self.steps: set[int] = set()
        self.cost = LOOP

    def body(self, count: int, results: Sequence[tuple[int, Expr]] = ()) -> Body:
        """Return the C of a vector of which `count` lanes are in use, or of several results at places of the output."""
        nest, out, stride = self.nest, self.nest.graph.types[self.nest.node.outputs[0]].dtype, self.axis.stride
        self.count = str(count)
        code = "i8" if out.size == 1 else out.code
        if _kind(out) and stride != 1 and code not in SCATTERED:
            raise NotVectorsError
        stores = []
        for first, expr in results or [(0, nest.expr)]:
            value: Piece = self.vector(expr)
            if out is DType.BOOL:
                value = self.call("where_i32", value, "mt_mve_all_i32(1)", NONE)
            to = f"output + {nest.place(Offset({axis.number: axis.stride for axis in nest.axes}, first), self.axis)}"
            to = f"(int8_t *)({to})" if out.c == "uint8_t" else to
            if stride == 1:
                stores.append(self.call(f"store_{code}", to, value, self.count))
            else:
                self.steps.add(stride)
                stores.append(self.call(f"scatter_{code}", to, _steps(stride), value, self.count))
        before = [f"const mt_mve_i32x4 {_steps(step)} = mt_mve_steps_i32({step});" for step in sorted(self.steps)]
        outside = nest.variables(self.scopes[0].uniforms, self.axis)
        return Body([*self.lines(), *(f"{self.text(store)};" for store in stores)], self.cost, before, outside)

    def lines(self) -> list[str]:
        """Return the C of the innermost scope's parts that have names."""
        lines = []
        for item in self.scopes[-1].items:
            if isinstance(item, str):
                lines.append(item)
            elif self.uses[item] > 1:
                part, piece = self.parts[item]
                kind = "b32" if part.dtype is DType.BOOL else _kind(part.dtype)
                lines.append(f"const mt_mve_{kind}x4 {self.letter}{item} = {self.text(piece)};")
        return lines

    def text(self, piece: Piece) -> str:
        """Return the C of a piece."""
        if isinstance(piece, int):
            return f"{self.letter}{piece}" if self.uses[piece] > 1 else self.text(self.parts[piece][1])
        return piece if isinstance(piece, str) else f"mt_mve_{piece.name}({', '.join(map(self.text, piece.args))})"

    def vector(self, part: Expr) -> int:
        """Return the number of a part, which becomes a vector in the outermost scope that has its axes."""
        scopes, axes = self.scopes, self.nest.axes_of(part)
        depth = next(n for n, scope in enumerate(scopes) if axes <= scope.axes)
        scope = scopes[depth]
        if part not in scope.numbers:
            self.scopes = scopes[: depth + 1]
            piece = self._vector(part)
            self.scopes = scopes
            scope.numbers[part] = len(self.parts)
            scope.items.append(len(self.parts))
            self.parts.append((part, piece))
        number = scope.numbers[part]
        self.uses[number] += 1 if scope is scopes[-1] else 2  # it has a name if it is used in a loop inside
        return number

    def name(self, stem: str) -> str:
        """Return a new name: stem, stem2, stem3."""
        self.counts[stem] += 1
        return stem if self.counts[stem] == 1 and stem != "u" else f"{stem}{self.counts[stem] - (stem == 'u')}"

    def uniform(self, part: Expr) -> str:
        """Return the C of a part that is uniform: a constant, or a variable before the loop that it depends on."""
        if part.op == "const":
            return literal(part.value, part.dtype).c
        _kind(part.dtype)
        axes = self.nest.axes_of(part)
        uniforms = next(scope.uniforms for scope in self.scopes if axes <= scope.axes)
        if part not in uniforms:
            uniforms[part] = self.name("u")
        return uniforms[part]

    def is_uniform(self, part: Expr) -> bool:
        """Whether a part is the same in all lanes."""
        return self.nest.is_uniform(part, self.axis)

    def call(self, name: str, *args: Piece) -> Call:
        """Return a call."""
        self.cost += COSTS.get(name, 1)
        return Call(name, args)

    def _vector(self, part: Expr) -> Piece:
        kind = _kind(part.dtype)
        if self.is_uniform(part):
            if kind == "b":
                return self.call("greater_i32", Call("all_i32", (self.uniform(part),)), NONE)
            return Call(f"all_{kind}", (self.uniform(part),))
        if part.op == "load":
            value = self._load(part)
            return self.call("greater_i32", value, NONE) if kind == "b" else value
        if part.op == "acc" and part.dtype is (DType.INT32 if self.nest.acc else DType.FLOAT32):
            return self.call("load_i32", self.nest.acc, self.count) if self.nest.acc else "acc"
        if part.op == "axis":
            self.steps.add(1)
            return self.call("add_n_i32", "steps1", axis_name(self.axis.number))
        make = _MAKERS.get(part.op)
        if make is None:
            raise NotVectorsError
        return make(self, part, *part.args)

    def _load(self, part: Expr, less: int = 0) -> Piece:
        """Return the elements that a load reads; `less`: minus a number, in vectors of every second element."""
        dtype, read = self.nest.dtype(part), self.nest.offset(part)
        _kind(dtype)
        place = f"{self.nest.names[part.value]} + {self.nest.place(read, self.axis, self.uniform)}"
        factor = read.factors.get(self.axis.number, 0)
        at = list[Piece]()
        for index, scale in read.others:
            if not self.nest.is_uniform(index, self.axis):
                vector = self.vector(index)
                at.append(vector if scale == 1 else self.call("mul_n_i32", vector, str(scale)))
        if self.half:
            if factor != 1 or at or dtype is not DType.INT8:
                raise NotVectorsError
            read = replace(read, factors={n: by for n, by in read.factors.items() if n != self.axis.number})
            first = "const int8_t *", f"{self.nest.names[part.value]} + {self.nest.place(read, self.axis)}"
            place = self.pointers.setdefault(first, f"from{len(self.pointers)}")
            eight: Piece = Call("load8_i8", (place, "8"))
            self.cost += self.half == "even"
            return self.call(self.half, Call("sub8_n", (eight, str(less))) if less else eight)
        if factor == 1 and not at:
            return self.call(f"load_{dtype.code}", place, self.count)
        if factor:
            self.steps.add(factor)
            at.append(_steps(factor))
        while len(at) > 1:
            at[:2] = [self.call("add_i32", *at[:2])]
        return self.call(f"gather_{dtype.code}", place, *at, self.count)

    def arithmetic(self, part: Expr, a: Expr, b: Expr) -> Piece:
        """Return a sum, a difference or a product."""
        kind = _kind(part.dtype)
        if part.op != "sub" and self.is_uniform(a):
            a, b = b, a
        read = a.args[0] if a.op == "cast" else a
        if self.half and part.op == "sub" and b.op == "const" and read.op == "load" and read.dtype is DType.INT8:
            return self._load(read, b.value)
        if self.is_uniform(b):
            value = self.call(f"{part.op}_n_{kind}", self.vector(a), self.uniform(b))
        else:
            value = self.call(f"{part.op}_{kind}", self.vector(a), self.vector(b))
        return self.wrapped(part.dtype, value)

    def quotient(self, part: Expr, a: Expr, b: Expr) -> Piece:
        """Return a quotient of floats, or a product with the inverse of a power of two."""
        if _kind(part.dtype) != "f32":
            raise NotVectorsError
        if b.op == "const" and abs(math.frexp(b.value)[0]) == 0.5 and 2.0**-60 < abs(b.value) < 2.0**60:
            return self.call("mul_n_f32", self.vector(a), literal(1 / b.value, b.dtype).c)
        if self.is_uniform(b):
            return self.call("div_n_f32", self.vector(a), self.uniform(b))
        return self.call("div_f32", self.vector(a), self.vector(b))

    def root(self, part: Expr, a: Expr) -> Piece:
        """Return a square root."""
        return self.call("sqrt_f32", self.vector(a))

    def wrapped(self, dtype: DType, value: Piece) -> Piece:
        """Return an int32 as an integer of a type, of which only the low bits are kept."""
        return self.call(f"as_{dtype.code}", value) if dtype.is_integer and dtype.size < 4 else value

    def extreme(self, part: Expr, a: Expr, b: Expr) -> Piece:
        """Return the larger or the smaller number."""
        return self.call(f"{part.op[:3]}_{_kind(part.dtype)}", self.vector(a), self.vector(b))

    def negative(self, part: Expr, a: Expr) -> Piece:
        """Return a number with the other sign."""
        if part.dtype.is_float:
            return self.call("neg_f32", self.vector(a))
        return self.wrapped(part.dtype, self.call("sub_i32", NONE, self.vector(a)))

    def cast(self, part: Expr, a: Expr) -> Piece:
        """Return an integer as another one, or as a float."""
        if _kind(a.dtype) != "i32":
            raise NotVectorsError
        if part.dtype.is_float:
            return self.call("float", self.vector(a))
        (low, high), source = part.dtype.limits, a.dtype.limits
        fits = low <= source[0] and source[1] <= high
        return self.vector(a) if fits else self.wrapped(part.dtype, self.vector(a))

    def compare(self, part: Expr, a: Expr, b: Expr) -> Piece:
        """Return a condition."""
        if part.op.startswith("less"):
            a, b = b, a
        return self.call(f"{part.op.replace('less', 'greater')}_{_kind(a.dtype)}", self.vector(a), self.vector(b))

    def logic(self, part: Expr, *args: Expr) -> Piece:
        """Return a condition of conditions."""
        for arg in args[1:]:
            self.nest.check_reads(arg)
        return self.call(part.op, *(self.vector(arg) for arg in args))

    def where(self, part: Expr, condition: Expr, *values: Expr) -> Piece:
        """Return one of two numbers, which are both computed."""
        for value in values:
            self.nest.check_reads(value)
        return self.call(f"where_{_kind(part.dtype)}", *(self.vector(operand) for operand in (condition, *values)))

    def pair(self, part: Expr, a: Expr, b: Expr) -> Piece:
        """Return the sum of two scaled integers."""
        how: RescalePair = part.value
        if how.even:
            raise NotVectorsError
        numbers = map(str, (how.left, how.right, how.offset, how.shift, how.low, how.high))
        return self.call("scaled_pair", self.vector(a), self.vector(b), *numbers)

    def shifted(self, part: Expr, total: Expr) -> Piece:
        """Return an integer of the bits in front of a total's last ones."""
        how: Shifted = part.value
        if how.even or how.low is None:
            raise NotVectorsError
        value = self.call("shift", self.vector(total), str(how.shift))
        return self.call("clamp", value, str(how.low), str(how.high))

    def high_product(self, part: Expr, total: Expr, multiplier: Expr) -> Piece:
        """Return the high word of a product."""
        return self.call("high_product", self.vector(total), self.uniform(multiplier))

    def rescaled(self, part: Expr, total: Expr, multiplier: Expr, shift: Expr) -> Piece:
        """Return an integer that is scaled by a multiplier and a shift, which may differ from lane to lane."""
        how: Rescale = part.value
        if how.wide:
            raise NotVectorsError
        name, low, high = f"rescale{'_twice' * how.twice}", how.low, how.high
        value: Piece = self.call(name, *(self.vector(operand) for operand in (total, multiplier, shift)))
        if part.dtype is DType.INT32:
            return value
        value = self.call("add_n_i32", value, str(how.zero_point)) if how.zero_point else value
        return self.call("clamp", value, str(low), str(high))

    def mean(self, part: Expr, total: Expr, count: Expr) -> Piece:
        """Return the mean of a sum of a power of two numbers."""
        if count.op != "const" or count.value < 2 or count.value & (count.value - 1):
            raise NotVectorsError
        return self.call("mean", self.vector(total), str(count.value))

    def fixed(self, part: Expr, x: Expr) -> Piece:
        """Return a function of mt_fixed16.h."""
        return self.call(part.op, self.vector(x), *([str(part.value)] if part.op == "tanh16" else []))

    def quantized(self, part: Expr, x: Expr, scale: Expr, zero_point: Expr) -> Piece:
        """Return the result of mt_quantize, by constants that take the place of its division."""
        floats = [literal(value, DType.FLOAT32).c for value in (scale.value, *_factors(part))]
        numbers = map(str, (zero_point.value, *(part.value or part.dtype.limits)))
        return self.call("quantize", self.vector(x), floats[0], *numbers, *floats[1:])

    def requantized(self, part: Expr, total: Expr, scale: Expr) -> Piece:
        """Return the result of mt_requantize_wide, which mt_requantize shares where it may be used."""
        how: Requantize = part.value
        if not self.is_uniform(scale) or total.dtype is not DType.INT32:
            raise NotVectorsError
        numbers = map(str, (how.zero_point, how.low, how.high))
        return self.call("requantize", self.vector(total), self.uniform(scale), *numbers)

    def reduced(self, part: Expr, body: Expr) -> Piece:
        """Return a reduction of a few terms, one after the other."""
        how, kind = part.value, _kind(part.dtype)
        if how.kind == "multiply":
            raise NotVectorsError
        name = f"{ {'add': 'add', 'maximum': 'max', 'minimum': 'min'}[how.kind] }_{kind}"
        first = Call(f"all_{kind}", (literal(first_of(how.kind, part.dtype), part.dtype).c,))
        total: Piece = first
        if prod(size for _, size in how.axes) <= TERMS and not how.careful:
            for values in itertools.product(*(range(size) for _, size in how.axes)):
                places = {axis: const(value, DType.INT32) for (axis, _), value in zip(how.axes, values, strict=True)}
                total = self.call(name, total, self.vector(body.with_axes(places)))
            return self.wrapped(part.dtype, total)
        variable = self.name("total")
        text = VectorSum(self, how, name)
        lines = [f"mt_mve_{kind}x4 {variable} = {self.text(first)};"]
        if name == "add_f32":
            lines += float_sum(how, variable, body, text)
        else:
            lines += loops(how.axes, text.add(variable, [body]))
        self.scopes[-1].items += lines
        return self.wrapped(part.dtype, variable)


class Eights:
    """The C of eight results of 8 bits: vectors of the even and of the odd ones, joined before they are limited."""

    def __init__(self, nest: Nest) -> None:
        self.nest, self.sides = nest, [Vectors(nest, half) for half in ("even", "odd")]
        self.sides[1].pointers = self.sides[0].pointers

    def body(self, count: int) -> Body:
        """Return the C of eight results.

        Raises:
            NotVectorsError: there are fewer, or they are not whole numbers of at most 16 bits before that.
        """
        nest, expr, sides = self.nest, self.nest.expr, self.sides
        if count != EIGHT or expr.dtype is not DType.INT8:
            raise NotVectorsError
        if expr.op == "quantize":
            value, (low, high) = self._quantized(expr, *expr.args), expr.value or expr.dtype.limits
        elif expr.op in ("rescale_pair", "shifted") and not expr.value.even and expr.value.low is not None:
            value, low, high = self._shifted(expr), expr.value.low, expr.value.high
        else:
            raise NotVectorsError
        outer = {axis.number: axis.stride for axis in nest.axes[:-1]}
        pointers = {
            **sides[0].pointers,
            ("int8_t *", f"output + {nest.place(Offset(outer, 0), nest.axes[-1])}"): "to",
        }
        store = Call("store8_i8", ("to", Call("clamp8", (value, str(low), str(high))), str(count)))
        uniforms = {part: name for side in sides for part, name in side.scopes[0].uniforms.items()}
        outside = nest.variables(uniforms, nest.axes[-1])
        outside += [f"{kind}{name} = {place};" for (kind, place), name in pointers.items()]
        lines = [*sides[0].lines(), *sides[1].lines(), f"{sides[0].text(store)};"]
        lines += [f"MT_MVE_ADVANCE({name});" for name in pointers.values()]
        return Body(lines, sides[0].cost + sides[1].cost - LOOP + JOINED, [], outside)

    def _joined(self, name: str, pieces: Sequence[Piece]) -> Call:
        return Call(name, tuple(side.text(piece) for side, piece in zip(self.sides, pieces, strict=True)))

    def _quantized(self, part: Expr, x: Expr, scale: Expr, zero_point: Expr) -> Call:
        numbers = [literal(value, DType.FLOAT32).c for value in (scale.value, *_factors(part)[2:])]
        if largest(x) / scale.value > 2**15 - 2**8:
            raise NotVectorsError
        joined = self._joined("both", [side.call("nearest", side.vector(x), *numbers) for side in self.sides])
        return Call("add8_n", (joined, str(zero_point.value))) if zero_point.value else joined

    def _shifted(self, part: Expr) -> Call:
        how: Shifted | RescalePair = part.value
        pieces: list[Piece] = []
        for side in self.sides:
            terms = [side.vector(arg) for arg in part.args]
            numbers = [*map(str, (how.left, how.right, how.offset))] if isinstance(how, RescalePair) else []
            pieces.append(side.call("weighted", *terms, *numbers) if numbers else terms[0])
        if how.shift > 16:
            return Call("shift8", (self._joined("both_high", pieces), str(how.shift - 16)))
        shifted = [side.call("shift", piece, str(how.shift)) for side, piece in zip(self.sides, pieces, strict=True)]
        return self._joined("both_limited", shifted)


@frozen
class VectorSum:
    """The C of a reduction's steps, of vectors; `name`: the function that combines two of its terms."""

    vectors: Vectors
    how: Reduction
    name: str

    def begin(self, name: str) -> str:
        """Return the declaration of a sum."""
        return f"mt_mve_f32x4 {name} = mt_mve_all_f32(0.0f);"

    def add(self, name: str, terms: Sequence[Expr]) -> list[str]:
        """Return the addition of one term or four."""
        vectors, axes = self.vectors, {number for number, _ in self.how.axes}
        scope = Scope(vectors.scopes[-1].axes | axes)
        vectors.scopes.append(scope)
        parts: list[Piece] = [vectors.vector(term) for term in terms]
        while len(parts) > 1:
            parts[:] = [vectors.call(self.name, a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        added = f"{name} = {vectors.text(vectors.call(self.name, name, *parts))};"
        lines = [*vectors.nest.variables(scope.uniforms, vectors.axis), *vectors.lines(), added]
        vectors.scopes.pop()
        return lines

    def add_part(self, name: str, part: str) -> str:
        """Return the addition of a block's sum."""
        return f"mt_mve_add_part(&{name}, &{name}_rest, {part});"

    def end(self, name: str) -> str:
        """Return the addition of the rest."""
        return f"{name} = mt_mve_total({name}, {name}_rest);"


_MAKERS: dict[str, Callable[..., Piece]] = {
    **dict.fromkeys(("add", "sub", "mul"), Vectors.arithmetic),
    **dict.fromkeys(("maximum", "minimum"), Vectors.extreme),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal", "equal"), Vectors.compare),
    **dict.fromkeys(("and", "or", "not"), Vectors.logic),
    "neg": Vectors.negative,
    "cast": Vectors.cast,
    "where": Vectors.where,
    "rescale_pair": Vectors.pair,
    "div": Vectors.quotient,
    "sqrt": Vectors.root,
    "shifted": Vectors.shifted,
    "high_product": Vectors.high_product,
    "rescale": Vectors.rescaled,
    "mean": Vectors.mean,
    "logistic16": Vectors.fixed,
    "tanh16": Vectors.fixed,
    "quantize": Vectors.quantized,
    "requantize": Vectors.requantized,
    "reduce": Vectors.reduced,
}


def _steps(factor: int) -> str:
    """Return the name of a vector of multiples of a number."""
    return f"steps{factor}".replace("-", "_minus_")


def _kind(dtype: DType) -> str:
    """Return the kind of lanes that hold a type."""
    if dtype in INTEGERS:
        return "i32"
    if dtype not in (DType.BOOL, DType.FLOAT32):
        raise NotVectorsError
    return "b" if dtype is DType.BOOL else "f32"


# QuantizeLinear without a division.


def _factors(part: Expr) -> tuple[float, float, float, float]:
    _, scale, zero_point = part.args
    if scale.op != "const" or zero_point.op != "const":
        raise NotVectorsError
    factors = factors_of(float(scale.value), int(zero_point.value), *(part.value or part.dtype.limits))
    if factors is None:
        raise NotVectorsError
    return factors


@functools.lru_cache(maxsize=256)
def factors_of(scale: float, zero_point: int, low: int, high: int) -> tuple[float, float, float, float] | None:
    """Return least, most, factor and rest for mt_mve_quantize; None: none are proved to give its results.

    Quotients and x * factor + x * rest, rounded to float32 each, increase with x. So it is enough that they are rounded
    to equal integers at both sides of each step from one result to the next, between `least` and `most`, which give the
    smallest and the largest result.
    """
    step, one = np.float32(scale), np.float32(1)
    steps = np.arange(low - zero_point, high - zero_point)
    if not 2.0**-100 < step < 2.0**100 or not 0 < len(steps) <= 65536:
        return None

    def results(x: Array) -> Array:
        rounded: Array = np.rint(x / step)
        return rounded

    above = ((steps + 0.5) * float(step)).astype(np.float32)  # to the first float of the result above each step
    for _ in range(4):
        above = np.where(results(above) <= steps, np.nextafter(above, np.float32(np.inf)), above)
        below = np.nextafter(above, np.float32(-np.inf))
        above = np.where(results(below) > steps, below, above)
    below = np.nextafter(above, np.float32(-np.inf))
    if (results(above) != steps + 1).any() or (results(below) != steps).any():
        return None
    factor = one / step
    rest = np.float32(float(Fraction(1) / Fraction(float(step)) - Fraction(float(factor))))
    for x, expected in ((above, steps + 1), (below, steps)):
        if (np.rint(_fused(x, factor, x * rest)) != expected).any():
            return None
    return float(below[0]), float(above[-1]), float(factor), float(rest)


def _fused(x: Array, factor: np.float32, added: Array) -> Array:
    """Return x * factor + added of float32, rounded once."""
    product, part = x.astype(np.float64) * np.float64(factor), added.astype(np.float64)
    total = product + part
    addend = total - product
    lost = (product - (total - addend)) + (part - addend)
    is_middle = total.view(np.int64) & (2**29 - 1) == 2**28  # of two float32
    return np.where(
        is_middle, np.nextafter(total, np.where(lost > 0, np.inf, np.where(lost < 0, -np.inf, total))), total
    ).astype(np.float32)


# Elements that are moved, and elements of 8 bits that are looked up and compared.


@frozen
class Width:
    """Vectors of elements of 8 or 16 bits: lanes, and the bits of offsets, which are those of a lane's register."""

    lanes: int
    offset: DType
    element: DType

    @property
    def code(self) -> str:
        """The suffix of its functions."""
        return f"{self.lanes}x{self.element.size * 8}"

    @property
    def steps(self) -> str:
        """The suffix of functions of its offsets."""
        return f"{self.lanes}x{self.offset.size * 8}"

    def reaches(self, largest: int) -> bool:
        """Whether an offset fits."""
        return 0 <= largest <= self.offset.limits[1]


BYTES = Width(16, DType.UINT8, DType.UINT8)
WIDTHS = (BYTES, Width(8, DType.UINT16, DType.UINT8), Width(8, DType.UINT16, DType.UINT16))


class Lookups:
    """The C of vectors of 16 elements of 8 bits: loads, tables of results, the largest and the smallest of them."""

    def __init__(self, nest: Nest) -> None:
        self.nest, self.axis, self.cost = nest, nest.axes[-1], LOOP + 1

    def body(self, count: int) -> Body:
        """Return the C of a vector of which `count` lanes are in use."""
        self.count, nest = count, self.nest
        if nest.graph.types[nest.node.outputs[0]].dtype.size != 1:
            raise NotVectorsError
        value = self._vector(nest.expr)
        to = nest.place(Offset({axis.number: axis.stride for axis in nest.axes}, 0), self.axis)
        return Body([f"mt_mve_store_16x8((uint8_t *)(output + {to}), {value}, {count});"], self.cost)

    def _vector(self, part: Expr) -> str:
        self.cost += 1
        if part.dtype not in (DType.INT8, DType.UINT8):
            raise NotVectorsError
        if part.op == "const":
            return f"mt_mve_all_16x8({int(part.value) & 255})"
        if part.op in ("maximum", "minimum"):
            a, b = (self._vector(arg) for arg in part.args)
            return f"mt_mve_{part.op[:3]}_{part.dtype.code}x16({a}, {b})"
        if part.op != "load":
            raise NotVectorsError
        read, nest = self.nest.offset(part), self.nest
        name, factor = nest.names[part.value], read.factors.get(self.axis.number, 0)
        others = [pair for pair in read.others if not nest.is_uniform(pair[0], self.axis)]
        if not others and factor == 1:
            return f"mt_mve_load_16x8((const uint8_t *)({name} + {nest.place(read, self.axis)}), {self.count})"
        if not others and not factor:
            return f"mt_mve_all_16x8((uint8_t){name}[{nest.place(read, self.axis)}])"
        if factor or len(others) != 1 or others[0][1] != 1:
            raise NotVectorsError
        index = others[0][0]
        index = index.args[0] if index.op == "cast" and index.dtype is DType.INT32 else index
        if index.dtype is not DType.UINT8:
            raise NotVectorsError
        at = self._vector(index.args[0] if index.op == "cast" else index)  # the same bits
        return f"mt_mve_gather_16x8((const uint8_t *)({name} + {nest.place(read, self.axis)}), {at}, {self.count})"


class Moves:
    """The C of vectors of elements that are copied along any axis, to and from places at equal or known distances."""

    def __init__(self, nest: Nest, axis: Axis, width: Width) -> None:
        load = nest.expr
        read = nest.offset(load)
        if load.op != "load" or nest.dtype(load).size != width.element.size:
            raise NotVectorsError
        self.nest, self.axis, self.width, self.offsets = nest, axis, width, dict[str, Array]()
        uniform = tuple(pair for pair in read.others if nest.is_uniform(pair[0], axis))
        at = np.arange(axis.size) * read.factors.get(axis.number, 0)
        for index, factor in read.others:
            if (index, factor) not in uniform:
                at = at + self._values(index) * factor
        lowest, reach = int(at.min()), width.lanes - 1
        apart = {*np.diff(at).tolist()} or {1}
        self.step = apart.pop() if len(apart) == 1 and min(apart) >= 0 else None
        if self.step is None:
            self.offsets = {"offsets": (at - lowest).astype(width.offset.numpy)}
        largest = int(at.max()) - lowest if self.step is None else self.step * reach if self.step > 1 else 0
        if not width.reaches(largest) or not width.reaches(axis.stride * reach if axis.stride > 1 else 0):
            raise NotVectorsError
        factors = {**read.factors, axis.number: self.step or 0}
        self.read = Offset(factors, read.first + lowest, uniform)
        self.cost = LOOP + 2 + (self.step is None)

    def _values(self, index: Expr) -> Array:
        """Return an index's value at each element of the axis, which must depend on nothing else."""
        shape, constants = [1] * len(self.nest.graph.types[self.nest.node.outputs[0]].shape), self.nest.graph.constants
        values, parts = self.nest.node.inputs, [*index.parts()]
        is_constant = all(part.op != "load" or values[part.value] in constants for part in parts)
        is_constant &= all(part.op not in ("axis", "reduce") or part.value == self.axis.number for part in parts)
        if not is_constant or len(self.axis.dims) > 1:
            raise NotVectorsError
        shape[self.axis.number] = self.axis.size
        operands = [constants.get(value, np.empty(0)) for value in values]
        return evaluate(index, operands, tuple(shape)).reshape(-1).astype(np.int64)

    def body(self, count: int) -> Body:
        """Return the C of a vector of which `count` lanes are in use."""
        nest, width, axis = self.nest, self.width, self.axis
        bits, step, before, uniforms = width.element.size * 8, self.step, list[str](), dict[Expr, str]()
        name = nest.names[nest.expr.value]
        place = nest.place(self.read, axis, lambda index: uniforms.setdefault(index, f"u{len(uniforms)}"))
        pointer = f"(const uint{bits}_t *)({name} + {place})"

        def steps(step: int) -> str:
            kind = f"u{width.offset.size * 8}x{width.lanes}"
            before.append(f"const mt_mve_{kind} steps{step} = mt_mve_steps_{width.steps}({step});")
            return f"steps{step}"

        if step == 0:
            value = f"mt_mve_all_{width.steps}((uint{bits}_t){name}[{place}])"
        elif step == 1:
            value = f"mt_mve_load_{width.code}({pointer}, {count})"
        else:
            offsets = f"mt_mve_load_{width.steps}(offsets + {axis_name(axis.number)}, {count})"
            value = f"mt_mve_gather_{width.code}({pointer}, {steps(step) if step else offsets}, {count})"
        to = nest.place(Offset({other.number: other.stride for other in nest.axes}, 0), axis)
        to = f"(uint{bits}_t *)(output + {to})"
        if axis.stride == 1:
            line = f"mt_mve_store_{width.code}({to}, {value}, {count});"
        else:
            line = f"mt_mve_scatter_{width.code}({to}, {steps(axis.stride)}, {value}, {count});"
        return Body([line], self.cost, [*dict.fromkeys(before)], nest.variables(uniforms, axis))


# Whole loops, and the results of other kernels.


def vectors_of(node: Node, graph: Graph) -> str:
    """Return the C of four results of a kernel, of its vector `acc`.

    Raises:
        NotVectorsError: its expression reads something else, or can't be computed so.
    """
    nest = Nest.of(node, graph)
    if any(part.op in ("load", "axis", "reduce") for part in nest.expr.parts()):
        raise NotVectorsError
    vectors = Vectors(nest)
    _kind(graph.types[node.outputs[0]].dtype)
    number = vectors.vector(nest.expr)
    if vectors.lines():
        raise NotVectorsError
    return vectors.text(number)


@frozen
class VectorLoop:
    """A loop by vectors: the C of its axes, the instructions that it takes, and its own constants.

    reads: the numbers of the operands that it reads; None: those of the expression.
    """

    lines: tuple[str, ...]
    cost: float
    constants: Mapping[str, Array]
    reads: frozenset[int] | None = None


def vector_loop(node: Node, graph: Graph) -> VectorLoop:
    """Return the fastest way to write a loop by vectors.

    Raises:
        NotVectorsError: its expression can't be computed so.
    """
    nest = Nest.of(node, graph)
    candidates: list[VectorLoop] = []
    ways: list[tuple[Axis, int, Callable[[], Vectors | Eights | Lookups | Moves]]] = [
        (axis, width.lanes, functools.partial(Moves, nest, axis, width))
        for axis in nest.axes for width in WIDTHS if nest.expr.op == "load"
    ]  # fmt: skip
    last = nest.axes[-1]
    if last.stride == 1:
        ways += [(last, BYTES.lanes, lambda: Lookups(nest)), (last, LANES, lambda: Vectors(nest))]
        ways += [(last, EIGHT, lambda: Eights(nest))]
    for axis, lanes, make in ways:
        try:
            candidates.append(_whole(nest, axis, lanes, make))
        except NotVectorsError:
            continue
    blocks, shape = blocks_that_pay(node, graph) if nest.expr.op != "load" else [], graph.types[node.outputs[0]].shape
    for dim, size in enumerate(shape if blocks else ()):
        with contextlib.suppress(NotVectorsError):
            if size > 1 and dim not in blocks[0].stretches:
                candidates.append(_by_blocks(nest, Axis(dim, size, prod(shape[dim + 1 :]), frozenset([dim])), blocks))
    if not candidates:
        raise NotVectorsError
    return min(candidates, key=lambda candidate: candidate.cost)


def headers_of(node: Node, graph: Graph) -> tuple[str, ...]:
    """Return the headers with the functions of a node's vectors."""
    return ("mt_mve_loop.h", *(["mt_mve_fixed16.h"] if has_fixed16(node, graph) else []))


def vector_rest(node: Node, graph: Graph, acc: str) -> Body | None:
    """Return the C of four results of an epilogue with int32 sums at `acc`; None: vectors don't have its functions.

    The results are a matrix; its columns go in whole vectors.
    """
    expr, (rows, columns) = expression_of(node), graph.types[node.outputs[0]].shape
    if expr is None or graph.is_sample or columns % LANES or expr.size > LARGEST:
        return None
    axes = tuple(Axis(number, *how, frozenset([number])) for number, how in enumerate(((rows, columns), (columns, 1))))
    try:
        return Vectors(Nest(node, graph, expr, operand_names(node, graph, expr), axes[rows == 1 :], acc)).body(LANES)
    except NotVectorsError:
        return None


def _by_blocks(nest: Nest, axis: Axis, blocks: Sequence[Block]) -> VectorLoop:
    """Return the loop over blocks of results, by vectors along an axis on which no block depends."""
    lines, before, cost = list[str](), list[str](), 0.0
    shape = nest.graph.types[nest.node.outputs[0]].shape
    for block in blocks:
        steps = {dim: stretch.step for dim, stretch in block.stretches.items()}
        axes = [
            Axis(dim, size, prod(shape[dim + 1 :]) * steps.get(dim, 1), frozenset([dim]))
            for dim, size in block.axes(shape) if dim != axis.number
        ]  # fmt: skip
        block_nest, inner, vectors = replace(nest, axes=(*axes, axis)), list[str](), 0.0
        results = [(Offset.of(load_of(0, DType.INT8, index), shape).first, expr) for index, expr in block.results]
        whole, outside = axis.size // LANES * LANES, list[str]()
        for at, last, count in ((0, whole, LANES), (whole, axis.size, axis.size - whole)):
            if at != last:
                body = Vectors(block_nest).body(count, results)
                before, outside = [*before, *body.before], body.outside
                inner += loop(axis_name(axis.number), str(at), str(last), LANES, body.lines)
                vectors += -(-(last - at) // LANES) * body.cost
        inner = loops([(other.number, other.size) for other in axes], [*outside, *inner])
        lines += inner if axes else ["{", *indented(inner), "}"]
        cost += prod(other.size for other in axes) * (vectors + ROW)
    exprs = [expr for block in blocks for _, expr in block.results]
    reads = frozenset().union(*(operands_read(expr, nest.node, nest.graph) for expr in exprs))
    return VectorLoop((*dict.fromkeys(before), *lines), cost, {}, reads)


def _whole(nest: Nest, axis: Axis, lanes: int, make: Callable[[], Vectors | Eights | Lookups | Moves]) -> VectorLoop:
    """Return the loop over all axes, `axis` innermost."""
    whole, inner, cost, k = axis.size // lanes * lanes, list[str](), float(ROW), axis_name(axis.number)
    before, outside, maker = list[str](), list[str](), make()
    outer = [other for other in nest.axes if other is not axis and other.size != 1]
    rounds = prod(other.size for other in outer)
    for first, last, count in ((0, whole, lanes), (whole, axis.size, axis.size - whole)):
        if first == last:
            continue
        maker = make()
        body = maker.body(count)
        before, outside = body.before, body.outside
        inner += loop(k, str(first), str(last), lanes, body.lines)
        cost += (last - first) / lanes * body.cost if count == lanes else body.cost + TAIL
    lines = loops([(other.number, other.size) for other in outer], [*outside, *inner])
    cost *= rounds
    if not isinstance(maker, Moves) or not maker.offsets:
        return VectorLoop((*before, *lines), cost, {})
    others = (number for index, _ in maker.read.others for number in index.operands())
    return VectorLoop((*before, *lines), cost, maker.offsets, frozenset({nest.expr.value, *others}))
