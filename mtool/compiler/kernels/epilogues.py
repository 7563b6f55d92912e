"""The epilogues of float32 tiles: nothing, a ReLU in the tile, or an expression over the stored sums."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.expr import acc, axis, call, const
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.ir.scalar import ADD, FixedRequantise, Requantise, Rescale, RescalePair, Text
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.exact_scaling import ALONE, Together, exact_scaling
from mtool.compiler.kernels.expressions import (
    element,
    is_identity,
    needs_math,
    operand_arguments,
    operand_constants,
    operand_names,
)
from mtool.compiler.kernels.f32 import UNIT, Stored
from mtool.compiler.kernels.scaling import FixedScaling, FloatScaling, NearFloatScaling, OddFloatScaling, Scaling
from mtool.compiler.kernels.schedule import Argument, Kernel
from mtool.compiler.kernels.threshold_multipliers import Reach
from mtool.compiler.kernels.weighted_sum import WeightedSum

# The epilogue of portable kernels: the expression that fusion gave, written out around each result.


TIES = "whether a tile from this channel on has one whose sums beside a half are looked at more closely"
_OWN_LAYOUTS = {2: "outputs, inputs", 4: "output channels, kernel rows, kernel columns, input channels"}


def acc_type(node: Node, graph: Graph) -> DType:
    """Return the accumulator's type, which is the bias's: float32, int32, or int64 where sums may leave int32."""
    return DType.of(graph.constants[node.inputs[2]].dtype)


def _is_near(part: Expr) -> bool:
    return isinstance(part.value, FixedRequantise) and part.value.near


class EpilogueText:
    """The C of a kernel's epilogue; templates call it with the C of the accumulator, offset and channel."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.graph = node, graph
        self.expr = WithEpilogue.of(node).epilogue
        self.names = operand_names(node, graph, self.expr)

    def __call__(self, acc: str, offset: str, axes: dict[int, str]) -> str:
        """Return the value to store."""
        text = {number: Text(c, 9 if " " in c else 0) for number, c in axes.items()}
        return element(self.expr, self.node, self.graph, self.names, lambda n: text[n], acc=acc, offset=offset)

    def plain(self, acc: str, offset: str, axes: dict[int, str]) -> str:
        """Return the value to store of a channel that `beside_halves` does not name."""
        text = {number: Text(c, 9 if " " in c else 0) for number, c in axes.items()}
        expr = self.expr.rewrite(
            lambda part: replace(part, value=replace(part.value, near=False)) if _is_near(part) else part
        )
        return element(expr, self.node, self.graph, self.names, lambda n: text[n], acc=acc, offset=offset)

    def beside_halves(self, together: int) -> Array | None:
        """Return from which channels on one of so many needs more than a product (FixedRequantise), uint8 [N].

        None: no channel does.
        """
        parts = [part for part in self.expr.walk() if _is_near(part)]
        if not parts:
            return None
        found = np.zeros(self.graph.types[self.node.outputs[0]].shape[-1], bool)
        for part in parts:
            factor = part.args[1]
            value = factor.value if factor.op == "const" else self.graph.constants[self.node.inputs[factor.value]]
            found |= np.asarray(value).reshape(-1) < 0
        ahead = np.pad(found, (0, together - 1))
        return np.asarray(np.lib.stride_tricks.sliding_window_view(ahead, together).any(axis=1), np.uint8)

    @property
    def has_bias(self) -> bool:
        """Whether a weighted sum has a bias that is not zeros, which it has where the model has none."""
        return bool(self.graph.constants[self.node.inputs[2]].any())

    def bias(self, channel: str) -> str:
        """Return what the sum of a channel begins with."""
        zero = "0.0f" if acc_type(self.node, self.graph).is_float else "0"
        return f"bias[{channel}]" if self.has_bias else zero

    def kernel(
        self,
        body: str,
        weights: Array,
        scratch: str = "",
        layout: str = "",
        ties: Array | None = None,
        headers: tuple[str, ...] = (),
    ) -> Kernel:
        """Assemble the function: input, output, weights, bias if any, what the epilogue reads, scratch (its type).

        `layout` says in what order the weights stand, if not in that of the operator; `ties` are of `beside_halves`,
        `headers` a Kernel's.
        """
        node, graph = self.node, self.graph
        constants = {"weights": weights} | ({"ties": ties} if ties is not None else {})
        if self.has_bias:
            constants["bias"] = graph.constants[node.inputs[2]]
        constants |= operand_constants(node, graph, self.names)
        arguments = [
            Argument("input", graph.types[node.inputs[0]].dtype.c, ("input", 0)),
            Argument("output", graph.types[node.outputs[0]].dtype.c, "output"),
            Argument("weights", DType.of(weights.dtype).c, ("constant", "weights")),
            *([Argument("bias", acc_type(node, graph).c, ("constant", "bias"))] if self.has_bias else []),
            *operand_arguments(node, graph, self.names),
            *([Argument("ties", "uint8_t", ("constant", "ties"))] if ties is not None else []),
        ]
        layouts = {
            "weights": layout or _OWN_LAYOUTS.get(weights.ndim, ""),
            "bias": "of each output channel",
            "ties": TIES,
        }
        if scratch:
            arguments.append(Argument("scratch", scratch, "scratch"))
        return Kernel(tuple(arguments), body, constants, needs_math(self.expr), headers, layouts)


