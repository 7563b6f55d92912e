"""The epilogues of float32 tiles: nothing, a ReLU in the tile, or an expression over the stored sums."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType, Expr, Graph, Node, WithEpilogue, acc, axis, call, const
from mtool.compiler.ir.scalar import ADD, FixedRequantize, Requantize, Rescale, RescalePair, Text
from mtool.compiler.kernels.exact_scaling import ALONE, Together, exact_scaling
from mtool.compiler.kernels.expressions import element, is_identity, kernel_of, operand_names
from mtool.compiler.kernels.f32 import UNIT, Stored, stored_as
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.scaling import FixedScaling, FloatScaling, NearFloatScaling, OddFloatScaling, Scaling
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.threshold_multipliers import Reach
from mtool.compiler.kernels.weighted_sum import WeightedSum, stored_weights, weight_offset


@frozen
class Products:
    """A layer's weights as a template reads them, and the runtime function that multiplies by them, if any.

    layout: the order of the weights; "": that of the operator.
    header: the runtime's header with the loops.
    function: the function's name.
    declared: declarations that it needs, in C.
    last: its additional last argument, in C, if there is one.
    shared: the lines that define it, as in Kernel.
    others: further headers that it needs.
    ties: the result of `EpilogueText.beside_halves` for the channels that are computed together.
    has_bias: the weights include the biases.
    """

    weights: Array
    layout: str = ""
    header: str = ""
    function: str = ""
    declared: str = ""
    last: str = ""
    shared: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    ties: Array | None = None
    has_bias: bool = False

    @property
    def c(self) -> str:
        """The type of the weights in C."""
        return DType.of(self.weights.dtype).c

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers of the runtime that it needs."""
        return (self.header, *self.others) if self.header else ()


# The epilogue of portable kernels: the fused expression, written out around each result.


FACTOR = -2
"""The axis that stands for a channel's factor."""
TIES = "whether a tile from this channel on has a channel whose sums near a half need a closer check"
_OWN_LAYOUTS = {2: "outputs, inputs", 4: "output channels, kernel rows, kernel columns, input channels"}


def _is_near(part: Expr) -> bool:
    return isinstance(part.value, FixedRequantize) and part.value.near


@frozen
class Epilogue:
    """A kernel's epilogue, with the operands of its sums."""

    node: Node
    graph: Graph

    @property
    def expr(self) -> Expr:
        """The expression that is stored for each element."""
        return WithEpilogue.of(self.node).epilogue

    @property
    def x(self) -> DType:
        """The type of the input's elements."""
        return self.graph.types[self.node.inputs[0]].dtype

    @property
    def weights(self) -> Array:
        """The node's weights, as the model has them."""
        return self.graph.constants[self.node.inputs[1]]

    @property
    def stored_weights(self) -> Array:
        """The weights as they are stored."""
        return stored_weights(self.node, self.graph)

    @property
    def bias_of_model(self) -> Array:
        """The node's biases, as the model has them."""
        return self.graph.constants[self.node.inputs[2]]


