"""Pooling (ai.onnx MaxPool, AveragePool and their Global forms): a pool2d kernel, or loops."""

from collections.abc import Sequence

import numpy as np

from mtool.compiler.ir import DType, Expr, Node
from mtool.compiler.ir.expr import acc, axis, call, const, load
from mtool.compiler.kernels.pool2d.node import Pool2d
from mtool.compiler.operators import sliding_window
from mtool.compiler.operators.lowering import (
    EIGHT_BITS,
    NCHW_OF_NHWC,
    NHWC_OF_NCHW,
    SIXTEEN_BITS,
    Lowering,
    Operator,
    moves_integers,
)
from mtool.compiler.operators.sliding_window import Pool
from mtool.compiler.operators.window import four_pads, pair

KERNEL_TYPES = (DType.FLOAT32, *EIGHT_BITS, *SIXTEEN_BITS)


def _lower(ctx: Lowering, node: Node) -> None:
    pool = Pool.of(node)
    kernel, made = pool.kernel, ctx.types[node.outputs[0]].shape[2:]
    quantised = ctx.integers(node.inputs[0], wide=True)
    counted = pool.count_pads and all(end <= limit for end, limit in zip(pool.ends(made), pool.limits, strict=True))
    whole = counted or not any(pool.pads)
    widest = 2 ** (8 * ctx.types[quantised.value].dtype.size) - 1 if quantised is not None else 0
    if quantised is None or not whole or np.prod(kernel) * widest >= 2**30:
        _pool(ctx, node, node.inputs[0], node.outputs[0], acc(ctx.types[node.inputs[0]].dtype))
        return
    # The mean of dequantised integers: (sum - count inside * zero_point) * (scale / count).
    count = int(np.prod(kernel))
    total, more = acc(DType.INT32), []
    shift = count * int(quantised.zero_point.reshape(-1)[0])
    offset = const(shift, DType.INT32)
    if shift and any(pool.pads):
        inside = pool.inside(ctx.types[node.inputs[0]].shape[2:], made)
        table = np.outer(inside[-2] if pool.rank == 2 else 1, inside[-1]) * (shift // count)
        more.append(ctx.constant(f"{node.name}/offset", table.astype(np.int32)[None, :, :, None]))
        offset = load(1, DType.INT32, (const(0, DType.INT32), axis(1), axis(2), const(0, DType.INT32)))
    centred = call("sub", total, offset, value="index") if shift else total
    factor = np.float32(quantised.scale.reshape(-1)[0]) / np.float32(count)
    mean = call("mul", call("cast", centred, dtype=DType.FLOAT32), const(float(factor), DType.FLOAT32))
    _pool(ctx, node, quantised.value, node.outputs[0], mean, more, acc_bound=count * widest + abs(shift))


def _pool(
    ctx: Lowering,
    node: Node,
    source: str,
    output: str,
    epilogue: Expr,
    operands: Sequence[str] = (),
    acc_bound: int = 0,
) -> None:
    pool = Pool.of(node)
    assert pool.kind != "lp"  # which is computed by loops
    shape, kind = ctx.types[source].shape, ctx.types[output]
    if len(shape) == 3:
        source = ctx.view(node, source, (*shape[:2], 1, shape[2]))
    attrs = Pool2d(
        kind=pool.kind, kernel=pair(pool.kernel, 1), strides=pair(pool.strides, 1),
        dilations=pair(pool.dilations, 1), limits=pair(pool.limits, 1), count_pads=pool.count_pads,
        pads=four_pads(pool.pads), expr=epilogue, acc_bound=acc_bound,
    )  # fmt: skip
    four = kind.shape if len(kind.shape) == 4 else (*kind.shape[:2], 1, kind.shape[2])
    made = ctx.value(f"{output}.nhwc", kind.dtype, (four[0], four[2], four[3], four[1]))
    nhwc = ctx.transpose(node, source, NHWC_OF_NCHW)
    ctx.node("pool2d", [nhwc, *operands], [made], attrs, like=node)
    if len(kind.shape) == 4:
        ctx.transpose(node, made, NCHW_OF_NHWC, output)
    else:
        ctx.view(node, ctx.transpose(node, made, NCHW_OF_NHWC), (), output)


def _max(ctx: Lowering, node: Node) -> None:
    _pool(ctx, node, node.inputs[0], node.outputs[0], acc(ctx.types[node.inputs[0]].dtype))


def _either(ctx: Lowering, node: Node) -> None:
    dtype = ctx.types[node.inputs[0]].dtype
    if Pool.of(node).kind == "lp" or Pool.of(node).rank > 2 or dtype not in KERNEL_TYPES:
        sliding_window.pool(ctx, node, node.inputs[0], node.outputs[0])
    elif Pool.of(node).kind == "max":
        moves_integers(_max)(ctx, node)
    else:
        _lower(ctx, node)


LOWERINGS: dict[str, Operator] = {"Pool": Operator(_either, Pool)}
