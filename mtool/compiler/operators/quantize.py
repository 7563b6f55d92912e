"""QuantizeLinear and DequantizeLinear (ai.onnx 10 to newest): per tensor, per axis and blocked."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from mtool.base.errors import ModelError
from mtool.compiler.ir import Attributes, DType, Expr, Node, Quant, TensorType
from mtool.compiler.ir.expr import axis, call, const, identity, load, number
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.bounds import Bounded
from mtool.compiler.operators.elementwise import saturated
from mtool.compiler.operators.folding import SLOW, VECTORIZED
from mtool.compiler.operators.lowering import Dequantized, Lowering, template_node
from mtool.compiler.operators.movement import Permutation
from mtool.compiler.operators.onnx_node import OnnxNode, as_in_onnx
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.problems import MICROSOFT, OWN

DEQUANTIZE = "DequantizeLinear"


class Quantization(Attributes):
    """QuantizeLinear, DequantizeLinear.

    axis: the dimension of several scales and zero points; a negative one counts from the end.
    block_size: the number of elements along `axis` that share a scale; 0: derived from the number of scales.
    saturate: whether numbers too large for an 8-bit float become its largest number (1) or not (0).
    """

    axis: int = 1
    block_size: int = 0
    saturate: int = 1


WHOLE_MOVES = {"Reshape", "Transpose", "DepthToSpace", "SpaceToDepth"}
"""Canonical operators whose output has exactly the elements of their input."""

_CUTS = {"Slice", "Gather"}
_MOVES = WHOLE_MOVES | _CUTS | {"Concat", "Tile", "Expand"}
"""Those operators, and those that output only a part of their input's elements."""


def _check_shapes(ctx: Lowering, node: Node) -> None:
    """Check that scales and zero points are per tensor, per axis or blocked.

    Raises:
        ModelError: their shape is wrong.
    """
    shape, attrs = ctx.types[node.inputs[0]].shape, Quantization.of(node)
    along, is_inside = attrs.axis, -len(shape) <= attrs.axis < len(shape)
    for value in filter(None, node.inputs[1:3]):
        kind = ctx.types[value]
        vector = len(kind.shape) == 1 and is_inside and kind.count == shape[along]
        blocked = len(kind.shape) == len(shape) > 1 and is_inside and kind.shape == _blocks(attrs, shape, kind.shape)
        wrong_type = value == node.inputs[1] and not kind.dtype.is_float
        uneven = kind.shape != ctx.types[node.inputs[1]].shape and kind.shape not in ((), (1,))
        if (kind.count != 1 and not vector and not blocked) or wrong_type or uneven:
            actual = f"input {ctx.types[node.inputs[0]]}, {value} {kind}, axis {along}, block_size {attrs.block_size}"
            fitting = f"expected {list(_blocks(attrs, shape, kind.shape))}" if attrs.block_size and is_inside else ""
            raise ModelError(
                f"{node.op} {node.name!r} has scales or zero points that do not fit its input",
                details=[actual, *filter(None, [fitting])],
            )


def _parameters(ctx: Lowering, node: Node, value: str) -> Dequantized | None:
    """Return constant parameters; None: they are not constants, or those of blocks of a variable."""
    _check_shapes(ctx, node)
    scale, zero_point = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else ""
    if scale not in ctx.constants or (zero_point and zero_point not in ctx.constants):
        return None
    scales = np.atleast_1d(ctx.constants[scale].astype(np.float32))
    shape, attrs = ctx.types[node.inputs[0]].shape, Quantization.of(node)
    blocked = bool(attrs.block_size) or scales.ndim > 1
    if not np.isfinite(scales).all() or ((scales <= 0).any() and not blocked):  # those of blocks may be negative
        raise ModelError(f"{node.op} {node.name!r} has a scale that is not a positive number")
    if (blocked and value not in ctx.constants) or ctx.types[scale].dtype is not DType.FLOAT32:
        return None
    points = np.zeros_like(scales, np.int32)
    if zero_point:
        points = np.broadcast_to(np.atleast_1d(ctx.constants[zero_point]).astype(np.int32), scales.shape)
    if scales.size == 1:
        return Dequantized(value, scales.reshape(1), points.reshape(1), None)
    along = attrs.axis % len(shape)
    return Dequantized(value, scales, points, along, _block(attrs, shape, scales.shape) if blocked else 0)


def stored_constant(node: Node, constants: Mapping[str, Array]) -> tuple[Array, Array, Array, int] | None:
    """Return the constant integers that a canonical node dequantizes, its scales, its zero points, and their axis.

    None: it is another node, or has operands that are not constants, blocks, or scales that are not float32.
    """
    operands = [constants.get(value) for value in node.inputs if value]
    if node.op != DEQUANTIZE or any(data is None for data in operands) or Quantization.of(node).block_size:
        return None
    data, scale, *points = (data for data in operands if data is not None)
    if scale.dtype != np.float32 or scale.ndim > 1:
        return None
    point = points[0] if points else np.zeros(1, data.dtype)
    point = point if point.size > 1 else point.reshape(())
    return data, scale, np.broadcast_to(point, scale.shape), Quantization.of(node).axis % max(data.ndim, 1)