class EpilogueText(Epilogue):
    """The C of a kernel's epilogue; templates call it with the C of the accumulator, offset and channel."""

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self:
        """Return a node's epilogue."""
        return cls(node, graph)

    @property
    def names(self) -> dict[int, str]:
        """The names in C of the operands that it reads, by their numbers."""
        return operand_names(self.node, self.graph, self.expr)

    def __call__(self, acc: str, offset: str, axes: dict[int, str]) -> str:
        """Return the value to store."""
        return self._text(self.expr, acc, offset, axes)

    def plain(self, acc: str, offset: str, axes: dict[int, str]) -> str:
        """Return the value to store for a channel of which `near` does not hold."""
        return self._text(self._plain, acc, offset, axes)

    @property
    def _plain(self) -> Expr:
        return self.expr.rewrite(
            lambda part: replace(part, value=replace(part.value, near=False)) if _is_near(part) else part
        )

    def held(self, acc: str, offset: str, axes: dict[int, str]) -> str:
        """Return the same with the variable `factor` for the C of `factor`."""
        factor, number = self._factor, Expr("axis", DType.INT32, value=FACTOR)
        expr = self._plain.rewrite(lambda part: number if part == factor else part)
        return self._text(expr, acc, offset, axes | {FACTOR: "factor"})

    @property
    def _factor(self) -> Expr | None:
        """The number of a channel by which its sums are multiplied, if it is one."""
        factors = {part.args[1] for part in self.expr.walk() if part.op == "requantize_fixed"}
        return next((factor for factor in factors if factor.op == "load" and len(factors) == 1), None)

    def factor(self, channel: str) -> str:
        """Return the C of the factor that `held` reads; "": none."""
        factor = self._factor
        return f"{self.names[factor.value]}[{channel}]" if factor else ""

    def near(self, channel: str) -> str:
        """Return the C condition under which a channel's sums near a half need a closer check; "": never.

        See FixedRequantize.
        """
        factors = {part.args[1] for part in self.expr.walk() if _is_near(part)}
        if any(factor.op == "const" for factor in factors):
            return "1"
        return " || ".join(sorted(f"{self.names[factor.value]}[{channel}] < 0" for factor in factors))

    def _text(self, expr: Expr, acc: str, offset: str, axes: dict[int, str]) -> str:
        text = {number: Text(c, 9 if " " in c else 0) for number, c in axes.items()}
        return element(expr, self.node, self.graph, self.names, lambda n: text[n], acc=acc, offset=offset)

    def beside_halves(self, together: int) -> Array | None:
        """Return for each channel whether one of `together` from it on needs more than a product, uint8 [N].

        See FixedRequantize. None: no channel does.
        """
        parts = [part for part in self.expr.walk() if _is_near(part)]
        if not parts:
            return None
        mask = np.zeros(self.graph.types[self.node.outputs[0]].shape[-1], bool)
        for part in parts:
            factor = part.args[1]
            value = factor.value if factor.op == "const" else self.graph.constants[self.node.inputs[factor.value]]
            mask |= np.asarray(value).reshape(-1) < 0
        ahead = np.pad(mask, (0, together - 1))
        return np.asarray(np.lib.stride_tricks.sliding_window_view(ahead, together).any(axis=1), np.uint8)

    @property
    def kind(self) -> DType:
        """The type of the elements of the kernel's scratch."""
        return self.x

    @property
    def acc(self) -> DType:
        """The accumulator's type, which is the bias's: float32, int32, or int64 where sums may leave int32."""
        return DType.of(self.bias_of_model.dtype)

    @property
    def offset(self) -> int:
        """The offset that is subtracted from the stored weights; vectors of floats have none."""
        return weight_offset(self.node, self.graph)

    @property
    def has_bias(self) -> bool:
        """Whether a weighted sum has a bias that is not all zeros (zeros stand for no bias)."""
        return bool(self.bias_of_model.any())

    def bias(self, channel: str) -> str:
        """Return the initial value of a channel's sum."""
        zero = "0.0f" if self.acc.is_float else "0"
        return f"bias[{channel}]" if self.has_bias else zero

    def kernel(self, name: str, products: Products, scratch: str, **values: Any) -> Kernel:
        """Render a template and assemble the function: input, output, weights, bias if any, what the epilogue reads.

        Args:
            name: the template's name.
            products: the weights.
            scratch: the type of the scratch; "": none.
            values: the template's variables besides `epilogue`, `products`, `x`, `w` and `acc` (the types of inputs,
                weights and sums), `offset` and `ties`.
        """
        node, graph, weights, ties = self.node, self.graph, products.weights, products.ties
        data = {"weights": weights} | ({"ties": ties} if ties is not None else {})
        if self.has_bias and not products.has_bias:
            data["bias"] = self.bias_of_model
        layout = products.layout or _OWN_LAYOUTS.get(weights.ndim, "")
        layouts = {"weights": layout, "bias": "of each output channel", "ties": TIES}
        types = {"x": self.x.c, "w": products.c, "acc": self.acc}
        body = template(
            name, epilogue=self, products=products, offset=self.offset, ties=ties is not None, **types, **values
        )
        behind = ("ties",) if ties is not None else ()
        return kernel_of(node, graph, body, self.expr, data, scratch, behind, headers=products.headers, layouts=layouts)


# Epilogues of the runtime's tiles, optionally followed by an expression over the stored results.


@frozen
class Pair:
    """A sum of two tensors with factors: their names, "" for the stored results."""

    names: tuple[str, ...]
    how: RescalePair


