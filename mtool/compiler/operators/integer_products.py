"""Products of 8-bit integers as such (MatMulInteger, ConvInteger) with constant weights: kernels that give sums.

Activations less their zero point, which only the run may know, are int16, so that padding is 0.
"""

import math

import numpy as np

from mtool.compiler.ir import DType, Expr, Node
from mtool.compiler.ir.expr import acc, axis, call, const, load
from mtool.compiler.ir.types import Array, row_sums
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.dense.node import Dense
from mtool.compiler.operators.lowering import EIGHT_BITS, NCHW_OF_NHWC, NHWC_OF_NCHW, Lowering
from mtool.compiler.operators.window import Convolution, four_pads, pair

FARTHEST = 255  # of 8 bits from their zero point


def dense(ctx: Lowering, node: Node) -> bool:
    """Append a dense kernel for MatMulInteger, if its second operand is a constant matrix."""
    a = node.inputs[0]
    shape = ctx.types[a].shape
    weights = _weights(ctx, node, 1)
    if weights is None or weights.ndim != 2 or not shape or not _is_scalar(ctx, node, 2):
        return False
    rows, depth = math.prod(shape[:-1]), shape[-1]
    inputs = _operands(ctx, node, weights.T)
    if inputs is None or not rows or not depth:
        return False
    source = ctx.view(node, _centred(ctx, node, a), (rows, depth))
    made = ctx.value(f"{node.outputs[0]}.rows", DType.INT32, (rows, weights.shape[1]))
    bound = FARTHEST * int(row_sums(ctx.constants[inputs[0]]).magnitude.max(initial=0))
    ctx.node("dense", [source, *inputs], [made], Dense(expr=acc(DType.INT32), acc_bound=bound), like=node)
    ctx.view(node, made, ctx.types[node.outputs[0]].shape, node.outputs[0])
    return True


def conv(ctx: Lowering, node: Node) -> bool:
    """Append a conv2d kernel for ConvInteger, if its weights are constant and it has one dimension or two."""
    weights, given = _weights(ctx, node, 0), Convolution.of(node)
    if weights is None or given.rank > 2 or not _is_scalar(ctx, node, 2) or not ctx.types[node.inputs[0]].count:
        return False
    data = weights[:, :, None, :] if weights.ndim == 3 else weights
    inputs = _operands(ctx, node, np.ascontiguousarray(data.transpose(0, 2, 3, 1)))
    if inputs is None:
        return False
    source, result = _centred(ctx, node, node.inputs[0]), ctx.types[node.outputs[0]].shape
    if len(result) == 3:  # one spatial dimension: a height of 1
        n, c, w = ctx.types[source].shape
        source = ctx.view(node, source, (n, c, 1, w))
    four = (*result[:2], *((1,) if len(result) == 3 else ()), *result[2:])
    nhwc = ctx.transpose(node, source, NHWC_OF_NCHW)
    made = ctx.value(f"{node.outputs[0]}.nhwc", DType.INT32, (four[0], four[2], four[3], four[1]))
    attrs = Conv2d(
        kernel=pair(given.kernel, 1), strides=pair(given.strides, 1), dilations=pair(given.dilations, 1),
        pads=four_pads(given.pads), group=given.group, expr=acc(DType.INT32),
        acc_bound=FARTHEST * int(row_sums(ctx.constants[inputs[0]]).magnitude.max(initial=0)),
    )  # fmt: skip
    ctx.node("conv2d", [nhwc, *inputs], [made], attrs, like=node)
    back = ctx.transpose(node, made, NCHW_OF_NHWC, node.outputs[0] if len(result) == 4 else "")
    if len(result) == 3:
        ctx.view(node, back, result, node.outputs[0])
    return True


def _is_scalar(ctx: Lowering, node: Node, place: int) -> bool:
    """Whether a zero point is one number, or not given."""
    return len(node.inputs) <= place or not node.inputs[place] or ctx.types[node.inputs[place]].count == 1


def _weights(ctx: Lowering, node: Node, channels: int) -> Array | None:
    """Return constant 8-bit weights less their zero point, which may be one number or one along `channels`."""
    data, given = ctx.constants.get(node.inputs[1]), node.inputs[3] if len(node.inputs) > 3 else ""
    if data is None or data.dtype.itemsize != 1 or not data.size or ctx.types[node.inputs[0]].dtype not in EIGHT_BITS:
        return None
    point = ctx.constants.get(given, np.zeros(1, np.int32) if not given else None)
    if point is None or point.size not in (1, data.shape[channels]) or data.ndim <= channels:
        return None
    view = [-1 if place == channels and point.size > 1 else 1 for place in range(data.ndim)]
    centred: Array = data.astype(np.int16) - point.astype(np.int16).reshape(view)
    small = centred.min() >= -128 and centred.max() <= 127
    return centred.astype(np.int8) if small else centred


def _operands(ctx: Lowering, node: Node, filters: Array) -> list[str] | None:
    """Return the constants of a kernel, the weights with their output channels first; None: sums may leave int32."""
    if FARTHEST * int(row_sums(filters).magnitude.max(initial=0)) >= 2**31:
        return None
    weights = ctx.constant(f"{node.name}/weights", np.ascontiguousarray(filters))
    return [weights, ctx.constant(f"{node.name}/bias", np.zeros(len(filters), np.int32))]


def _centred(ctx: Lowering, node: Node, value: str) -> str:
    """Return the activations less their zero point, as int16."""
    kind, inputs = ctx.types[value], [value]
    element = call("cast", load(0, kind.dtype, tuple(axis(n) for n in range(len(kind.shape)))), dtype=DType.INT32)
    point = node.inputs[2] if len(node.inputs) > 2 else ""
    if point:
        inputs.append(point)
        index: tuple[Expr, ...] = tuple(const(0, DType.INT32) for _ in ctx.types[point].shape)
        zero = call("cast", load(1, ctx.types[point].dtype, index), dtype=DType.INT32)
        element = call("sub", element, zero, value="index")
    made = ctx.value(f"{value}.centred", DType.INT16, kind.shape)
    return ctx.loop(node, call("cast", element, dtype=DType.INT16), inputs, made)
