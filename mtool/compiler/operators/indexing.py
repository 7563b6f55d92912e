"""Operators that read or write elements by computed indices, as loops and kernels.

Tile 13, GatherElements 13, GatherND 13, SpaceToDepth 13, DepthToSpace 13, ReverseSequence 10, TensorScatter 24;
ScatterElements 18, Scatter 9, ScatterND 18, MaxUnpool 22, TfIdfVectorizer 9; Binarizer (ai.onnx.ml 1).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from mtool.compiler.ir import Attributes, Expr, Node
from mtool.compiler.ir.expr import (
    axis,
    choose,
    compare,
    const,
    inside,
    integer,
    least,
    load,
    most,
    number,
    wrapped,
)
from mtool.compiler.operators.bounds import Bounded
from mtool.compiler.operators.folding import BY_ELEMENT, SLOW, VECTORIZED, Folded, Folding
from mtool.compiler.operators.lowering import (
    AlongAxis,
    Lowering,
    by_template,
    moves_integers,
    strides_of,
    template_node,
)
from mtool.compiler.operators.movement import chosen_indices
from mtool.compiler.operators.onnx_node import (
    IndexRange,
    OnnxNode,
    as_in_onnx,
    attributes_of,
    first_input,
    index_along,
    index_of,
    length_of,
    with_axis,
)
from mtool.compiler.operators.operator import Case, Draw, Operator, Value, case
from mtool.compiler.operators.problems import CLASSICAL, MICROSOFT, Unsupported
from mtool.compiler.operators.window import guarded, spatial_attributes

GATHER_ND = "GatherND"


class GatherND(Attributes):
    """The number of leading dimensions that data and indices share."""

    batch_dims: int = 0


class Blocks(Attributes):
    """SpaceToDepth, DepthToSpace: squares of `blocksize` elements; mode: channels are (dy, dx, c) or (c, dy, dx)."""

    blocksize: int = 1
    mode: Literal["DCR", "CRD"] = "DCR"


class ReverseSequence(Attributes):
    """The dimensions of time and of the sequences."""

    time_axis: int = 0
    batch_axis: int = 1


class Binarizer(Attributes):
    """Elements above the threshold become 1."""

    threshold: float = 0.0


class TensorScatter(AlongAxis):
    """mode: elements beyond the end are dropped, or wrap around to the beginning ("circular")."""

    mode: Literal["linear", "circular"] = "linear"


def _tile(ctx: Lowering, node: Node) -> None:
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    index = tuple(
        axis(dim) if size == total else number(0) if size == 1 else axis(dim) % size
        for dim, (size, total) in enumerate(zip(kind.shape, result.shape, strict=True))
    )
    ctx.loop(node, load(0, kind.dtype, index), node.inputs[:1])


def _gather_elements(ctx: Lowering, node: Node) -> None:
    kind = ctx.types[node.inputs[0]]
    index = tuple(axis(dim) for dim in range(len(kind.shape)))
    dim = AlongAxis.of(node).axis
    chosen, source = chosen_indices(ctx, node, kind.shape[dim], index)
    ctx.loop(node, load(0, kind.dtype, (*index[:dim], chosen, *index[dim + 1 :])), [node.inputs[0], source])


def _gather_nd(ctx: Lowering, node: Node) -> None:
    kind, indices = ctx.types[node.inputs[0]], ctx.types[node.inputs[1]]
    batch, depth, outer = GatherND.of(node).batch_dims, indices.shape[-1], len(indices.shape) - 1
    where = tuple(axis(n) for n in range(outer))
    index = [axis(n) for n in range(batch)]
    for n in range(depth):
        index.append(wrapped(load(1, indices.dtype, (*where, number(n))), kind.shape[batch + n]))
    index += [axis(outer + n) for n in range(len(kind.shape) - batch - depth)]
    ctx.loop(node, load(0, kind.dtype, tuple(index)), node.inputs)


def _space_to_depth(ctx: Lowering, node: Node) -> None:
    """SpaceToDepth: the output's channel (dy, dx, c), or (c, dy, dx), is the block's element at dy, dx."""
    kind, size = ctx.types[node.inputs[0]], Blocks.of(node).blocksize
    channels = kind.shape[1]
    crd = Blocks.of(node).mode == "CRD"
    block = axis(1) % (size * size) if crd else axis(1) // channels
    channel = axis(1) // (size * size) if crd else axis(1) % channels
    row = axis(2) * size + block // size
    column = axis(3) * size + block % size
    ctx.loop(node, load(0, kind.dtype, (axis(0), channel, row, column)), node.inputs)


def _depth_to_space(ctx: Lowering, node: Node) -> None:
    """DepthToSpace: mode DCR has channels (dy, dx, c), CRD (c, dy, dx)."""
    kind, size = ctx.types[node.inputs[0]], Blocks.of(node).blocksize
    channels = kind.shape[1] // (size * size)
    block = axis(2) % size * size + axis(3) % size
    channel = axis(1) * size**2 + block if Blocks.of(node).mode == "CRD" else block * channels + axis(1)
    ctx.loop(node, load(0, kind.dtype, (axis(0), channel, axis(2) // size, axis(3) // size)), node.inputs)


def _reverse_sequence(ctx: Lowering, node: Node) -> None:
    kind, lengths = ctx.types[node.inputs[0]], ctx.types[node.inputs[1]]
    time, batch = ReverseSequence.of(node).time_axis, ReverseSequence.of(node).batch_axis
    length = least(most(integer(load(1, lengths.dtype, (axis(batch),))), 0), kind.shape[time])
    turned = length - 1 - axis(time)
    index: list[Expr] = [axis(n) for n in range(len(kind.shape))]
    index[time] = choose(compare("less", axis(time), length), turned, axis(time))
    ctx.loop(node, load(0, kind.dtype, tuple(index)), node.inputs)


def _binarizer(ctx: Lowering, node: Node) -> None:
    """Binarizer (ai.onnx.ml 1): 1 above the threshold, 0 elsewhere."""
    kind = ctx.types[node.inputs[0]]
    (element,) = ctx.operands(node.inputs, kind.shape)
    above = compare("greater", element, const(Binarizer.of(node).threshold, kind.dtype))
    ctx.loop(node, choose(above, const(1, kind.dtype), const(0, kind.dtype)), node.inputs)


def _tensor_scatter(ctx: Lowering, node: Node) -> None:
    """TensorScatter 24: the update is written from index write_indices[batch] on; "circular" wraps around."""
    past, update = node.inputs[:2]
    kind, dim = ctx.types[past], TensorScatter.of(node).axis
    size, length = kind.shape[dim], ctx.types[update].shape[dim]
    index: list[Expr] = [axis(n) for n in range(len(kind.shape))]
    inputs = [name for name in node.inputs if name]
    start: Expr = number(0)
    if len(inputs) > 2:
        start = least(most(integer(load(2, ctx.types[inputs[2]].dtype, (axis(0),))), 0), size)
    offset = axis(dim) - start
    if TensorScatter.of(node).mode == "circular":
        offset = (offset + size) % size
    new = load(1, kind.dtype, tuple(offset if n == dim else a for n, a in enumerate(index)))
    ctx.loop(node, guarded(inside(offset, length), new, load(0, kind.dtype, tuple(index))), inputs)


def _tiles(node: OnnxNode) -> bool:
    return all(
        (out == 0) if size == 0 else out % size == 0 for size, out in zip(node.ins[0], node.outs[0], strict=True)
    )


def by_element(node: OnnxNode) -> bool:
    """Whether the indices lie within the data along all axes but one (GatherElements, ScatterElements)."""
    data, indices = node.ins[0], node.ins[1]
    axis = node.attrs.get("axis", 0) % max(len(data), 1)
    within = all(n <= size for dim, (n, size) in enumerate(zip(indices, data, strict=False)) if dim != axis)
    return len(data) == len(indices) and within and node.is_absent_or(2, indices)


def _check_batch(node: OnnxNode) -> None:
    if not 0 <= node.attrs.get("batch_dims", 0) < max(1, min(map(len, node.shapes), default=1)):
        shapes = [list(shape) for shape in node.shapes]
        raise Unsupported(f"its batch_dims {node.attrs['batch_dims']} do not fit its inputs {shapes}")


def _fits_batch(node: OnnxNode) -> bool:
    data, indices, batch = node.ins[0], node.ins[1], node.attrs.get("batch_dims", 0)
    return data[:batch] == indices[:batch] and indices[-1] <= len(data) - batch


def tuples_of_indices(node: OnnxNode) -> IndexRange:
    """GatherND, ScatterND: the last dimension has an index for each of the data's first dimensions."""
    first = node.attrs.get("batch_dims", 0)
    return index_of(1, node.shapes[0][first : first + node.shapes[1][-1]])