@frozen
class TileEpilogue(Epilogue):
    """An epilogue that the runtime's tiles implement, except for `rest`: an expression over their results.

    `rest` may load operands at the element itself, from a table, or (in a dense layer) at the output's channel; None:
    nothing follows. `kind` is the type of the results that it reads.
    """

    rest: Expr | None
    kind: ClassVar[DType]

    @property
    def is_alone(self) -> bool:
        """Whether the epilogue reads only the kernel's own numbers."""
        return not self.expr.operands()

    @property
    def stores_kind(self) -> bool:
        """Whether the output's elements are as large as the results that `rest` reads, which can be stored there."""
        return self.graph.types[self.node.outputs[0]].dtype.size == self.kind.size

    @property
    def keeps_type(self) -> bool:
        """Whether the output has the input's type."""
        return self.graph.types[self.node.outputs[0]].dtype is self.x

    def pair(self) -> Pair | None:
        """Return `rest` as a sum of the stored results and another int8 tensor, if it has that form."""
        node, types, rest = self.node, self.graph.types, self.rest
        if rest is None or rest.op != "rescale_pair":
            return None
        names, shape = operand_names(node, self.graph, rest), types[node.outputs[0]].shape
        for part in rest.args:
            is_plain = part.op == "load" and is_identity(part, shape, types[node.inputs[part.value]].shape)
            if part.op != "acc" and not (is_plain and part.dtype is DType.INT8):
                return None
        return Pair(tuple("" if part.op == "acc" else names[part.value] for part in rest.args), rest.value)

    def rest_text(self, acc: str, offset: str, channel: str = "0", row: str = "0") -> str:
        """Return the C of `rest` for the element at `offset`, whose channel and row (of a dense layer) are given."""
        assert self.rest is not None
        last = len(self.graph.types[self.node.outputs[0]].shape) - 1
        where = {0: Text(row), last: Text(channel, ADD if " " in channel else 0)}
        names = operand_names(self.node, self.graph, self.rest)
        return element(self.rest, self.node, self.graph, names, where.__getitem__, acc=acc, offset=offset)

    def kernel(self, name: str, products: Products, scratch: str, **values: Any) -> Kernel:
        """Render a template and assemble the function: input, output, packed weights, what `rest` reads, scratch.

        Args:
            name: the template's name.
            products: packed weights, and the function that multiplies by them.
            scratch: the type of the scratch; "": none.
            values: the template's variables besides `epilogue`, `rest`, `x` (the type of the inputs), `products`, and
            of
                those `function`, `declared` and `last`.
        """
        call = {"function": products.function, "declared": products.declared, "last": products.last}
        body = template(name, epilogue=self, rest=self.rest_text, products=products, x=self.x.c, **call, **values)
        layouts = {"weights": f"packed for {products.header}, {products.layout}"}
        return kernel_of(
            self.node, self.graph, body, self.rest, {"weights": products.weights}, scratch,
            headers=products.headers, layouts=layouts, shared=products.shared,
        )  # fmt: skip


def split(node: Node, graph: Graph, scaled: Collection[str], kind: DType) -> tuple[Expr, Expr | None] | None:
    """Split an epilogue: the part that scales sums to the input's type, and the rest, if any.

    None: the epilogue has another form, or does not read its operands elementwise.

    Args:
        node: the node.
        graph: its graph.
        scaled: the expressions that scale.
        kind: the type of its input.
    """
    expr, narrow = WithEpilogue.of(node).epilogue, Expr("acc", kind)
    parts = {part for part in expr.walk() if part.op in scaled and part.args[0].op == "acc"}
    if len(parts) != 1 or graph.types[node.inputs[0]].dtype is not kind:
        return None
    (part,) = parts
    rest = expr.rewrite(lambda inner: narrow if inner == part else inner)
    if part.dtype is not kind or not (rest == narrow or is_elementwise(rest, node, graph, kind)):
        return None
    return part, None if rest == narrow else rest


