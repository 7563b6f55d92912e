"""Operators that go through their input in order: CumSum 14, CumProd 26, TopK 24, Unique 11, NonZero 13, Compress 11.

How many elements the last four give at most is the output's shape; how many are there is an output of its own, the last
one, where the size depends on data (mtool/compiler/frontend/bounds.py).
"""

import math
from dataclasses import dataclass

from mtool.compiler.ir import Attributes, DType, Node
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import AlongAxis, Lowering, Operator
from mtool.compiler.operators.templates import narrowed, template_node, wide_output, widened


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting(Attributes):
    """An operator the size of whose output depends on data; `counted`: its last output says how many are there."""

    counted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(AlongAxis):
    """CumSum, CumProd. exclusive: an element has no part in its own result; reverse: from the end on."""

    exclusive: bool
    reverse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(Counting):
    """The largest elements along `axis` (1), or the smallest (0)."""

    axis: int
    largest: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Compress(Counting):
    """axis: along which it chooses; None: of all elements, in order."""

    axis: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique(Compress):
    """sorted: by value, not by the first index."""

    sorted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlongAxisValues(Values):
    """The elements before an axis, along it, and behind it."""

    outer: int
    count: int
    inner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningValues(AlongAxisValues):
    """A running product, or sum; ONNX's words for the rest."""

    product: bool
    exclusive: bool
    reverse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKValues(AlongAxisValues):
    """k: how many are wanted; better: the C operator by which an element goes before another."""

    k: int
    better: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueValues(AlongAxisValues):
    """found: the most that there may be; sorted: by value."""

    found: int
    sorted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NonZeroValues(Values):
    """shape: the input's; most: how many there may be."""

    shape: tuple[int, ...]
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressValues(AlongAxisValues):
    """kept: the most that there may be; conditions: how many there are."""

    kept: int
    conditions: int


def _split(shape: tuple[int, ...], dim: int | None) -> tuple[int, int, int]:
    """Return the elements before, along and behind an axis; None: of the tensor as if it were flat."""
    if dim is None:
        return 1, math.prod(shape), 1
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def counted(node: Node) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return a node's outputs as ONNX has them, and how many elements are there, by C name, if that is asked for."""
    if Counting.of(node).counted:
        return node.outputs[:-1], {"found_count": node.outputs[-1]}
    return node.outputs, {}


def _running(ctx: Lowering, node: Node) -> None:
    shape = ctx.types[node.inputs[0]].shape
    source, made = widened(ctx, node, node.inputs[0]), wide_output(ctx, node.outputs[0])
    attrs = Running.of(node)
    outer, count, inner = _split(shape, attrs.axis)
    values = RunningValues(
        outer=outer, count=count, inner=inner, product=node.op == "CumProd", exclusive=attrs.exclusive,
        reverse=attrs.reverse,
    )  # fmt: skip
    template_node(ctx, node, "running", {"input": source}, {"output": made}, values)
    narrowed(ctx, node, [(made, node.outputs[0])])


def _top_k(ctx: Lowering, node: Node) -> None:
    """TopK: sorted, equal values by index; K is the output's size."""
    kind, result, dim = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]], TopK.of(node).axis
    source, values = widened(ctx, node, node.inputs[0]), wide_output(ctx, node.outputs[0])
    made, found = counted(node)
    indices = [*made, ""][1] or ctx.value(f"{node.outputs[0]}.indices", DType.INT64, result.shape)
    outer, count, inner = _split(kind.shape, dim)
    better = ">" if TopK.of(node).largest else "<"
    inputs = {"input": source} | ({"wanted": node.inputs[1]} if found else {})
    outputs = {"values": values, "indices": indices, **found}
    told = TopKValues(outer=outer, count=count, inner=inner, k=result.shape[dim], better=better)
    template_node(ctx, node, "top_k", inputs, outputs, told)
    narrowed(ctx, node, [(values, node.outputs[0])])


def _unique(ctx: Lowering, node: Node) -> None:
    kind, dim = ctx.types[node.inputs[0]], Unique.of(node).axis
    outer, size, inner = _split(kind.shape, dim)
    found = ctx.types[node.outputs[0]].shape[dim or 0]
    source, made = widened(ctx, node, node.inputs[0]), wide_output(ctx, node.outputs[0])
    named, count = counted(node)
    outputs = {"output": made}
    for number, (name, length) in enumerate((("indices", found), ("inverse", size), ("counts", found)), 1):
        asked = [*named, "", "", ""][number]
        outputs[name] = asked or ctx.value(f"{node.outputs[0]}.{name}", DType.INT64, (length,))
    outputs |= count
    values = UniqueValues(outer=outer, count=size, inner=inner, found=found, sorted=Unique.of(node).sorted)
    inputs = {"input": source}
    template_node(ctx, node, "unique", inputs, outputs, values, scratch=4 * size, scratch_type="int32_t")
    narrowed(ctx, node, [(made, node.outputs[0])])


def _non_zero(ctx: Lowering, node: Node) -> None:
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    source = widened(ctx, node, node.inputs[0])
    (output,), count = counted(node)
    outputs = {"output": output, **count}
    values = NonZeroValues(shape=kind.shape, most=result.shape[1])
    template_node(ctx, node, "non_zero", {"input": source}, outputs, values)


def _compress(ctx: Lowering, node: Node) -> None:
    kind, dim = ctx.types[node.inputs[0]], Compress.of(node).axis
    outer, size, inner = _split(kind.shape, dim)
    kept = ctx.types[node.outputs[0]].shape[dim or 0]
    conditions = min(ctx.types[node.inputs[1]].count, size)
    inputs = {"input": node.inputs[0], "condition": node.inputs[1]}
    values = CompressValues(outer=outer, count=size, inner=inner, kept=kept, conditions=conditions)
    (output,), count = counted(node)
    template_node(ctx, node, "compress", inputs, {"output": output, **count}, values)


LOWERINGS: dict[str, Operator] = {
    "CumSum": Operator(_running, Running),
    "CumProd": Operator(_running, Running),
    "TopK": Operator(_top_k, TopK),
    "Unique": Operator(_unique, Unique),
    "NonZero": Operator(_non_zero, Counting),
    "Compress": Operator(_compress, Compress),
}
