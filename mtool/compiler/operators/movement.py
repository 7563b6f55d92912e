"""Operators that move elements: views, transposition, concatenation, slices, padding, gathering."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.base import plural
from mtool.compiler.ir import Attributes, DType, Expr, Node
from mtool.compiler.ir.expr import axis, call, compare, const, every, load, wrapped
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.operators.bounds import Bounded
from mtool.compiler.operators.folding import VECTORIZED
from mtool.compiler.operators.lowering import AlongAxis, Dequantized, Lower, Lowering, moves_integers
from mtool.compiler.operators.onnx_node import OnnxNode, QLinear, as_in_onnx, index_along, with_axis
from mtool.compiler.operators.operator import BEHIND, Case, Draw, Operator, TfliteBuiltin, case, integers
from mtool.compiler.operators.problems import MICROSOFT, Unsupported

MAX_ARGS = 64  # the most inputs of one concatenation


class Permutation(Attributes):
    """Transpose: dimension n of the output is dimension perm[n] of the input."""

    perm: tuple[int, ...]


class Slice(Attributes):
    """Slice: for each dimension, the index of the first element, and the step, which may be negative."""

    first: tuple[int, ...]
    stride: tuple[int, ...]


class Pad(Attributes):
    """Padding around the input.

    mode: "constant", "edge", "reflect" or "wrap".
    before: elements before each dimension; negative: they are cropped. The output's shape gives those behind.
    value: the constant, if there is no second operand.
    """

    mode: str
    before: tuple[int, ...]
    value: float | int | bool


def _reshape(ctx: Lowering, node: Node) -> None:
    ctx.view(node, node.inputs[0], (), node.outputs[0])


def _transpose(ctx: Lowering, node: Node) -> None:
    ctx.transpose(node, node.inputs[0], Permutation.of(node).perm, node.outputs[0])


def _reshaped_constant(ctx: Lowering, node: Node, source: Dequantized) -> Dequantized | None:
    before, after = ctx.types[source.value].shape, ctx.types[node.outputs[0]].shape
    if source.block == before[-1] and source.axis == len(after) and after == (*before[:-2], prod(before[-2:])):
        scale, point = (part.reshape(before[:-1]) for part in (source.scale, source.zero_point))  # groups of the last
        source = replace(source, scale=scale, zero_point=point, axis=len(after) - 1)
        before = after
    prefix = 0 if source.axis is None else len(before) if source.block else source.axis + 1
    if before[:prefix] != after[:prefix] or (source.block and before != after):
        return None  # the scales do not lie along one dimension
    return replace(source, value=ctx.constant(f"{node.name}/integers", ctx.constants[source.value].reshape(after)))


def _transposed_constant(ctx: Lowering, node: Node, source: Dequantized) -> Dequantized:
    perm = Permutation.of(node).perm
    data = np.ascontiguousarray(ctx.constants[source.value].transpose(perm))
    source = replace(source, value=ctx.constant(f"{node.name}/integers", data))
    if source.block:
        source = replace(source, scale=source.scale.transpose(perm), zero_point=source.zero_point.transpose(perm))
    return source if source.axis is None else replace(source, axis=perm.index(source.axis))


def _moved_now(lower: Lower, moved: Callable[[Lowering, Node, Dequantized], Dequantized | None]) -> Lower:
    """Return the lowering of an operator that moves constant integers, and their scales, at compile time."""

    def wrapped(ctx: Lowering, node: Node) -> None:
        source = ctx.dequantized.get(node.inputs[0])
        result = moved(ctx, node, source) if source is not None and source.value in ctx.constants else None
        if result is None:
            moves_integers(lower)(ctx, node)
        else:
            ctx.dequantize(node, result, node.outputs[0])

    return wrapped


def _concat(ctx: Lowering, node: Node) -> None:
    if len(node.inputs) == 1:
        ctx.view(node, node.inputs[0], (), node.outputs[0])
        return
    values, axis = list(node.inputs), AlongAxis.of(node).axis
    while len(values) > MAX_ARGS:
        values = [_part(ctx, node, values[first : first + MAX_ARGS], axis) for first in range(0, len(values), MAX_ARGS)]
    ctx.node("concat", values, node.outputs, Concat(axis=axis), like=node)


def _part(ctx: Lowering, node: Node, values: Sequence[str], axis: int) -> str:
    """Append a concatenation of some of the inputs: each is a function parameter, and C guarantees only 127."""
    shape = list(ctx.types[values[0]].shape)
    shape[axis] = sum(ctx.types[value].shape[axis] for value in values)
    part = ctx.value(f"{node.outputs[0]}.part", ctx.types[values[0]].dtype, shape)
    ctx.node("concat", values, [part], Concat(axis=axis), like=node)
    return part


def _slice(ctx: Lowering, node: Node) -> None:
    kind = ctx.types[node.inputs[0]]
    index = []
    for dim, (first, stride) in enumerate(zip(Slice.of(node).first, Slice.of(node).stride, strict=True)):
        step = call("mul", axis(dim), const(stride, DType.INT32), value="index")
        index.append(call("add", step, const(first, DType.INT32), value="index"))
    ctx.loop(node, load(0, kind.dtype, tuple(index)), node.inputs[:1])


def _pad(ctx: Lowering, node: Node) -> None:
    """Pad: each mode is a table of source indices along each axis; a second input is the value at run time."""
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    mode = Pad.of(node).mode
    inputs, index, inside = list(node.inputs), [], []
    for dim, (before, size, total) in enumerate(zip(Pad.of(node).before, kind.shape, result.shape, strict=True)):
        if total == size and before == 0:
            index.append(axis(dim))
            continue
        source = np.arange(total) - before
        if mode == "edge":
            source = np.clip(source, 0, size - 1)
        elif mode == "reflect":
            period = max(2 * (size - 1), 1)
            source = np.minimum(source % period, period - source % period)
        elif mode == "wrap":
            source = source % size
        outside = (source < 0) | (source >= size)
        inputs.append(ctx.constant(f"{node.name}/source", np.where(outside, 0, source).astype(np.int32)))
        index.append(load(len(inputs) - 1, DType.INT32, (axis(dim),)))
        if outside[:1].any():
            inside.append(compare("greater_equal", axis(dim), before))
        if outside[-1:].any():
            inside.append(compare("less", axis(dim), before + size))
    element = load(0, kind.dtype, tuple(index))
    condition = every(inside)
    if condition is not None:
        value = const(Pad.of(node).value, kind.dtype)
        if len(node.inputs) > 1:
            value = load(1, kind.dtype, tuple(const(0, DType.INT32) for _ in ctx.types[node.inputs[1]].shape))
        element = call("where", condition, element, value, dtype=kind.dtype) if kind.count else value
    ctx.loop(node, element, inputs)


def _zero_point(attrs: Attributes, zero_point: int) -> Attributes:
    """Return the attributes for integers: a padding of 0.0 is their zero point."""
    assert isinstance(attrs, Pad)
    return replace(attrs, value=zero_point)


def _padded_by_zero(ctx: Lowering, node: Node) -> None:
    if len(node.inputs) > 1 or (Pad.of(node).mode == "constant" and Pad.of(node).value != 0):
        _pad(ctx, node)
    else:
        moves_integers(_pad, _zero_point)(ctx, node)


def _gather(ctx: Lowering, node: Node) -> None:
    """Gather 13: a negative index counts from the end."""
    kind, indices = ctx.types[node.inputs[0]], ctx.types[node.inputs[1]]
    dim = AlongAxis.of(node).axis
    spread = len(indices.shape)
    index = [axis(number) for number in range(dim)]
    chosen, source = chosen_indices(ctx, node, kind.shape[dim], [axis(dim + number) for number in range(spread)])
    index.append(chosen)
    index += [axis(number - 1 + spread) for number in range(dim + 1, len(kind.shape))]
    ctx.loop(node, load(0, kind.dtype, tuple(index)), [node.inputs[0], source])


def chosen_indices(ctx: Lowering, node: Node, size: int, index: Sequence[Expr]) -> tuple[Expr, str]:
    """Return the index in an element of a node's second input, and the input; constants are made non-negative."""
    value = node.inputs[1]
    data = ctx.constants.get(value)
    if data is None:
        return wrapped(load(1, ctx.types[value].dtype, tuple(index)), size), value
    indices = np.where(data < 0, data + size, data).astype(np.int32)
    return load(1, DType.INT32, tuple(index)), ctx.constant(f"{node.name}/indices", indices)


