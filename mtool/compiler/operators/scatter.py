"""Operators that write where their input says: ScatterElements 18, Scatter 9, ScatterND 18, MaxUnpool 22.

And TfIdfVectorizer 9, and MaxPool 22 with Indices.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mtool.compiler.ir import Attributes, Node
from mtool.compiler.operators.folding import BY_ELEMENT, SLOW, Folded, Folding
from mtool.compiler.operators.index_ranges import IndexRange, index_along, index_of
from mtool.compiler.operators.indexing import by_element, element_cases, tuples_of_indices
from mtool.compiler.operators.lowering import Lowering, narrowed, template_node, wide_output, widened
from mtool.compiler.operators.onnx_node import OnnxNode, attributes_of, with_axis
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.problems import OWN, Unsupported
from mtool.compiler.operators.sliding_window import Pool


class ScatterND(Attributes):
    """reduction: what becomes of several updates of one element, and of the element: "none", "add", "mul", …"""

    reduction: str = "none"


class ScatterElements(ScatterND):
    """The same, along `axis`."""

    axis: int


class MaxUnpool(Attributes):
    """inner: the sizes of the tensor that indices count in."""

    inner: tuple[int, ...]


class MaxPoolIndices(Pool):
    """column_major: indices count down the columns."""

    column_major: bool


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


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _scatter_elements(ctx: Lowering, node: Node) -> None:
    data, indices, updates = node.inputs
    kind = ctx.types[data]
    inputs = {"data": widened(ctx, node, data), "indices": indices, "updates": widened(ctx, node, updates)}
    made = wide_output(ctx, node.outputs[0])
    attrs = ScatterElements.of(node)
    values = {
        "shape": kind.shape, "strides": _strides(kind.shape), "axis": attrs.axis, "spread": ctx.types[indices].shape,
        "reduction": attrs.reduction,
    }  # fmt: skip
    template_node(ctx, node, "scatter_elements", inputs, {"output": made}, values)
    narrowed(ctx, node, [(made, node.outputs[0])])


def _scatter_nd(ctx: Lowering, node: Node) -> None:
    data, indices, updates = node.inputs
    kind, spread = ctx.types[data], ctx.types[indices].shape
    inputs = {"data": widened(ctx, node, data), "indices": indices, "updates": widened(ctx, node, updates)}
    made = wide_output(ctx, node.outputs[0])
    depth = spread[-1]
    values = {
        "shape": kind.shape, "strides": _strides(kind.shape), "depth": depth, "count": math.prod(spread[:-1]),
        "block": math.prod(kind.shape[depth:]), "reduction": ScatterND.of(node).reduction,
    }  # fmt: skip
    template_node(ctx, node, "scatter_nd", inputs, {"output": made}, values)
    narrowed(ctx, node, [(made, node.outputs[0])])


def _max_unpool(ctx: Lowering, node: Node) -> None:
    """MaxUnpool: indices count in the tensor that pads, kernel and strides imply, which may be smaller."""
    x, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    inputs = {"input": node.inputs[0], "indices": node.inputs[1]}
    inner = MaxUnpool.of(node).inner
    per_image = math.prod(inner)
    values = {
        "inner": inner, "shape": result.shape[2:], "count": x.count, "per_image": per_image,
        "positions": math.prod(x.shape[:2]) * per_image,
    }  # fmt: skip
    template_node(ctx, node, "max_unpool", inputs, {"output": node.outputs[0]}, values)


def _max_pool_indices(ctx: Lowering, node: Node) -> None:
    x, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    source, made = widened(ctx, node, node.inputs[0]), wide_output(ctx, node.outputs[0])
    size = x.shape[2:]
    strides = _strides(size)
    attrs = MaxPoolIndices.of(node)
    if attrs.column_major:
        strides = tuple(math.prod(size[:dim]) for dim in range(len(size)))
    values = {
        "kernel": attrs.kernel, "strides": attrs.strides, "dilations": attrs.dilations, "pads": attrs.pads,
        "planes": x.shape[0] * x.shape[1], "size": size, "out_size": result.shape[2:], "steps": strides,
    }  # fmt: skip
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
    values = {
        "rows": x.count // max(width, 1), "width": width, "columns": ctx.types[node.outputs[0]].shape[-1],
        "skips": attrs.max_skip_count, "mode": attrs.mode, "count": len(kept),
    }  # fmt: skip
    template_node(ctx, node, "tf_idf", inputs, {"output": node.outputs[0]}, values)


def _fits_tuples(node: OnnxNode) -> bool:
    data, indices, updates = node.ins[0], node.ins[1], node.ins[2]
    return indices[-1] <= len(data) and updates == (*indices[:-1], *data[indices[-1] :])


def _sizes_unpooled(shape: Sequence[int], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    kernel, rank = attrs["kernel_shape"], len(attrs["kernel_shape"])
    strides, pads = attrs.get("strides") or (1,) * rank, attrs.get("pads") or (0,) * 2 * rank
    return tuple(
        (size - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i] for i, size in enumerate(shape[2:])
    )  # fmt: skip


def _unpooled(node: OnnxNode) -> None:
    inner = _sizes_unpooled(node.shape, node.attrs)
    node.emit(MaxUnpool(inner=inner), inputs=node.inputs[:2], outputs=node.outputs[:1])


def _places_unpooled(node: OnnxNode) -> IndexRange:
    """MaxUnpool: indices in the flat result, unless another size is wanted of that."""
    if len(node.shapes) > 2:
        raise ValueError
    return index_of(
        1, math.prod(node.shapes[0][:2]) * math.prod(_sizes_unpooled(node.shapes[0], node.attrs)), from_end=False
    )


def _of_integers(node: OnnxNode) -> None:
    if "pool_strings" in node.attrs:
        raise Unsupported("strings are not supported")
    node.emit(attributes_of(TfIdf, node.attrs))


def _n_grams(node: Folded) -> int:
    repeated = max(1, *(abs(int(node.attrs.get(key, 1))) for key in ("max_skip_count", "max_gram_length")))
    return SLOW.cost(node) * repeated**2


_REDUCTION = {"reduction": ("none", "add", "mul", "max", "min")}


def _tuple_cases(draw: Draw, op: Operator) -> Case:
    """Whole rows, each at most once."""
    value = draw.pick()
    rows = draw.rng.sample(range(value.shape[0]), draw.rng.randint(1, value.shape[0]))
    return Case(
        [value.name, draw.constant(np.reshape(rows, (-1, 1)), np.int64), draw.normal((len(rows), *value.shape[1:]))]
    )


def _unpool_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick(rank=4)
    batch, channels, height, width = value.shape
    plane = np.arange(height)[:, None] * 4 * width + np.arange(width) * 2  # the first place of each window
    places = np.arange(batch * channels).reshape(batch, channels, 1, 1) * 4 * height * width + plane
    return Case([value.name, draw.constant(places, np.int64)], {"kernel_shape": [2, 2], "strides": [2, 2]})


def _gram_cases(draw: Draw, op: Operator) -> Case:
    grams = {"ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "pool_int64s": [2, 3, 5, 4]}
    lengths = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": draw.rng.randint(0, 1)}
    words = draw.constant(draw.numbers().integers(2, 6, 9), np.int64)
    return Case(
        [words], {"mode": draw.rng.choice(("TF", "IDF", "TFIDF")), "weights": [0.5, 2.0, 1.5], **grams, **lengths}
    )


OPERATORS = (
    Operator(
        "ScatterElements", cases=element_cases, attributes=ScatterElements, canonical=with_axis(ScatterElements, 0),
        words=_REDUCTION, check_shapes=by_element, index_ranges=index_along, moves=True, folding=BY_ELEMENT,
        lower=_scatter_elements,
    ),
    Operator(
        "Scatter", cases=element_cases, attributes=ScatterElements, canonical=with_axis(ScatterElements, 0),
        check_shapes=by_element, index_ranges=index_along, moves=True, folding=BY_ELEMENT, lower=_scatter_elements,
    ),
    Operator(
        "ScatterND", cases=_tuple_cases, attributes=ScatterND, words=_REDUCTION, check_shapes=_fits_tuples,
        index_ranges=tuples_of_indices, moves=True, folding=BY_ELEMENT, lower=_scatter_nd,
    ),
    Operator(
        "MaxUnpool", cases=_unpool_cases, attributes=MaxUnpool, canonical=_unpooled, index_ranges=_places_unpooled,
        sizes=(2,), check_shapes=lambda node: node.ins[0] == node.ins[1], is_declared=True, folding=SLOW.growing(),
        lower=_max_unpool,
    ),
    Operator("MaxPoolIndices", domain=OWN, attributes=MaxPoolIndices, lower=_max_pool_indices),
    Operator(
        "TfIdfVectorizer", cases=_gram_cases, attributes=TfIdf, canonical=_of_integers,
        words={"mode": ("TF", "IDF", "TFIDF")}, folding=Folding(_n_grams), lower=_tf_idf,
    ),
)  # fmt: skip
