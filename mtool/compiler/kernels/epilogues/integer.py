"""The epilogue that SIMD schedules have by heart: sums to int8 or int16 by numbers a channel, and what may follow."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.ir.scalar import Requantise, Rescale, RescalePair
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.epilogues.tile import TileEpilogue, is_elementwise
from mtool.compiler.kernels.exact_scaling import ALONE, Together, exact_scaling
from mtool.compiler.kernels.expressions import is_identity, operand_names
from mtool.compiler.kernels.scaling import FixedScaling, FloatScaling, NearFloatScaling, OddFloatScaling, Scaling
from mtool.compiler.kernels.threshold_multipliers import Reach

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
