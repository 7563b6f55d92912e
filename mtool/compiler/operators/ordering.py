"""Operators that process their input in order: CumSum 14, CumProd 26, TopK 24, Unique 11, NonZero 13, Compress 11.

The output's shape is the maximum size of the last four's results; where the size depends on data, their last output is
the number of valid elements (mtool/compiler/operators/bounds.py).
"""

import math
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.operators.folding import VECTORIZED
from mtool.compiler.operators.lowering import AlongAxis, Lowering, by_template, template_node
from mtool.compiler.operators.onnx_node import OPSET, OnnxNode, with_axis
from mtool.compiler.operators.operator import Case, Draw, Operator, case
from mtool.compiler.operators.problems import Unsupported


class Counting(Attributes):
    """An operator whose output's size depends on data; `counted`: its last output is the number of valid elements."""

    counted: bool = False


class Running(AlongAxis):
    """CumSum, CumProd. exclusive: a result does not include its own element; reverse: start at the end."""

    exclusive: bool
    reverse: bool


TOP_K = "TopK"


class TopK(Counting):
    """The largest elements along `axis` (1), or the smallest (0)."""

    axis: int
    largest: int = 1


class Compress(Counting):
    """axis: the axis of the selection; None: all elements in order."""

    axis: int | None


class Unique(Compress):
    """sorted: by value instead of by first index."""

    sorted: bool


_WIDE = ("input", "output")


def _split(shape: tuple[int, ...], dim: int | None) -> tuple[int, int, int]:
    """Return the numbers of elements before, along and after an axis; None: of the flattened tensor."""
    if dim is None:
        return 1, math.prod(shape), 1
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def counted(node: Node) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return a node's outputs as in ONNX, and by C name the number of valid elements, if it is an output."""
    if Counting.of(node).counted:
        return node.outputs[:-1], {"found_count": node.outputs[-1]}
    return node.outputs, {}


def _running(ctx: Lowering, node: Node) -> dict[str, Any]:
    attrs = Running.of(node)
    outer, count, inner = _split(ctx.types[node.inputs[0]].shape, attrs.axis)
    of_product = node.op == "CumProd"
    flags = {"product": of_product, "exclusive": attrs.exclusive, "reverse": attrs.reverse}
    return {"outer": outer, "count": count, "inner": inner, **flags}


def _top_k(ctx: Lowering, node: Node) -> None:
    """TopK: sorted, equal values by index; K is the output's size."""
    kind, result, dim = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]], TopK.of(node).axis
    results, count_output = counted(node)
    indices = [*results, ""][1] or ctx.value(f"{node.outputs[0]}.indices", DType.INT64, result.shape)
    outer, count, inner = _split(kind.shape, dim)
    better = ">" if TopK.of(node).largest else "<"
    inputs = {"input": node.inputs[0]} | ({"wanted": node.inputs[1]} if count_output else {})
    outputs = {"values": node.outputs[0], "indices": indices, **count_output}
    values = {"outer": outer, "count": count, "inner": inner, "k": result.shape[dim], "better": better}
    template_node(ctx, node, "top_k", inputs, outputs, values, wide=("input", "values"))


def _unique(ctx: Lowering, node: Node) -> None:
    kind, dim = ctx.types[node.inputs[0]], Unique.of(node).axis
    outer, size, inner = _split(kind.shape, dim)
    distinct = ctx.types[node.outputs[0]].shape[dim or 0]
    named, count = counted(node)
    outputs = {"output": node.outputs[0]}
    for number, (name, length) in enumerate((("indices", distinct), ("inverse", size), ("counts", distinct)), 1):
        outputs[name] = [*named, "", "", ""][number] or ctx.value(f"{node.outputs[0]}.{name}", DType.INT64, (length,))
    outputs |= count
    values = {"outer": outer, "count": size, "inner": inner, "found": distinct, "sorted": Unique.of(node).sorted}
    inputs = {"input": node.inputs[0]}
    template_node(ctx, node, "unique", inputs, outputs, values, scratch=4 * size, scratch_type="int32_t", wide=_WIDE)


def _non_zero(ctx: Lowering, node: Node) -> None:
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    (output,), count = counted(node)
    values = {"shape": kind.shape, "most": result.shape[1]}
    template_node(ctx, node, "non_zero", {"input": node.inputs[0]}, {"output": output, **count}, values, wide=_WIDE)


def _compress(ctx: Lowering, node: Node) -> None:
    kind, dim = ctx.types[node.inputs[0]], Compress.of(node).axis
    outer, size, inner = _split(kind.shape, dim)
    rows = ctx.types[node.outputs[0]].shape[dim or 0]
    conditions = min(ctx.types[node.inputs[1]].count, size)
    inputs = {"input": node.inputs[0], "condition": node.inputs[1]}
    values = {"outer": outer, "count": size, "inner": inner, "kept": rows, "conditions": conditions}
    (output,), count = counted(node)
    template_node(ctx, node, "compress", inputs, {"output": output, **count}, values)


def _running_form(node: OnnxNode) -> None:
    """CumSum, CumProd: the axis is an input."""
    axis, rank = node.number(1, "axis"), len(node.shape)
    if not -rank <= axis < rank:
        raise Unsupported(f"its axis is {axis}; its input has {rank} dimensions")
    exclusive, reverse = (bool(node.attrs.get(key)) for key in ("exclusive", "reverse"))
    node.emit(Running(axis=axis % rank, exclusive=exclusive, reverse=reverse), inputs=node.inputs[:1])