# Epilogues of the runtime's tiles, and what may follow them: an expression over the stored results.


class TileEpilogue:
    """An epilogue that tiles of the runtime know by heart, but for `rest`: an expression over their stored results.

    What it loads lies at the element itself, in a table, or (of a dense layer) at the output's channel. None: nothing.
    """

    __slots__ = ()
    rest: Expr | None

    def rest_text(self, node: Node, graph: Graph, acc: str, offset: str, channel: str = "0", row: str = "0") -> str:
        """Return the C of `rest` for the element at `offset`, whose channel and row (of a dense layer) are given."""
        assert self.rest is not None
        names = operand_names(node, graph, self.rest)
        return element(self.rest, node, graph, names, lambda _: Text(channel), acc=acc, offset=offset)

    def kernel(
        self,
        node: Node,
        graph: Graph,
        body: str,
        weights: Array,
        layout: str,
        header: str,
        scratch: str,
        shared: tuple[str, ...] = (),
    ) -> Kernel:
        """Assemble the function: input, output, packed weights, what `rest` reads, scratch (its type; empty: none).

        `layout` says in what order the weights are packed for the runtime's `header`; `shared` is a Kernel's.
        """
        names = operand_names(node, graph, self.rest) if self.rest else {}
        arguments = [
            Argument("input", graph.types[node.inputs[0]].dtype.c, ("input", 0)),
            Argument("output", graph.types[node.outputs[0]].dtype.c, "output"),
            Argument("weights", DType.of(weights.dtype).c, ("constant", "weights")),
            *operand_arguments(node, graph, names),
        ]
        if scratch:
            arguments.append(Argument("scratch", scratch, "scratch"))
        constants = operand_constants(node, graph, names)
        math = self.rest is not None and needs_math(self.rest)
        layouts = {"weights": f"packed for {header}, {layout}"}
        return Kernel(
            tuple(arguments), body, {"weights": weights, **constants}, math, (header,), layouts, shared=shared
        )


def is_elementwise(rest: Expr, node: Node, graph: Graph, acc: DType, *, by_channel: bool = False) -> bool:
    """Whether an expression reads a kernel's result as `acc`, its own elements, tables, and nothing else.

    The loops after a dense layer know the channel too, those of a convolution if they are written so (`by_channel`).
    """
    shape = graph.types[node.outputs[0]].shape
    channel = Expr("axis", DType.INT32, value=len(shape) - 1)
    is_dense = by_channel or (isinstance(node.attrs, WeightedSum) and len(shape) == 2)
    for part in rest.walk():
        if part.op == "reduce" or (part.op == "acc" and part.dtype is not acc):
            return False
        if part.op == "load":
            kind = graph.types[node.inputs[part.value]]
            bare = any(index.op == "axis" for index in part.args)
            if is_dense and all(index in (channel, const(0, DType.INT32)) for index in part.args):
                continue
            if bare and not is_identity(part, shape, kind.shape):
                return False
    return True


# The epilogue that SIMD schedules have by heart: sums to int8 or int16 by numbers a channel, and what may follow.


_NONE: Array = np.zeros(0, np.int32)  # a product of two activations has neither weights nor a bias
NEAR = 2.0**15 - 256  # steps; with a zero point they still have 16 bits
SCALED = ("requantise", "rescale")  # the expressions that stand for a Scaling


@dataclass(frozen=True, slots=True)
class Pair:
    """The sum of another operand and a result, each times a number; see mt_mve_rescale_pair."""

    numbers: tuple[int, ...]
    other: str