def _carry_tuples(bounded: Bounded) -> int | None:
    indices = bounded.single and bounded.operand == 1 and bounded.axis < len(bounded.types[1].shape) - 1
    return bounded.axis if indices else None


def _check_blocks(node: OnnxNode) -> None:
    if len(node.shapes[0]) != 4:
        return
    size = node.attrs.get("blocksize", 1)
    if size < 1:
        raise Unsupported(f"its blocksize is {size}; expected at least 1")
    channels, rows, columns = node.shapes[0][1:]
    if node.op == "DepthToSpace" and channels % size**2:
        raise Unsupported(f"it has {channels} channels; expected a multiple of {size**2}, the elements of a block")
    if node.op == "SpaceToDepth" and (rows % size or columns % size):
        raise Unsupported(f"its input is {rows} x {columns}; expected multiples of {size}")


def _is_an_image(node: OnnxNode) -> bool:
    return len(node.ins[0]) == 4 and prod(node.ins[0]) == prod(node.outs[0])


def _has_lengths(node: OnnxNode) -> bool:
    batch, along = node.attrs.get("batch_axis", 1), node.attrs.get("time_axis", 0)
    return {batch, along} == {0, 1} and node.ins[1] == (node.ins[0][batch],)


def _fits_past(node: OnnxNode) -> bool:
    past, update = node.ins[0], node.ins[1]
    axis = node.attrs.get("axis", -2) % len(past)
    same = all(n == m for dim, (n, m) in enumerate(zip(past, update, strict=True)) if dim != axis)
    return same and update[axis] <= past[axis] and node.is_absent_or(2, past[:1])


