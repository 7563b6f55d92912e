"""Pooling (ai.onnx MaxPool, AveragePool and their Global forms): a pool2d kernel, or loops."""

import numpy as np

from mtool.ir import DType, Expr, Node
from mtool.ir.expr import acc, call, const
from mtool.lowerings import sliding_window
from mtool.lowerings.lowering import (
    EIGHT_BITS,
    NCHW_OF_NHWC,
    NHWC_OF_NCHW,
    SIXTEEN_BITS,
    Lowering,
    Operator,
    moves_integers,
)
from mtool.lowerings.sliding_window import Pool
from mtool.lowerings.window import four_pads, pair
from mtool.ops.pool2d.node import Pool2d

KERNEL_TYPES = (DType.FLOAT32, *EIGHT_BITS, *SIXTEEN_BITS)


def _lower(ctx: Lowering, node: Node) -> None:
    kernel, pads = Pool.of(node).kernel, Pool.of(node).pads
    quantised = ctx.integers(node.inputs[0], wide=True)
    whole = all(pad == 0 for pad in pads)
    widest = 2 ** (8 * ctx.types[quantised.value].dtype.size) - 1 if quantised is not None else 0
    if quantised is None or not whole or np.prod(kernel) * widest >= 2**30:
        _pool(ctx, node, node.inputs[0], node.outputs[0], acc(ctx.types[node.inputs[0]].dtype))
        return
    # The mean of dequantised integers: (sum - count * zero_point) * (scale / count).
    count = int(np.prod(kernel))
    total = acc(DType.INT32)
    shift = count * int(quantised.zero_point.reshape(-1)[0])
    centred = call("sub", total, const(shift, DType.INT32), value="index") if shift else total
    factor = np.float32(quantised.scale.reshape(-1)[0]) / np.float32(count)
    mean = call("mul", call("cast", centred, dtype=DType.FLOAT32), const(float(factor), DType.FLOAT32))
    _pool(ctx, node, quantised.value, node.outputs[0], mean, acc_bound=count * widest + abs(shift))


def _pool(ctx: Lowering, node: Node, source: str, output: str, epilogue: Expr, acc_bound: int = 0) -> None:
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
    ctx.node("pool2d", [nhwc], [made], attrs, like=node)
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