def _optional_axis(node: OnnxNode) -> int | None:
    """Compress, Unique: without an axis the input is flat."""
    return node.axis(0) if "axis" in node.attrs else None


def _gather_of_kept(node: OnnxNode) -> onnx.NodeProto | None:
    """Compress with a constant condition, whose size does not depend on data, is a Gather."""
    if node.input(1) not in node.state.constants or node.inputs[0] not in node.state.types:
        return None
    condition, axis, data = node.state.constants[node.inputs[1]], node.attrs.get("axis"), node.inputs[0]
    size = node.kind(0).count if axis is None else node.shape[axis]
    if condition.ndim != 1 or condition.size > size:
        raise Unsupported(f"its condition has shape {list(condition.shape)}; expected one dimension of at most {size}")
    if axis is None:
        data = node.state.unique(f"{node.outputs[0]}/flat")
        shape = node.state.constant(f"{node.outputs[0]}/shape", np.array([-1], np.int64))
        flat = helper.make_node("Reshape", [node.inputs[0], shape], [data], name=node.proto.name)
        node.state.run(flat, OPSET)
    chosen = node.state.constant(f"{node.outputs[0]}/chosen", np.flatnonzero(condition).astype(np.int64))
    return helper.make_node("Gather", [data, chosen], node.outputs, name=node.proto.name, axis=axis or 0)


def _is_top(node: OnnxNode) -> bool:
    x, axis = node.ins[0], node.attrs.get("axis", -1) % max(len(node.ins[0]), 1)
    fits = all(
        n <= size if dim == axis else n == size for dim, (n, size) in enumerate(zip(node.outs[0], x, strict=True))
    )
    return fits and all(shape == node.outs[0] for shape in node.outs)


def _along(kind: TensorType, axis: int | None, most: int) -> tuple[TensorType, int]:
    """Return a type with `most` elements along an axis, and the axis."""
    if axis is None:
        return TensorType(kind.dtype, (most,)), 0
    return TensorType(kind.dtype, (*kind.shape[:axis], most, *kind.shape[axis + 1 :])), axis


def _most_of_top(node: OnnxNode, most: int | None) -> list[tuple[TensorType, int | None]]:
    axis = node.axis(-1)
    most = min(node.shape[axis] if most is None else most, node.shape[axis])
    values, _ = _along(node.kind(0), axis, most)
    return [(values, axis), (TensorType(DType.INT64, values.shape), axis)]


def _most_unique(node: OnnxNode, most: int | None) -> list[tuple[TensorType, int | None]]:
    axis = _optional_axis(node)
    size = node.kind(0).count if axis is None else node.shape[axis]
    most = size if most is None else most
    indices, inverse = TensorType(DType.INT64, (most,)), TensorType(DType.INT64, (size,))
    return [_along(node.kind(0), axis, most), (indices, 0), (inverse, None), (indices, 0)]


def _most_non_zero(node: OnnxNode, most: int | None) -> list[tuple[TensorType, int | None]]:
    most = node.kind(0).count if most is None else most
    return [(TensorType(DType.INT64, (len(node.shape), most)), 1)]


def _most_kept(node: OnnxNode, most: int | None) -> list[tuple[TensorType, int | None]]:
    axis = _optional_axis(node)
    if most is None:
        most = min(node.kind(0).count if axis is None else node.shape[axis], node.kind(1).count)
    return [_along(node.kind(0), axis, most)]


_TOTALS = by_template("running", "input", "output", _running, wide=_WIDE)
_RUNNING = case(lambda draw, x: draw.constant(draw.axis(x), np.int64), exclusive=(0, 1), reverse=(0, 1))


def _top_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick()
    axis = draw.axis(value)
    count = draw.whole([draw.rng.randint(1, max(1, value.shape[axis]))])
    return Case([value.name, count], {"axis": axis, "largest": draw.rng.randint(0, 1)}, 2)


OPERATORS = (
    *(
        Operator(op, cases=_RUNNING, attributes=Running, canonical=_running_form, folding=VECTORIZED, lower=_TOTALS)
        for op in ("CumSum", "CumProd")
    ),
    Operator(
        TOP_K, cases=_top_cases, attributes=TopK, canonical=with_axis(TopK, -1), check_shapes=_is_top, sizes=(1,),
        bound=_most_of_top, folding=VECTORIZED, lower=_top_k,
    ),
    Operator(
        "Unique", attributes=Unique, bound=_most_unique, moves=True, folding=VECTORIZED, lower=_unique,
        canonical=lambda node: node.emit(Unique(axis=_optional_axis(node), sorted=bool(node.attrs.get("sorted", 1)))),
    ),
    Operator("NonZero", attributes=Counting, bound=_most_non_zero, folding=VECTORIZED, lower=_non_zero),
    Operator(
        "Compress",
        cases=case(lambda draw, x: draw.constant(draw.numbers().random(x.shape[0]) < 0.7, np.bool_), axis=(0,)),
        attributes=Compress, rewrite=_gather_of_kept, bound=_most_kept, moves=True, folding=VECTORIZED,
        canonical=lambda node: node.emit(Compress(axis=_optional_axis(node))), lower=_compress,
    ),
)  # fmt: skip
