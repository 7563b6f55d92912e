"""Reductions (ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd) as loops with extra axes."""

import math

from mtool.ir import Expr, Node
from mtool.ir.expr import Reduction, axis, call, const, load
from mtool.ops.lowering import Lower, Lowering

KINDS = {
    "ReduceSum": "add",
    "ReduceMean": "add",
    "ReduceMax": "maximum",
    "ReduceMin": "minimum",
    "ReduceProd": "multiply",
}


def _reduce(ctx: Lowering, node: Node) -> None:
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    rank, axes = len(kind.shape), node.attrs["axes"]
    kept = [place for place in range(rank) if place not in axes]
    extra = {place: len(result.shape) + number for number, place in enumerate(axes)}
    position = {place: place if node.attrs["keepdims"] else kept.index(place) for place in kept}
    index = tuple(axis(extra[place] if place in extra else position[place]) for place in range(rank))
    sizes = tuple((extra[place], kind.shape[place]) for place in axes)
    total = Expr("reduce", kind.dtype, (load(0, kind.dtype, index),), Reduction(KINDS[node.op], sizes))
    if node.op == "ReduceMean":
        total = call("div", total, const(math.prod(size for _, size in sizes), kind.dtype))
    ctx.loop(node, total, node.inputs)


LOWERINGS: dict[str, Lower] = dict.fromkeys(KINDS, _reduce)