@dataclass(frozen=True, slots=True)
class Int8Epilogue(TileEpilogue):
    """An epilogue as `rest(requantise(acc))`: the limits and zero point, how sums are scaled, and what follows.

    `rest` reads the requantised int8 as `acc`; None: it is the result. What it loads lies at the element itself,
    in a table, or (of a dense layer) at the output's channel. `bias` is the kernel's, but where a sum is known
    beforehand and too large for the scaling.
    """

    how: Requantise | Rescale
    scaling: Scaling
    bias: Array
    rest: Expr | None
    kind: ClassVar[DType] = DType.INT8

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Split a node's epilogue; None: it has another form."""
        expr = WithEpilogue.of(node).epilogue
        found = {part for part in expr.walk() if part.op in SCALED and part.args[0].op == "acc"}
        if len(found) != 1 or graph.types[node.inputs[0]].dtype is not cls.kind:
            return None
        (part,) = found
        scaled = _scaling(part, node, graph)
        if part.dtype is not cls.kind or scaled is None:
            return None
        narrow = Expr("acc", cls.kind)
        rest = expr.rewrite(lambda p: narrow if p == part else p)
        if rest == narrow:
            return cls(part.value, *scaled, None)
        return cls(part.value, *scaled, rest) if is_elementwise(rest, node, graph, cls.kind) else None

    @property
    def scale(self) -> Array | None:
        """The float32 scales [N]; None: sums are not scaled by floats."""
        return self.scaling.scale if isinstance(self.scaling, FloatScaling) else None

    def exact_scaling(self, weights: Array, together: Together = ALONE) -> tuple[Scaling, Array]:
        """Return what scales sums by multipliers that give what the float scales give, and the biases for it.

        Where there are none: its own.

        Args:
            weights: integers [N, ...], as the model has them.
            together: channels that are scaled in one way.
        """
        if not isinstance(self.scaling, FloatScaling) or not isinstance(self.how, Requantise):
            return self.scaling, self.bias
        return exact_scaling(self.scaling, self.how, weights, self.bias, together)

    @property
    def is_plain(self) -> bool:
        """Whether the output's zero point is its lowest value and nothing is clamped: what a fused ReLU gives."""
        return (self.how.zero_point, self.how.low, self.how.high) == (-128, -128, 127)

    def is_near(self, weights: Array) -> bool:
        """Whether floats give all of int8, and no result has more than 16 bits before it is clamped.

        Then a float that has whole steps alone can round: results plus an even zero point are its low half.

        Args:
            weights: integers [N, ...].
        """
        if not isinstance(self.scaling, FloatScaling) or not isinstance(self.how, Requantise):
            return False
        if (self.how.low, self.how.high) != (-128, 127):
            return False
        reach = Reach.of(weights, self.bias)
        furthest = np.maximum(-reach.least, reach.most).astype(np.float64) * np.abs(self.scaling.scale)
        return bool((furthest < NEAR).all())

    def pair(self, node: Node, graph: Graph) -> Pair | None:
        """Return `rest` as the sum of the result and another operand, if it is that: what Helium has a loop for."""
        if self.rest is None or self.rest.op != "rescale_pair" or self.rest.value.even:
            return None
        (load,) = (part for part in self.rest.args if part.op != "acc")
        if load.op != "load" or load.dtype is not DType.INT8 or node.inputs[load.value] in graph.constants:
            return None
        if not is_identity(load, graph.types[node.outputs[0]].shape, graph.types[node.inputs[load.value]].shape):
            return None
        how: RescalePair = self.rest.value
        left, right = (how.left, how.right) if self.rest.args[0] == load else (how.right, how.left)
        numbers = (left, right, how.offset, how.shift, how.low, how.high)
        return Pair(numbers, operand_names(node, graph, self.rest)[load.value])

    def nearer(self, weights: Array) -> Self:
        """Return this with what tells the runtime that results are near, if they are; see is_near."""
        if not self.is_near(weights):
            return self
        near = OddFloatScaling if self.how.zero_point % 2 else NearFloatScaling
        return replace(self, scaling=near(self.scaling.words))

    @property
    def is_bounded(self) -> bool:
        """Whether the zero point can be added to a scaled sum without leaving 32 bits."""
        return not isinstance(self.how, Requantise) or self.how.bounded


class Int16Epilogue(Int8Epilogue):
    """The same of int16: int32 or int64 sums of int16 activations to int16, by floats."""

    kind = DType.INT16

    def exact_scaling(self, weights: Array, together: Together = ALONE) -> tuple[Scaling, Array]:
        """None are looked for."""
        return self.scaling, self.bias

    @property
    def scale(self) -> Array:
        """The float32 scales [N]."""
        assert isinstance(self.scaling, FloatScaling)
        return self.scaling.scale


def _scaling(part: Expr, node: Node, graph: Graph) -> tuple[Scaling, Array] | None:
    """Return the scaling that an expression of a sum stands for, and the bias; None: it is none that kernels have."""
    weights, bias = (graph.constants.get(value, _NONE) for value in (*node.inputs[1:3], "")[:2])
    numbers = [per_channel(number, node, graph) for number in part.args[1:]]
    if part.op == "requantise":
        (scale,) = numbers
        return None if scale is None else (FloatScaling.of(scale), bias)
    multiplier, shift = numbers
    if multiplier is None or shift is None or not weights.size:
        return None
    bias, fixed = FixedScaling.of(multiplier, shift, twice=part.value.twice).without_dead_channels(weights, bias)
    return (fixed, bias) if fixed.fits(weights, bias) else None