def _first_rows(node: OnnxNode) -> IndexRange:
    """TensorScatter: the start of an update; anywhere if it wraps around."""
    axis = node.attrs.get("axis", -2)
    if node.attrs.get("mode") == "circular":
        raise ValueError
    return length_of(2, node.shapes[0][axis] - node.shapes[1][axis])


_BLOCKS = {"mode": ("DCR", "CRD")}


def element_cases(draw: Draw, op: Operator) -> Case:
    """Draw GatherElements and ScatterElements with each position at most once."""
    value = draw.pick()
    axis, shape = draw.axis(value), list(value.shape)
    shape[axis] = draw.rng.randint(1, shape[axis])
    places = np.take(np.argsort(draw.numbers().random(value.shape), axis), range(shape[axis]), axis)
    updates = [draw.normal(shape)] if op.name.startswith("Scatter") else []
    return Case([value.name, draw.constant(places, np.int64), *updates], {"axis": axis})


def _tuples(draw: Draw, value: Value) -> str:
    places = [draw.numbers().integers(0, n, 3) for n in value.shape[: draw.rng.randint(1, value.rank)]]
    return draw.constant(np.stack(places, -1), np.int64)


def _lengths(draw: Draw, value: Value) -> str:
    return draw.constant(draw.numbers().integers(1, value.shape[0] + 1, value.shape[1]), np.int64)


def _past_cases(draw: Draw, op: Operator) -> Case:
    value, mode = draw.pick(rank=4), draw.rng.choice(("linear", "circular"))
    batch, heads, size, width = value.shape
    starts = draw.constant(draw.numbers().integers(0, size - 1, batch), np.int64)
    return Case([value.name, draw.normal((batch, heads, 2, width)), starts], {"mode": mode})


class ScatterND(Attributes):
    """reduction: how updates are combined with each other and the element: "none", "add", "mul", …"""

    reduction: str = "none"


class ScatterElements(ScatterND):
    """The same, along `axis`."""

    axis: int


class MaxUnpool(Attributes):
    """inner: the sizes of the tensor that the indices refer to."""

    inner: tuple[int, ...]