def is_elementwise(rest: Expr, node: Node, graph: Graph, acc: DType, *, by_channel: bool = False) -> bool:
    """Whether an expression reads a kernel's result as `acc`, its own elements, tables, and nothing else.

    The loops after a dense layer have the channel too, those of a convolution only with `by_channel`.
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


# The epilogue that SIMD schedules implement: sums to int8 or int16 by per-channel numbers, optionally with a rest.


_NONE: Array = np.zeros(0, np.int32)  # a product of two activations has neither weights nor a bias
NEAR = 2.0**15 - 256  # steps; with a zero point they still have 16 bits
SCALED = ("requantize", "requantize_fixed", "rescale")  # the expressions of a Scaling


@frozen
class Int8Epilogue(TileEpilogue):
    """An epilogue as `rest(requantize(acc))`: the limits and zero point, how sums are scaled, and what follows.

    `rest` reads the requantized int8 as `acc`; None: that is the result. It may load operands at the element itself,
    from a table, or (in a dense layer) at the output's channel. `bias` is the kernel's, except where a sum is known
    in advance and too large for the scaling.
    """

    how: Requantize | Rescale
    scaling: Scaling
    bias: Array
    kind: ClassVar[DType] = DType.INT8

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Split a node's epilogue; None: it has another form."""
        pair = split(node, graph, SCALED, cls.kind)
        scaled = scaling_of(pair[0], node, graph) if pair else None
        if pair is None or scaled is None:
            return None
        how = pair[0].value
        return cls(node, graph, pair[1], how.by_float if isinstance(how, FixedRequantize) else how, *scaled)

    @property
    def scale(self) -> Array | None:
        """The float32 scales [N]; None: sums are not scaled by floats."""
        return self.scaling.scale if isinstance(self.scaling, FloatScaling) else None

    def exact_scaling(self, together: Together = ALONE) -> tuple[Scaling, Array]:
        """Return a scaling by multipliers with the same results as the float scales, and the matching biases.

        If there is none, return its own scaling and biases.

        Args:
            together: the channels that are scaled in one way.
        """
        if not isinstance(self.scaling, FloatScaling) or not isinstance(self.how, Requantize):
            return self.scaling, self.bias
        return exact_scaling(self.scaling, self.how, self.weights, self.bias, together)

    def declared(self, struct: str, macro: str) -> str:
        """Return the declaration of the results' range, a struct of the runtime that a macro fills in."""
        numbers = (self.how.zero_point, self.how.low, self.how.high)
        return f"static const struct {struct} range = {macro}({', '.join(map(str, numbers))});"

    @property
    def is_plain(self) -> bool:
        """Whether the output's zero point is its lowest value and nothing is clamped: what a fused ReLU gives."""
        return (self.how.zero_point, self.how.low, self.how.high) == (-128, -128, 127)

    @property
    def is_near(self) -> bool:
        """Whether floats give all of int8, and no result has more than 16 bits before it is clamped.

        Then a float with only whole steps can round: results plus an even zero point are its low half.
        """
        if not isinstance(self.scaling, FloatScaling) or not isinstance(self.how, Requantize):
            return False
        if (self.how.low, self.how.high) != (-128, 127):
            return False
        reach = Reach.of(self.weights, self.bias)
        furthest = np.maximum(-reach.least, reach.most).astype(np.float64) * np.abs(self.scaling.scale)
        return bool((furthest < NEAR).all())

    def nearer(self) -> Self:
        """Return this with the scaling for near results, if they are; see is_near."""
        if not self.is_near:
            return self
        near = OddFloatScaling if self.how.zero_point % 2 else NearFloatScaling
        return replace(self, scaling=near(self.scaling.words))

    @property
    def is_bounded(self) -> bool:
        """Whether the zero point can be added to a scaled sum without leaving 32 bits."""
        return not isinstance(self.how, Requantize) or self.how.bounded


class Int16Epilogue(Int8Epilogue):
    """The same of int16: int32 or int64 sums of int16 activations to int16, by floats."""

    kind = DType.INT16
    is_scaled = True

    @property
    def numbers(self) -> list[Array]:
        """What is packed with the weights: the biases and the scales."""
        return [self.bias_of_model, self.scale]

    def exact_scaling(self, together: Together = ALONE) -> tuple[Scaling, Array]:
        """None are looked for."""
        return self.scaling, self.bias

    @property
    def scale(self) -> Array:
        """The float32 scales [N]."""
        assert isinstance(self.scaling, FloatScaling)
        return self.scaling.scale


