"""Fold a constant a channel that an epilogue adds to the accumulator into the kernel's bias.

Into that of an integer kernel where it is a whole number of the accumulator's steps. A convolution's own float bias is
rounded to them where the result is an integer, as onnxruntime does (its WeightBiasQuantization); a float result is
exact.
"""

from dataclasses import replace

import numpy as np

from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.scaling import are_whole
from mtool.compiler.kernels.weighted_sum import WeightedSum


def fold_bias(graph: Graph) -> Graph:
    """Fold `acc + b` of float kernels, and `acc * s + b` of integer ones where b / s are whole numbers."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if isinstance(node.attrs, WeightedSum):
            node = _folded(node, rewriter)
        rewriter.keep(node)
    return rewriter.finish()


def _folded(node: Node, rewriter: Rewriter) -> Node:
    """Fold one addend after the other."""
    while True:
        epilogue = WeightedSum.of(node).epilogue
        sums = dict.fromkeys(part for part in epilogue.walk() if part.op == "add")
        steps = (_fold(part, node, rewriter) for part in sums if _is_only_use(part, epilogue))
        folded = next((step for step in steps if step is not None), None)
        if folded is None:
            return node
        node = folded


def _is_only_use(part: Expr, epilogue: Expr) -> bool:
    """Tell whether the accumulator is used nowhere but in this sum, which may occur several times (x * sigmoid(x))."""
    uses = sum(other.op == "acc" for other in epilogue.walk())
    return uses == sum(other == part for other in epilogue.walk()) * sum(other.op == "acc" for other in part.walk())


def _fold(part: Expr, node: Node, rewriter: Rewriter) -> Node | None:
    """Return the node with the addend of a sum in its bias; None: the sum is of something else."""
    for term, other in (part.args, part.args[::-1]):
        addend = _vector(other, node, rewriter)
        scale = _scale_of(term, node, rewriter)
        if addend is None or scale is None:
            continue
        bias = rewriter.constants[node.inputs[2]]
        attrs = WeightedSum.of(node)
        if term.op == "acc":
            data = (bias + addend).astype(np.float32)
        else:
            steps = addend.astype(np.float64) / scale
            own = attrs.float_bias  # the operator's, with which the accumulator's bound is counted
            attrs = replace(attrs, float_bias=False)
            rounded = own and rewriter.types[node.outputs[0]].dtype.is_integer
            if not (rounded or are_whole(steps)) or (not own and np.abs(steps).max(initial=0) > 2**30):
                continue
            data = (bias.astype(np.int64) + np.rint(steps).astype(np.int64)).astype(bias.dtype)
            if not own:
                attrs = replace(attrs, acc_bound=attrs.acc_bound + int(np.abs(steps).max(initial=0)) + 1)
                if bias.dtype == np.int32 and attrs.acc_bound >= 2**31:
                    continue
        attrs = replace(attrs, expr=_replaced(attrs.epilogue, part, term))
        name = rewriter.constant(f"{node.name}/bias", data)
        return replace(node, attrs=attrs, inputs=(*node.inputs[:2], name, *node.inputs[3:]))
    return None


def _replaced(expr: Expr, part: Expr, by: Expr) -> Expr:
    return expr.rewrite(lambda found: by if found == part else found)


def _vector(expr: Expr, node: Node, rewriter: Rewriter) -> Array | None:
    """Return a constant that depends on the channel at most, one number a channel."""
    channels = rewriter.constants[node.inputs[2]].size
    if expr.op == "const" and expr.dtype is DType.FLOAT32:
        return np.full(channels, expr.value, np.float32)
    data = rewriter.constants.get(node.inputs[expr.value]) if expr.op == "load" else None
    if data is None or not expr.args:
        return None
    last = len(rewriter.types[node.outputs[0]].shape) - 1
    own = expr.args[-1]
    lead = all(index.op == "const" for index in expr.args[:-1])
    if not lead or own.op != "axis" or own.value != last or data.size != channels:
        return None
    return data.reshape(-1)


def _scale_of(expr: Expr, node: Node, rewriter: Rewriter) -> Array | None:
    """Return what one step of the accumulator is worth in `expr`, if that is acc or acc * scale."""
    if expr.op == "acc" and expr.dtype is DType.FLOAT32:
        return np.ones(1)
    if expr.op == "mul" and expr.args[0].op == "cast" and expr.args[0].args[0].op == "acc":
        factor = _vector(expr.args[1], node, rewriter)
        return None if factor is None else factor.astype(np.float64)
    return None