class TfIdf(Attributes):
    """TfIdfVectorizer of integers, with ONNX's names; weights: one per n-gram; empty: all 1."""

    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()


def _scatter_values(ctx: Lowering, node: Node) -> dict[str, Any]:
    shape, spread, attrs = ctx.types[node.inputs[0]].shape, ctx.types[node.inputs[1]].shape, ScatterND.of(node)
    values = {"shape": shape, "strides": strides_of(shape), "reduction": attrs.reduction}
    if isinstance(attrs, ScatterElements):
        return {**values, "axis": attrs.axis, "spread": spread}
    *rows, depth = spread
    return {**values, "depth": depth, "count": math.prod(rows), "block": math.prod(shape[depth:])}


_SCATTER_ELEMENTS, _SCATTER_ND = (
    by_template(template, "data indices updates", "output", _scatter_values, wide=("data", "updates", "output"))
    for template in ("scatter_elements", "scatter_nd")
)


def _unpool_values(ctx: Lowering, node: Node) -> dict[str, Any]:
    """MaxUnpool: indices refer to the tensor that pads, kernel and strides imply, which may be smaller."""
    x, inner = ctx.types[node.inputs[0]], MaxUnpool.of(node).inner
    per_image = math.prod(inner)
    return {
        "inner": inner, "shape": ctx.types[node.outputs[0]].shape[2:], "count": x.count, "per_image": per_image,
        "positions": math.prod(x.shape[:2]) * per_image,
    }  # fmt: skip


def _tf_idf(ctx: Lowering, node: Node) -> None:
    """TfIdfVectorizer of integers: the count of each n-gram of the pool, with up to max_skip_count skips."""
    attrs, x = TfIdf.of(node), ctx.types[node.inputs[0]]
    starts = [*attrs.ngram_counts, len(attrs.pool_int64s)]
    grams: list[tuple[int, int, int]] = []  # length, index into the pool, column
    for length, (begin, end) in enumerate(itertools.pairwise(starts), 1):
        for dim in range(begin, end, length):
            grams.append((length, dim, attrs.ngram_indexes[len(grams)]))
    used = [gram for gram in grams if attrs.min_gram_length <= gram[0] <= attrs.max_gram_length]
    table = ctx.constant(f"{node.name}/grams", np.asarray(used, np.int32).reshape(-1, 3))
    pool = ctx.constant(f"{node.name}/pool", np.asarray(attrs.pool_int64s, np.int64))
    weights = np.asarray(attrs.weights or [1.0] * len(grams), np.float32)
    order = [grams.index(gram) for gram in used]
    weight = ctx.constant(f"{node.name}/weights", weights[order])
    width = x.shape[-1] if x.shape else 1
    inputs = {"input": node.inputs[0], "grams": table, "pool": pool} | (
        {"weight": weight} if attrs.mode != "TF" else {}
    )
    values = {
        "rows": x.count // max(width, 1), "width": width, "columns": ctx.types[node.outputs[0]].shape[-1],
        "skips": attrs.max_skip_count, "mode": attrs.mode, "count": len(used),
    }  # fmt: skip
    template_node(ctx, node, "tf_idf", inputs, {"output": node.outputs[0]}, values)


def _fits_tuples(node: OnnxNode) -> bool:
    data, indices, updates = node.ins[0], node.ins[1], node.ins[2]
    return indices[-1] <= len(data) and updates == (*indices[:-1], *data[indices[-1] :])