def scaling_of(part: Expr, node: Node, graph: Graph) -> tuple[Scaling, Array] | None:
    """Return the scaling and bias for an expression of a sum; None: kernels do not support it."""
    weights, bias = (graph.constants.get(value, _NONE) for value in (*node.inputs[1:3], "")[:2])
    numbers = [per_channel(number, node, graph) for number in part.args[1:]]
    if part.op == "requantize":
        (scale,) = numbers
        return None if scale is None else (FloatScaling.of(scale), bias)
    if part.op == "requantize_fixed":
        if numbers[0] is None:
            return None
        scales = np.broadcast_to(np.array(part.value.scales, np.float32), numbers[0].shape)
        return FloatScaling.of(scales), bias
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


@frozen
class SumEpilogue(TileEpilogue):
    """An epilogue of int32 sums of int16: what it loads lies at the element, its channel or its row, or is one number.

    `bias` is the kernel's.
    """

    rest: Expr
    bias: Array
    kind: ClassVar[DType] = DType.INT32
    factors: ClassVar[DType] = DType.INT16
    is_scaled: ClassVar[bool] = False

    @property
    def numbers(self) -> list[Array]:
        """What is packed with the weights: the biases."""
        return [self.bias_of_model]

    def declared(self, struct: str, macro: str) -> str:
        """Nothing: results have no range."""
        return ""

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Return a node's epilogue; None: it reads other elements, or its kernel is not one of `factors` in int32."""
        bias, expr = graph.constants[node.inputs[2]], WithEpilogue.of(node).epilogue
        if graph.types[node.inputs[0]].dtype is not cls.factors or bias.dtype.name != "int32":
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
        return cls(node, graph, expr, bias)


class ByteSumEpilogue(SumEpilogue):
    """The same of sums of int8, unless a tile scales them."""

    factors = DType.INT8

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Return a node's epilogue; None: it reads other elements, or its results are scaled int8."""
        return None if Int8Epilogue.of(node, graph) else super().of(node, graph)


Epilogue16 = Int16Epilogue | SumEpilogue
"""Epilogues of int16 sums: the tile scales them, or they are the results."""


@frozen
class FloatEpilogue(TileEpilogue):
    """An epilogue as `rest(relu(acc))`; `relu` is done in the tile, `rest` on the stored sums (None: nothing)."""

    relu: bool
    kind: ClassVar[DType] = DType.FLOAT32

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Split a node's epilogue; None: it reads other elements, or its kernel is not of float32."""
        kinds = (graph.types[node.inputs[0]].dtype, graph.constants[node.inputs[1]].dtype.name)
        if kinds != (DType.FLOAT32, "float32"):
            return None
        expr = WithEpilogue.of(node).epilogue
        if expr.op == "acc":
            return cls(node, graph, None, False)
        zero = len(expr.args) == 2 and expr.args[1].op == "const" and expr.args[1].value == 0.0
        if expr.op == "maximum" and zero and expr.args[0].op == "acc":
            return cls(node, graph, None, True)
        return cls(node, graph, expr, False) if is_elementwise(expr, node, graph, cls.kind) else None

    @property
    def stored(self) -> Stored:
        """How its weights are stored."""
        return stored_as(self.node, self.graph) or ""

    def function(self, stem: str, product: str) -> str:
        """Return the name of the runtime's function: mt_f32_columns_muladd_relu, mt_f32_columns_halves_fma."""
        return f"{stem}{'_' + self.stored if self.stored else ''}_{product}{'_relu' if self.relu else ''}"

    @property
    def least(self) -> str:
        """Return the lower bound of results for the tiles of mt_mve_f32.h, in C."""
        return "0" if self.relu else "MT_MVE_F32_ANY"


class StoredEpilogue(FloatEpilogue):
    """One of a layer whose weights are widened as they are read, from float16 or bytes (mtool.compiler.kernels.f32)."""

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Split a node's epilogue; None: as FloatEpilogue, or the weights can't be widened."""
        kind, stored = graph.types[node.inputs[0]].dtype, stored_as(node, graph)
        if stored is None or stored != "bytes" or kind is not DType.FLOAT32:
            return super().of(node, graph) if stored is not None else None
        total = acc(DType.FLOAT32)
        whole = call("mul", total, const(UNIT, DType.FLOAT32))
        expr = WithEpilogue.of(node).epilogue.rewrite(lambda part: whole if part == total else part)
        is_local = is_elementwise(expr, node, graph, cls.kind, by_channel=True)
        return cls(node, graph, expr, False) if is_local else None
