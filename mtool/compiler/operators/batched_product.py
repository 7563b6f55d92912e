"""Batched products of two 8-bit activations: a matmul kernel."""

import math

from mtool.compiler.ir import DType, Node
from mtool.compiler.ir.expr import acc, call, const
from mtool.compiler.kernels.matmul.node import Matmul
from mtool.compiler.operators.lowering import Lowering


def product_of_integers(ctx: Lowering, node: Node, a: str, b: str, output: str) -> bool:
    """Append a matmul kernel if there are 8-bit integers behind both operands, and neither is a vector."""
    left, right = ctx.integers(a), ctx.integers(b)
    kind = ctx.types[output]
    if left is None or right is None or kind.dtype is not DType.FLOAT32 or not kind.count:
        return False
    shapes = [ctx.types[value].shape for value in (a, b)]
    if any(len(shape) < 2 for shape in shapes):
        return False
    depth, rank = shapes[0][-1], len(kind.shape)
    points = [int(part.zero_point.reshape(-1)[0]) for part in (left, right)]
    reaches = []
    for part, point in zip((left, right), points, strict=True):
        low, high = ctx.types[part.value].dtype.limits
        reaches.append(max(high - point, point - low))
    bound = depth * math.prod(reaches)
    if bound >= 2**31:
        return False
    strides = [_strides(shape, rank) for shape in shapes]
    factor = const(float(left.scale.reshape(-1)[0] * right.scale.reshape(-1)[0]), DType.FLOAT32)
    attrs = Matmul(
        depth=depth, a=strides[0], b=strides[1], points=(points[0], points[1]), acc_bound=bound,
        expr=call("mul", call("cast", acc(DType.INT32), dtype=DType.FLOAT32), factor),
    )  # fmt: skip
    ctx.node("matmul", [left.value, right.value], [output], attrs, like=node)
    return True


def _strides(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return the strides of an operand in elements, 0 along what is broadcast to the output's rank."""
    steps = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    batch = [0 if size == 1 else step for size, step in zip(shape[:-2], steps[:-2], strict=True)]
    return (*(0,) * (rank - len(shape)), *batch, *steps[-2:])