def per_channel(number: Expr, node: Node, graph: Graph) -> Array | None:
    """Return the values of a number that is constant or one of each output channel, [N]."""
    shape = graph.types[node.outputs[0]].shape
    if number.op == "const":
        return np.full(shape[-1], number.value, number.dtype.numpy)
    data = graph.constants.get(node.inputs[number.value]) if number.op == "load" else None
    if data is None or data.size != shape[-1]:
        return None
    last = number.args[-1]
    return data.reshape(-1) if last.op == "axis" and last.value == len(shape) - 1 else None


# The epilogue of tiles whose results are the sums themselves: any expression, over int32 that are staged.


@dataclass(frozen=True, slots=True)
class SumEpilogue(TileEpilogue):
    """An epilogue of int32 sums of int16: what it loads lies at the element, its channel or its row, or is one number.

    `bias` is the kernel's.
    """

    rest: Expr
    bias: Array

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Return a node's epilogue; None: it reads other elements, or its kernel is none of int16 in int32."""
        bias, expr = graph.constants[node.inputs[2]], WithEpilogue.of(node).epilogue
        if graph.types[node.inputs[0]].dtype is not DType.INT16 or bias.dtype.name != "int32":
            return None
        shape = graph.types[node.outputs[0]].shape
        simple = (const(0, DType.INT32), axis(len(shape) - 1), *([axis(0)] if len(shape) == 2 or shape[0] == 1 else []))
        for part in expr.walk():
            if part.op == "reduce":
                return None
            if part.op == "load" and not all(index in simple for index in part.args):
                kind = graph.types[node.inputs[part.value]]
                if any(index.op == "axis" for index in part.args) and not is_identity(part, shape, kind.shape):
                    return None
        return cls(expr, bias)

    def rest_text(self, node: Node, graph: Graph, acc: str, offset: str, channel: str = "0", row: str = "0") -> str:
        """Return the C of the epilogue for the sum `acc` of the element at `offset`."""
        last = len(graph.types[node.outputs[0]].shape) - 1
        where = {0: Text(row), last: Text(channel, ADD if " " in channel else 0)}
        names = operand_names(node, graph, self.rest)
        return element(self.rest, node, graph, names, where.__getitem__, acc=acc, offset=offset)


def epilogue_of_int16(node: Node, graph: Graph) -> Int16Epilogue | SumEpilogue | None:
    """Return the epilogue of a kernel of int16, which scales sums if it can; None: it is neither."""
    return Int16Epilogue.of(node, graph) or SumEpilogue.of(node, graph)


@dataclass(frozen=True, slots=True)
class FloatEpilogue(TileEpilogue):
    """An epilogue as `rest(relu(acc))`; `relu` is done in the tile, `rest` on the stored sums (None: nothing)."""

    relu: bool
    rest: Expr | None

    @classmethod
    def of_stored(cls, node: Node, graph: Graph) -> Self | None:
        """Split the epilogue of a node whose weights may be bytes (kernels.f32.stored); None: as `of`."""
        kind = graph.types[node.inputs[0]].dtype
        if graph.constants[node.inputs[1]].dtype.name != "int8" or kind is not DType.FLOAT32:
            return cls.of(node, graph)
        total = acc(DType.FLOAT32)
        whole = call("mul", total, const(UNIT, DType.FLOAT32))
        expr = WithEpilogue.of(node).epilogue.rewrite(lambda part: whole if part == total else part)
        return cls(False, expr) if is_elementwise(expr, node, graph, DType.FLOAT32, by_channel=True) else None

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Split a node's epilogue; None: it reads other elements, or its kernel is not of float32."""
        kinds = (graph.types[node.inputs[0]].dtype, graph.constants[node.inputs[1]].dtype.name)
        if kinds != (DType.FLOAT32, "float32"):
            return None
        expr = WithEpilogue.of(node).epilogue
        if expr.op == "acc":
            return cls(False, None)
        zero = len(expr.args) == 2 and expr.args[1].op == "const" and expr.args[1].value == 0.0
        if expr.op == "maximum" and zero and expr.args[0].op == "acc":
            return cls(True, None)
        return cls(False, expr) if is_elementwise(expr, node, graph, DType.FLOAT32) else None

    def function(self, stem: str, product: str, stored: Stored = "") -> str:
        """Return the name of the runtime's function: mt_f32_columns_muladd_relu, mt_f32_columns_halves_fma."""
        return f"{stem}{'_' + stored if stored else ''}_{product}{'_relu' if self.relu else ''}"

    @property
    def least(self) -> str:
        """Return the bound that tiles of mt_mve_f32.h have, in C."""
        return "0" if self.relu else "MT_MVE_F32_ANY"