def _sizes_unpooled(shape: Sequence[int], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    kernel, rank = attrs["kernel_shape"], len(attrs["kernel_shape"])
    strides, _, pads = spatial_attributes(attrs, rank)
    return tuple(
        (size - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i] for i, size in enumerate(shape[2:])
    )  # fmt: skip


def _unpooled(node: OnnxNode) -> None:
    inner = _sizes_unpooled(node.shape, node.attrs)
    node.emit(MaxUnpool(inner=inner), inputs=node.inputs[:2], outputs=node.outputs[:1])


def _places_unpooled(node: OnnxNode) -> IndexRange:
    """MaxUnpool: indices refer to the flat result, unless its size is given explicitly."""
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
    """Draw whole rows, each at most once."""
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
        "Tile", cases=case(lambda draw, x: draw.whole([draw.rng.choice((1, 1, 2, 3)) for _ in x.shape])),
        canonical=first_input, check_shapes=_tiles, sizes=(1,), keeps_empty=True, moves=True,
        folding=VECTORIZED.growing(), lower=moves_integers(_tile),
    ),
    Operator(
        "GatherElements", cases=element_cases, attributes=AlongAxis, canonical=with_axis(AlongAxis, 0),
        check_shapes=by_element, index_ranges=index_along, moves=True, folding=BY_ELEMENT, lower=_gather_elements,
    ),
    Operator(
        GATHER_ND, cases=case(_tuples), attributes=GatherND, check=_check_batch, check_shapes=_fits_batch,
        index_ranges=tuples_of_indices, carry=_carry_tuples, moves=True, folding=BY_ELEMENT, lower=_gather_nd,
    ),
    Operator(GATHER_ND, domain=MICROSOFT, cases=case(_tuples), expand=as_in_onnx),
    Operator(
        "SpaceToDepth", cases=case(rank=4, fits=lambda shape: shape[2] % 2 == shape[3] % 2 == 0, blocksize=(2,)),
        attributes=Blocks, words=_BLOCKS, check=_check_blocks, check_shapes=_is_an_image, moves=True,
        folding=VECTORIZED, lower=moves_integers(_space_to_depth),
    ),
    Operator(
        "DepthToSpace", cases=case(rank=4, fits=lambda shape: shape[1] % 4 == 0, blocksize=(2,), mode=("DCR", "CRD")),
        attributes=Blocks, words=_BLOCKS, check=_check_blocks, check_shapes=_is_an_image, moves=True,
        folding=VECTORIZED, lower=moves_integers(_depth_to_space),
    ),
    Operator(
        "ReverseSequence", cases=case(_lengths, rank=(2, 3, 4)), attributes=ReverseSequence, check_shapes=_has_lengths,
        moves=True, folding=VECTORIZED,
        index_ranges=lambda node: length_of(1, node.shapes[0][node.attrs.get("time_axis", 0)]), lower=_reverse_sequence,
    ),
    Operator("Binarizer", domain=CLASSICAL, attributes=Binarizer, lower=_binarizer),
    Operator(
        "TensorScatter", cases=_past_cases, attributes=TensorScatter, canonical=with_axis(TensorScatter, -2),
        words={"mode": ("linear", "circular")}, check_shapes=_fits_past, index_ranges=_first_rows, moves=True,
        lower=_tensor_scatter,
    ),
    Operator(
        "ScatterElements", cases=element_cases, attributes=ScatterElements, canonical=with_axis(ScatterElements, 0),
        words=_REDUCTION, check_shapes=by_element, index_ranges=index_along, moves=True, folding=BY_ELEMENT,
        lower=_SCATTER_ELEMENTS,
    ),
    Operator(
        "Scatter", cases=element_cases, attributes=ScatterElements, canonical=with_axis(ScatterElements, 0),
        check_shapes=by_element, index_ranges=index_along, moves=True, folding=BY_ELEMENT, lower=_SCATTER_ELEMENTS,
    ),
    Operator(
        "ScatterND", cases=_tuple_cases, attributes=ScatterND, words=_REDUCTION, check_shapes=_fits_tuples,
        index_ranges=tuples_of_indices, moves=True, folding=BY_ELEMENT, lower=_SCATTER_ND,
    ),
    Operator(
        "MaxUnpool", cases=_unpool_cases, attributes=MaxUnpool, canonical=_unpooled, index_ranges=_places_unpooled,
        sizes=(2,), check_shapes=lambda node: node.ins[0] == node.ins[1], is_declared=True, folding=SLOW.growing(),
        lower=by_template("max_unpool", "input indices", "output", _unpool_values),
    ),
    Operator(
        "TfIdfVectorizer", cases=_gram_cases, attributes=TfIdf, canonical=_of_integers,
        words={"mode": ("TF", "IDF", "TFIDF")}, folding=Folding(_n_grams), lower=_tf_idf,
    ),
)  # fmt: skip