def _blocks(attrs: Quantization, shape: tuple[int, ...], scales: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the scales of blocks; `scales` has the number of blocks if `block_size` is not given."""
    along = attrs.axis % len(shape)
    count = -(-shape[along] // attrs.block_size) if attrs.block_size > 0 else scales[along]
    return (*shape[:along], count, *shape[along + 1 :])


def _block(attrs: Quantization, shape: tuple[int, ...], scales: tuple[int, ...]) -> int:
    """Return the number of elements along the axis that share a scale of a given shape."""
    along = attrs.axis % len(shape)
    return attrs.block_size or -(-shape[along] // scales[along])


def _record(ctx: Lowering, value: str, grid: Dequantized) -> None:
    if value in ctx.graph.quant or grid.block:
        return  # the file has it, or it has no other form
    ctx.quant[value] = Quant(
        tuple(float(scale) for scale in grid.scale), tuple(int(point) for point in grid.zero_point), grid.axis
    )


def note_moved(ctx: Lowering) -> None:
    """Propagate quantizations through moves, from inputs to outputs and back.

    Quantized models transpose, reshape and slice their inputs before dequantization, and concatenate quantized values.
    """
    readers = ctx.graph.consumers()
    moves = [node for node in ctx.graph.nodes if node.op in _MOVES]
    for node in moves:
        quants = {_across(node, ctx.quant.get(value), backwards=False) for value in _moved(ctx, node)}
        _record_if_agreed(ctx, node.outputs[0], quants)
    for node in reversed(moves):
        for value in _moved(ctx, node):
            reading = readers[value]
            quants = {_across(other, ctx.quant.get(other.outputs[0]), backwards=True) for other in reading}
            if value in ctx.graph.outputs or any(other.op not in _CUTS for other in reading):
                # readers of the whole value decide, not readers of a part
                whole = [other for other in reading if other.op in _MOVES - _CUTS]
                quants = {_across(other, ctx.quant.get(other.outputs[0]), backwards=True) for other in whole} - {None}
            _record_if_agreed(ctx, value, quants)


def _moved(ctx: Lowering, move: Node) -> list[str]:
    """Return the values whose elements a node moves, except constants."""
    values = move.inputs if move.op == "Concat" else move.inputs[:1]
    return [value for value in dict.fromkeys(values) if value not in ctx.constants]


def _across(move: Node, quant: Quant | None, *, backwards: bool) -> Quant | None:
    """Return the quantization on the other side of a move; per-axis ones only move through Transpose.

    `backwards`: `quant` belongs to the output.
    """
    if move.op not in _MOVES or quant is None or (quant.axis is not None and move.op != "Transpose"):
        return None
    if quant.axis is None:
        return quant
    perm = Permutation.of(move).perm
    return Quant(quant.scale, quant.zero_point, perm[quant.axis] if backwards else perm.index(quant.axis))


def _record_if_agreed(ctx: Lowering, value: str, quants: Collection[Quant | None]) -> None:
    """Record the quantization of a value if all agree on it and it has none."""
    if value not in ctx.quant and len(quants) == 1:
        (only,) = quants
        if only is not None:
            ctx.quant[value] = only


def _loaded(ctx: Lowering, node: Node, dtype: DType, operand: int) -> Expr:
    """Return the scale (1) or zero point (2) of the element, as a number of `dtype`; 0 if it is not given."""
    if operand >= len(node.inputs) or not node.inputs[operand]:
        return const(0, dtype)
    kind, shape = ctx.types[node.inputs[operand]], ctx.types[node.inputs[0]].shape
    index: tuple[Expr, ...] = tuple(number(0) for _ in kind.shape)
    if kind.count > 1:
        along = Quantization.of(node).axis % len(shape)
        index = (axis(along),)
        if len(kind.shape) > 1:
            size = _block(Quantization.of(node), shape, kind.shape)
            index = tuple(axis(n) // size if n == along else axis(n) for n in range(len(shape)))
    return call("cast", load(operand, kind.dtype, index), dtype=dtype)


def _dequantize(ctx: Lowering, node: Node) -> None:
    source, kind = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    parameters = None if source.dtype.is_float else _parameters(ctx, node, node.inputs[0])
    if parameters is not None and kind.dtype is DType.FLOAT32:
        _record(ctx, node.inputs[0], parameters)
        _record(ctx, node.outputs[0], parameters)
        ctx.dequantize(node, parameters, node.outputs[0])
        return
    between = DType.FLOAT32 if source.dtype.is_float else DType.INT32
    element = call("cast", load(0, source.dtype, identity(len(source.shape))), dtype=between)
    centred = call("sub", element, _loaded(ctx, node, between, 2), value="index")
    real = call("mul", call("cast", centred, dtype=DType.FLOAT32), _loaded(ctx, node, DType.FLOAT32, 1))
    ctx.loop(node, call("cast", real, dtype=kind.dtype), [name for name in node.inputs if name])


def _quantize(ctx: Lowering, node: Node) -> None:
    value, output = node.inputs[0], node.outputs[0]
    kind = ctx.types[output]
    parameters = None if kind.dtype.is_float else _parameters(ctx, node, output)
    if kind.dtype.is_float:
        element = call("cast", load(0, ctx.types[value].dtype, identity(len(kind.shape))), dtype=DType.FLOAT32)
        steps = call("div", element, _loaded(ctx, node, DType.FLOAT32, 1))
        if Quantization.of(node).saturate:
            steps = saturated(steps, kind.dtype)
        ctx.loop(node, call("cast", steps, dtype=kind.dtype), [name for name in node.inputs if name])
        return
    if parameters is None:
        element = call("cast", load(0, ctx.types[value].dtype, identity(len(kind.shape))), dtype=DType.FLOAT32)
        scale, zero_point = _loaded(ctx, node, DType.FLOAT32, 1), _loaded(ctx, node, DType.INT32, 2)
        steps = call("quantize", element, scale, zero_point, dtype=kind.dtype)
        ctx.loop(node, steps, [name for name in node.inputs if name])
        return
    _record(ctx, output, parameters)
    inputs = [value]
    (element,) = ctx.operands([value], kind.shape)
    element = call("cast", element, dtype=DType.FLOAT32)
    scale = ctx.parameter(parameters.scale, parameters.axis, DType.FLOAT32, inputs, node)
    zero_point = ctx.parameter(parameters.zero_point, parameters.axis, DType.INT32, inputs, node)
    ctx.loop(node, call("quantize", element, scale, zero_point, dtype=kind.dtype), inputs)


def _points_like_scales(node: OnnxNode) -> bool:
    """Whether the zero point has the scale's shape; one number may be a scalar or a vector."""
    return not node.input(2) or node.ins[2] == node.ins[1] or prod(node.ins[2]) == prod(node.ins[1]) == 1


def _carry_same_scale(bounded: Bounded) -> int | None:
    return bounded.axis if set(bounded.axes) == {0} and bounded.types[1].count == 1 else None


# QuantizedRows: quantize float activations at run time, each row of the first dimension by its own range.
#
# Products with int8 weights are then sums of integers. The arithmetic is that of LiteRT's hybrid operators
# (tensor_utils.h: SymmetricQuantizeFloats, AsymmetricQuantizeFloats). Outputs are the steps less their zero point,
# int16, and the scale of each row, float32.


class QuantizedRows(Attributes):
    """around_zero: the range is symmetric around 0 (1), or from the smallest to the largest number (0)."""

    around_zero: int


def _rows(ctx: Lowering, node: Node) -> None:
    steps, scale = node.outputs
    rows, *others = ctx.types[node.inputs[0]].shape
    around_zero = bool(QuantizedRows.of(node).around_zero)
    values = {"rows": rows, "count": math.prod(others), "around_zero": around_zero}
    outputs = {"steps": steps, "scale": scale}
    template_node(ctx, node, "quantized_rows", {"x": node.inputs[0]}, outputs, values, headers=("mt_dynamic.h",))
    ctx.limits[steps] = (-127, 127) if around_zero else (-255, 255)


def _rows_outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    shape = inputs[0].shape
    return TensorType(DType.INT16, shape), TensorType(DType.FLOAT32, (shape[0], *(1 for _ in shape[1:])))


def _cases(draw: Draw, op: Operator) -> Case:
    """Draw a per-tensor scale."""
    dtype = draw.rng.choice((np.int8, np.uint8))
    if op.name == DEQUANTIZE:
        value = draw.pick(dtype)
        return Case([value.name, *draw.grid_of(value).names])
    grid = draw.grid(dtype, draw.rng.uniform(0.01, 0.06))
    return Case([draw.pick().name, *grid.names], grid=grid)


OPERATORS = (
    Operator(
        "QuantizeLinear", cases=_cases, attributes=Quantization, axis_ends=None, check_shapes=_points_like_scales,
        carry=_carry_same_scale, folding=VECTORIZED, lower=_quantize,
    ),
    Operator(
        DEQUANTIZE, cases=_cases, attributes=Quantization, axis_ends=None, check_shapes=_points_like_scales,
        carry=_carry_same_scale, zero_point={0: 2}.get, folding=replace(VECTORIZED, when="later"), lower=_dequantize,
    ),
    *(Operator(op, domain=MICROSOFT, cases=_cases, expand=as_in_onnx) for op in ("QuantizeLinear", DEQUANTIZE)),
    Operator("DynamicQuantizeLinear", folding=replace(SLOW, defined=lambda attrs: True)),
    Operator("QuantizedRows", domain=OWN, attributes=QuantizedRows, infer=_rows_outputs, lower=_rows),
)  # fmt: skip