def _view(node: OnnxNode) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout at inference."""
    before, after = node.kind(0), node.result
    if before.count != after.count:  # inference does not check it, and a declared shape may be wrong
        raise Unsupported(f"its input {before} and its output {after} differ in their number of elements")
    node.emit(op="Reshape", inputs=node.inputs[:1], outputs=node.outputs[:1])
    if len(node.outputs) > 1 and node.outputs[1]:  # Dropout's mask keeps all; onnxruntime returns zeros before 12
        mask = node.kind(node.outputs[1])
        node.state.budget.afford("constants", mask.bytes, f"{node.op} {node.origin}")
        node.state.add_constant(node.outputs[1], np.full(mask.shape, node.version >= 12, mask.dtype.numpy))


def _carry_view(bounded: Bounded) -> int | None:
    shape, axis, result = bounded.types[0].shape, bounded.axis, bounded.result.shape
    for dim, size in enumerate(result):
        if size == shape[axis] and prod(result[:dim]) == prod(shape[:axis]):
            return dim
    return None


def _slice_by_inputs(node: OnnxNode) -> onnx.NodeProto | None:
    """Before opset 10, a Slice has attributes, and inference does not support starts before the beginning."""
    if node.version >= 10:
        return None
    values = [
        node.state.constant(f"{node.outputs[0]}/{name}", np.array(node.attrs[name], np.int64))
        for name in ("starts", "ends", "axes")
        if name in node.attrs
    ]
    return helper.make_node("Slice", [node.inputs[0], *values], node.outputs, name=node.proto.name)


def _slice_form(node: OnnxNode) -> None:
    shape = node.shape
    starts = node.vector("starts", 1) or ()
    axes = node.vector("axes", 3) or tuple(range(len(starts)))
    steps = node.vector("steps", 4) or (1,) * len(starts)
    first, stride = [0] * len(shape), [1] * len(shape)
    for start, dim, step in zip(starts, axes, steps, strict=True):
        dim %= len(shape)
        size = shape[dim]
        start += size if start < 0 else 0
        first[dim] = min(max(start, 0), size if step > 0 else size - 1)
        far = max(size, 2**15)  # any larger step leaves one element
        stride[dim] = min(max(step, -far), far)
    node.emit(Slice(first=tuple(first), stride=tuple(stride)), inputs=node.inputs[:1])


def _carry_slice(bounded: Bounded) -> int | None:
    attrs, axis = Slice.of(bounded), bounded.axis
    same = bounded.result.shape[axis] == bounded.types[0].shape[axis]
    return axis if attrs.first[axis] == 0 and attrs.stride[axis] == 1 and same else None


def _check_outputs(node: OnnxNode) -> None:
    if node.attrs.get("num_outputs", len(node.outputs)) != len(node.outputs):
        raise Unsupported(
            f"its num_outputs is {node.attrs['num_outputs']}, but it has {plural.count(len(node.outputs), 'output')}"
        )


def _split_form(node: OnnxNode) -> None:
    """Split: a slice per output."""
    rank, axis, start = len(node.shape), node.axis(0), 0
    for output in filter(None, node.outputs):
        first = tuple(start if dim == axis else 0 for dim in range(rank))
        node.emit(Slice(first=first, stride=(1,) * rank), op="Slice", inputs=node.inputs[:1], outputs=[output])
        start += node.kind(output).shape[axis]


def _pad_form(node: OnnxNode) -> None:
    kind, inputs = node.kind(0), node.inputs[:1]
    value: Any = node.attrs.get("value", 0.0)
    if node.input(2):
        constant = node.state.constants.get(node.inputs[2])
        if constant is None:
            inputs.append(node.inputs[2])
        else:
            value = constant.item()
    pads = node.vector("pads", 1) or ()
    axes = tuple(range(len(kind.shape)))
    if node.input(3):
        axes = tuple(int(axis) for axis in np.atleast_1d(node.state.value_of(node.inputs[3], "axes"))) or axes
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"it has {plural.count(len(pads), 'pad')} for {plural.count(len(axes), 'axis')}")
    before = [0] * len(kind.shape)
    for dim, amount in zip(axes, pads[: len(axes)], strict=True):
        before[dim % len(kind.shape)] = amount
    tables = sum(size for size, old in zip(node.result.shape, kind.shape, strict=True) if size != old)
    node.state.budget.spend("constants", 4 * tables, f"Pad {node.origin}")  # the source of each element
    node.emit(Pad(mode=node.attrs.get("mode", "constant"), before=tuple(before), value=value), inputs=inputs)


def _transpose_form(node: OnnxNode) -> None:
    node.emit(Permutation(perm=tuple(node.attrs.get("perm") or reversed(range(len(node.shape))))))


def _carry_transpose(bounded: Bounded) -> int | None:
    return Permutation.of(bounded).perm.index(bounded.axis)


def _concat_form(node: OnnxNode) -> None:
    axis = node.axis(1, len(node.result.shape))
    inputs = [name for name in node.inputs if node.kind(name).count] or node.inputs[:1]
    node.emit(AlongAxis(axis=axis), inputs=inputs)


def _carry_concat(bounded: Bounded) -> int | None:
    axis = bounded.axis
    same = len(bounded.axes) == len(bounded.types) and set(bounded.axes.values()) == {axis}
    return axis if same and axis != AlongAxis.of(bounded).axis else None


def _carry_gather(bounded: Bounded) -> int | None:
    axis, along = bounded.axis, AlongAxis.of(bounded).axis
    if not bounded.single or (bounded.operand == 0 and axis == along):
        return None
    if bounded.operand == 1:
        return along + axis
    return axis if axis < along else axis + len(bounded.types[1].shape) - 1


def _check_is_known(node: OnnxNode) -> None:
    if node.inputs[0] in node.state.bounds:
        raise Unsupported("its target shape is not a constant")


def _shape_form(node: OnnxNode) -> None:
    _check_is_known(node)
    part = node.shape[slice(node.attrs.get("start", 0), node.attrs.get("end"))]
    node.state.add_constant(node.outputs[0], np.asarray(part, np.int64))


def _size_form(node: OnnxNode) -> None:
    _check_is_known(node)
    node.state.add_constant(node.outputs[0], np.asarray(node.kind(0).count, np.int64))


def _expand_dims(write: OnnxNode) -> None:
    axis = write.state.value_of(write.input(1), "axis")
    write.set_output(write("Unsqueeze", write.input(0), np.reshape(axis, -1).astype(np.int64)))


def _qlinear_concat(parts: QLinear) -> None:
    inputs = [parts.dequantize(start) for start in range(2, len(parts.inputs), 3)]
    parts.quantize(parts("Concat", *inputs, **parts.attrs), 0)


def _reshaped(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick()
    sizes, rest = list[int](), value.size
    while rest > 1 and len(sizes) < 4:
        sizes.append(rng.choice([n for n in range(1, rest + 1) if rest % n == 0]) if len(sizes) < 3 else rest)
        rest //= sizes[-1]
    sizes = [*sizes, rest] if rest != 1 or not sizes else sizes
    if value.size and rng.random() < 0.3:
        sizes[rng.randrange(len(sizes))] = -1
    return Case([value.name, draw.whole(sizes if value.size else value.shape)])


def _squeezed(draw: Draw, op: Operator) -> Case:
    value = draw.pick()
    ones = [axis for axis, size in enumerate(value.shape) if size == 1]
    axes = [draw.whole(draw.rng.sample(ones, draw.rng.randint(1, len(ones))))] if ones else []
    return Case([value.name, *axes])


def _concat_cases(draw: Draw, op: Operator) -> Case:
    """Draw a value with constants and itself; sometimes a part has no elements."""
    rng, value = draw.rng, draw.pick()
    axis = draw.axis(value)
    shape = list(value.shape)
    shape[axis] = rng.randint(0 if rng.random() < 0.05 else 1, 4)
    parts = [value.name, draw.normal(shape), value.name][: rng.randint(1, 3)]
    rng.shuffle(parts)
    return Case(parts, {"axis": axis})


def _split_cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick()
    axis = draw.axis(value)
    size = value.shape[axis]
    first = rng.randint(0 if rng.random() < 0.05 else 1, max(1, size - 1))
    return Case([value.name, draw.whole([first, size - first])], {"axis": axis}, 2)


def _slice_cases(draw: Draw, op: Operator) -> Case:
    """Draw steps of either sign; sometimes the result is empty."""
    rng, value = draw.rng, draw.pick()
    axes = rng.sample(range(value.rank), rng.randint(1, max(1, value.rank)))
    starts, ends, steps = list[int](), list[int](), list[int]()
    for dim in axes:
        size, step = value.shape[dim], rng.choice((1, 1, 2, -1, -2, 3))
        low, high = sorted((rng.randint(0, size), rng.randint(0, size)))
        low, high = (low, high) if high - low >= 1 or rng.random() < 0.05 else (0, size)
        starts.append(low if step > 0 else high - 1)
        ends.append(high if step > 0 else low - 1 if low else -size - 1)
        steps.append(step)
    return Case([value.name, *map(draw.whole, (starts, ends, axes, steps))])


def _pad_cases(draw: Draw, op: Operator) -> Case:
    """Draw a constant, the edge or a reflection; negative pads crop."""
    rng, value = draw.rng, draw.pick()
    mode = rng.choice(("constant", "constant", "edge", "reflect"))
    pads = [rng.choice((0, 0, 1, 2)) for _ in range(2 * value.rank)]
    if mode == "constant" and rng.random() < 0.2 and value.rank:
        pads[rng.randrange(len(pads))] = -1
    if mode == "reflect":
        pads = [min(p, max(0, value.shape[n % value.rank] - 1)) for n, p in enumerate(pads)]
    fill = [draw.constant(rng.choice((0.0, -1.5)), np.float32)] if mode == "constant" and rng.random() < 0.5 else []
    return Case([value.name, draw.whole(pads), *fill], {"mode": mode})


def _gather_cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick()
    axis = draw.axis(value)
    size = value.shape[axis]
    shape = rng.choice(((), (2,), (3, 2), (1,), (0,) if rng.random() < 0.1 else (3,)))
    return Case([value.name, draw.constant(draw.numbers().integers(-size, size, shape), np.int64)], {"axis": axis})


OPERATORS = (
    Operator(
        "Reshape", cases=_reshaped, canonical=_view, sizes=(1,), keeps_empty=True, carry=_carry_view, moves=True,
        folding=VECTORIZED, lower=_moved_now(_reshape, _reshaped_constant),
    ),
    Operator(
        "Flatten", cases=case(axis=lambda draw, x: draw.rng.randint(0, x.rank)), canonical=_view, axis_ends=BEHIND,
        moves=True, folding=VECTORIZED,
    ),
    *(
        Operator(op, cases=cases, canonical=_view, sizes=(1,), keeps_empty=True, moves=True, folding=VECTORIZED)
        for op, cases in (("Squeeze", _squeezed), ("Unsqueeze", case(lambda d, x: d.whole([d.rng.randint(0, x.rank)]))))
    ),
    Operator(
        "Identity", canonical=_view, moves=True, folding=VECTORIZED, tflite=(TfliteBuiltin("DENSIFY", is_stored=True),),
    ),
    Operator("Dropout", canonical=_view, moves=True, folding=VECTORIZED),
    Operator(
        "ExpandDims", domain=MICROSOFT,
        cases=case(lambda draw, x: draw.constant(draw.rng.randint(0, x.rank), np.int32)), expand=_expand_dims,
    ),
    Operator(
        "Transpose", cases=case(perm=lambda draw, x: draw.rng.sample(range(x.rank), x.rank)), attributes=Permutation,
        canonical=_transpose_form, carry=_carry_transpose, moves=True,
        check_shapes=lambda node: sorted(node.attrs.get("perm", range(len(node.shape)))) == [*range(len(node.shape))],
        folding=VECTORIZED, lower=_moved_now(_transpose, _transposed_constant),
    ),
    Operator(
        "Concat", cases=_concat_cases, attributes=AlongAxis, canonical=_concat_form, carry=_carry_concat, moves=True,
        folding=VECTORIZED, lower=moves_integers(_concat),
    ),
    Operator(
        "QLinearConcat", domain=MICROSOFT, cases=integers(_concat_cases, "y*"), expand=QLinear.form(_qlinear_concat),
        zero_point=lambda index: index + 2 if index > 1 and (index - 2) % 3 == 0 else None,
    ),
    Operator(
        "Slice", cases=_slice_cases, attributes=Slice, rewrite=_slice_by_inputs, canonical=_slice_form,
        sizes=(1, 2, 3, 4), keeps_empty=True, carry=_carry_slice, moves=True, folding=VECTORIZED,
        lower=moves_integers(_slice),
    ),
    Operator(
        "Split", cases=_split_cases, canonical=_split_form, check=_check_outputs, sizes=(1,), keeps_empty=True,
        moves=True, folding=VECTORIZED,
    ),
    Operator(
        "Pad", cases=_pad_cases, attributes=Pad, canonical=_pad_form,
        words={"mode": ("constant", "reflect", "edge", "wrap")}, sizes=(1, 3), moves=True, lower=_padded_by_zero,
        folding=replace(VECTORIZED.growing(), defined=lambda attrs: attrs.get("mode", "constant") == "constant"),
    ),
    Operator("Pad", domain=MICROSOFT, cases=_pad_cases, expand=as_in_onnx),
    Operator(
        "Gather", cases=_gather_cases, attributes=AlongAxis, canonical=with_axis(AlongAxis, 0),
        index_ranges=index_along, carry=_carry_gather, moves=True, folding=VECTORIZED, lower=_gather,
    ),
    Operator("Shape", canonical=_shape_form, moves=True, folding=VECTORIZED),
    Operator("Size", canonical=_size_form, moves=True, folding=VECTORIZED),
)  # fmt: skip
