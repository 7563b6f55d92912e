"""Softmax and LogSoftmax (ai.onnx 1, 11, 13), float and integer."""

import math

import numpy as np

from mtool.compiler.ir import DType, Node
from mtool.compiler.ir.expr import acc, call, const
from mtool.compiler.kernels.softmax import SoftmaxOfRows
from mtool.compiler.operators import normalize
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.normalize import Softmax


def _lower(ctx: Lowering, node: Node) -> None:
    source, output = node.inputs[0], node.outputs[0]
    attrs = Softmax.of(node)
    axis, log = attrs.axis, attrs.log
    kind = ctx.types[output]
    rank = len(kind.shape)
    if kind.dtype is not DType.FLOAT32:
        normalize.softmax(ctx, node)
        return
    inputs = []
    quantised = ctx.integers(source) if not log else None
    if quantised is not None:
        source = quantised.value
        steps = np.arange(-255, 1, dtype=np.float64) * np.float64(quantised.scale.reshape(-1)[0])
        inputs.append(ctx.constant(f"{node.name}/exponentials", np.exp(steps).astype(np.float32)))
    perm = tuple(dim for dim in range(rank) if dim != axis) + ((axis,) if rank else ())
    back = tuple(perm.index(dim) for dim in range(rank))
    is_last = perm == tuple(range(rank))
    moved = source if is_last else ctx.transpose(node, source, perm)
    length = kind.shape[axis] if rank else 1
    flat = (math.prod(kind.shape) // max(length, 1), length)
    moved_shape = ctx.types[moved].shape
    moved = moved if moved_shape == flat else ctx.view(node, moved, flat)
    made = ctx.value(f"{output}.rows", kind.dtype, flat)
    rows = SoftmaxOfRows(log=log, has_table=quantised is not None, expr=acc(DType.FLOAT32))
    ctx.node("softmax", [moved, *inputs], [made], rows, like=node)
    if is_last:
        ctx.view(node, made, (), output)
    else:
        shaped = ctx.view(node, made, moved_shape)
        ctx.transpose(node, shaped, back, output)


def _fixed(ctx: Lowering, node: Node) -> None:
    """FixedSoftmax, mtool's own: along the last axis, in steps of 1/256 from the lowest value on.

    Results of 16 bits are in steps of 1/65536.
    Inputs: 8-bit integers, and exp(-d) for differences d = 255 … 0 as int32 with 31 bits behind the point.
    """
    source, powers = node.inputs
    kind = ctx.types[node.outputs[0]]
    flat = (math.prod(kind.shape[:-1]), kind.shape[-1])
    low, high = kind.dtype.limits
    steps = call("add", acc(DType.INT32), const(low, DType.INT32), value="index")
    for how, bound in (("maximum", low), ("minimum", high)):
        steps = call(how, steps, const(bound, DType.INT32))
    attrs = SoftmaxOfRows(
        has_table=True, fixed=True, bits=8 * kind.dtype.size, expr=call("cast", steps, dtype=kind.dtype)
    )
    if kind.shape == flat:
        ctx.node("softmax", [source, powers], node.outputs, attrs, like=node)
        return
    made = ctx.value(f"{node.outputs[0]}.rows", kind.dtype, flat)
    ctx.node("softmax", [ctx.view(node, source, flat), powers], [made], attrs, like=node)
    ctx.view(node, made, (), node.outputs[0])


LOWERINGS: dict[str, Operator] = {"Softmax": Operator(_lower, Softmax), "FixedSoftmax": Operator(_fixed)}
