"""Operators that write where their input says: ScatterElements 18, Scatter 9, ScatterND 18, MaxUnpool 22.

And TfIdfVectorizer 9, and MaxPool 22 with Indices.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Attributes, Node
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.sliding_window import Pool
from mtool.compiler.operators.templates import narrowed, template_node, wide_output, widened


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterND(Attributes):
    """reduction: what becomes of several updates of one element, and of the element: "none", "add", "mul", …"""

    reduction: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterElements(ScatterND):
    """The same, along `axis`."""

    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxUnpool(Attributes):
    """inner: the sizes of the tensor that indices count in."""

    inner: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPoolIndices(Pool):
    """column_major: indices count down the columns."""

    column_major: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TfIdf(Attributes):
    """TfIdfVectorizer of integers, with ONNX's names; weights: one an n-gram; none: ones."""

    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterNDValues(Values):
    """shape, strides: of the data; depth: dimensions that an index goes into; block: elements of an update."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    depth: int
    count: int
    block: int
    reduction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterElementsValues(Values):
    """shape, strides: of the data; spread: the shape of the indices."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    axis: int
    spread: tuple[int, ...]
    reduction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxUnpoolValues(Values):
    """Sizes as the indices have them (`inner`) and as the output has them (`shape`)."""

    inner: tuple[int, ...]
    shape: tuple[int, ...]
    count: int
    per_image: int
    positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPoolIndicesValues(Values):
    """The window, the planes of a channel each, their sizes, and what indices count."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    planes: int
    size: tuple[int, ...]
    out_size: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TfIdfValues(Values):
    """Rows of `width` integers, `columns` results each; count: n-grams that are looked for."""

    rows: int
    width: int
    columns: int
    skips: int
    mode: str
    count: int


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _scatter_elements(ctx: Lowering, node: Node) -> None:
    data, indices, updates = node.inputs
    kind = ctx.types[data]
    inputs = {"data": widened(ctx, node, data), "indices": indices, "updates": widened(ctx, node, updates)}
    made = wide_output(ctx, node.outputs[0])
    attrs = ScatterElements.of(node)
    values = ScatterElementsValues(
        shape=kind.shape, strides=_strides(kind.shape), axis=attrs.axis, spread=ctx.types[indices].shape,
        reduction=attrs.reduction,
    )  # fmt: skip
    template_node(ctx, node, "scatter_elements", inputs, {"output": made}, values)
    narrowed(ctx, node, [(made, node.outputs[0])])


def _scatter_nd(ctx: Lowering, node: Node) -> None:
    data, indices, updates = node.inputs
    kind, spread = ctx.types[data], ctx.types[indices].shape
    inputs = {"data": widened(ctx, node, data), "indices": indices, "updates": widened(ctx, node, updates)}
    made = wide_output(ctx, node.outputs[0])
    depth = spread[-1]
    values = ScatterNDValues(
        shape=kind.shape, strides=_strides(kind.shape), depth=depth, count=math.prod(spread[:-1]),
        block=math.prod(kind.shape[depth:]), reduction=ScatterND.of(node).reduction,
    )  # fmt: skip
    template_node(ctx, node, "scatter_nd", inputs, {"output": made}, values)
    narrowed(ctx, node, [(made, node.outputs[0])])


def _max_unpool(ctx: Lowering, node: Node) -> None:
    """MaxUnpool: indices count in the tensor that pads, kernel and strides imply, which may be smaller."""
    x, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    inputs = {"input": node.inputs[0], "indices": node.inputs[1]}
    inner = MaxUnpool.of(node).inner
    per_image = math.prod(inner)
    values = MaxUnpoolValues(
        inner=inner, shape=result.shape[2:], count=x.count, per_image=per_image,
        positions=math.prod(x.shape[:2]) * per_image,
    )  # fmt: skip
    template_node(ctx, node, "max_unpool", inputs, {"output": node.outputs[0]}, values)


def _max_pool_indices(ctx: Lowering, node: Node) -> None:
    x, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    source, made = widened(ctx, node, node.inputs[0]), wide_output(ctx, node.outputs[0])
    size = x.shape[2:]
    strides = _strides(size)
    attrs = MaxPoolIndices.of(node)
    if attrs.column_major:
        strides = tuple(math.prod(size[:dim]) for dim in range(len(size)))
    values = MaxPoolIndicesValues(
        kernel=attrs.kernel, strides=attrs.strides, dilations=attrs.dilations, pads=attrs.pads,
        planes=x.shape[0] * x.shape[1], size=size, out_size=result.shape[2:], steps=strides,
    )  # fmt: skip
    outputs = {"output": made, "indices": node.outputs[1]}
    template_node(ctx, node, "max_pool_indices", {"input": source}, outputs, values)
    narrowed(ctx, node, [(made, node.outputs[0])])


def _tf_idf(ctx: Lowering, node: Node) -> None:
    """TfIdfVectorizer of integers: how often each n-gram of the pool comes, with up to max_skip_count skips."""
    attrs, x = TfIdf.of(node), ctx.types[node.inputs[0]]
    starts = [*attrs.ngram_counts, len(attrs.pool_int64s)]
    grams: list[tuple[int, int, int]] = []  # length, index into the pool, column
    for length, (begin, end) in enumerate(itertools.pairwise(starts), 1):
        for dim in range(begin, end, length):
            grams.append((length, dim, attrs.ngram_indexes[len(grams)]))
    kept = [gram for gram in grams if attrs.min_gram_length <= gram[0] <= attrs.max_gram_length]
    table = ctx.constant(f"{node.name}/grams", np.asarray(kept, np.int32).reshape(-1, 3))
    pool = ctx.constant(f"{node.name}/pool", np.asarray(attrs.pool_int64s, np.int64))
    weights = np.asarray(attrs.weights or [1.0] * len(grams), np.float32)
    order = [grams.index(gram) for gram in kept]
    weight = ctx.constant(f"{node.name}/weights", weights[order])
    width = x.shape[-1] if x.shape else 1
    inputs = {"input": node.inputs[0], "grams": table, "pool": pool} | (
        {"weight": weight} if attrs.mode != "TF" else {}
    )
    values = TfIdfValues(
        rows=x.count // max(width, 1), width=width, columns=ctx.types[node.outputs[0]].shape[-1],
        skips=attrs.max_skip_count, mode=attrs.mode, count=len(kept),
    )  # fmt: skip
    template_node(ctx, node, "tf_idf", inputs, {"output": node.outputs[0]}, values)


LOWERINGS: dict[str, Operator] = {
    "ScatterElements": Operator(_scatter_elements, ScatterElements),
    "Scatter": Operator(_scatter_elements, ScatterElements),
    "ScatterND": Operator(_scatter_nd, ScatterND),
    "MaxUnpool": Operator(_max_unpool, MaxUnpool),
    "MaxPoolIndices": Operator(_max_pool_indices, MaxPoolIndices),
    "TfIdfVectorizer": Operator(_tf_idf, TfIdf),
}
