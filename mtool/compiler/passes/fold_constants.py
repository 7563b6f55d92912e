"""Fold constants: evaluate constant nodes, and fold addends into biases.

A per-channel constant that an epilogue adds to the accumulator is folded into the kernel's bias; in an integer kernel
only if it is a whole number of the accumulator's steps. A convolution's own float bias is rounded to whole steps if the
result is an integer, as onnxruntime does (its WeightBiasQuantization); a float result is exact, and so is one whose
steps are not much larger than the accumulator's, as those of weights of few bits.

What an accumulator is compared with, in float arithmetic, becomes a part of the bias too: then the comparison is one of
an integer with 0. The number is found by the same arithmetic, so that results are the same.
"""

import math
from dataclasses import replace

import numpy as np

from mtool.compiler.ir import Array, DType, Expr, Graph, Node, Rewriter, Transpose, View, rewritten
from mtool.compiler.ir.expr import acc, compare
from mtool.compiler.ir.scalar import evaluate
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.scaling import are_whole
from mtool.compiler.kernels.weighted_sum import WeightedSum

FINER = 32
"""The least steps of an accumulator in one of the result, for the accumulator's bias to be rounded."""

MAX_FOLDED = 1 << 25
"""The most elements, including those of reductions, that a loop may compute here; larger ones run on the device."""


def fold_constants(graph: Graph) -> Graph:
    """Evaluate loops, views, transpositions and concatenations whose inputs are constants."""

    def computed(rewriter: Rewriter, node: Node) -> Node | None:
        inputs, attrs = [rewriter.resolve(value) for value in node.inputs], node.attrs
        kind = graph.types[node.outputs[0]]
        if not {*inputs} <= rewriter.constants.keys() or _work(node, graph) > MAX_FOLDED:
            return node
        data = [rewriter.constants[value] for value in inputs]
        if isinstance(attrs, Loop):
            result = evaluate(attrs.expr, data, kind.shape)
        elif isinstance(attrs, Concat):
            result = np.concatenate(data, axis=attrs.axis)
        elif isinstance(attrs, Transpose):
            result = np.ascontiguousarray(data[0].transpose(attrs.perm))
        else:
            result = data[0].reshape(kind.shape)
        rewriter.constants[node.outputs[0]] = result
        return None

    return rewritten(graph, computed, Loop | View | Transpose | Concat)


def _work(node: Node, graph: Graph) -> int:
    """Return how many elements a node computes."""
    count = graph.types[node.outputs[0]].count
    if not isinstance(node.attrs, Loop):
        return count
    reduced = [part.value.axes for part in node.attrs.expr.walk() if part.op == "reduce"]
    return count * max((math.prod(size for _, size in axes) for axes in reduced), default=1)


def fold_bias(graph: Graph) -> Graph:
    """Fold `acc + b` into float kernels, and `acc * s + b` into integer ones if b / s are whole numbers."""
    return rewritten(graph, _folded, WeightedSum)


def _folded(rewriter: Rewriter, node: Node) -> Node:
    """Fold one addend after the other."""
    while True:
        epilogue = WeightedSum.of(node).epilogue
        sums = dict.fromkeys(part for part in epilogue.walk() if part.op == "add")
        steps = (_fold(part, node, rewriter) for part in sums if _is_only_use(part, epilogue))
        folded = next((step for step in steps if step is not None), None)
        if folded is None:
            return _compared(node, rewriter)
        node = folded


def _is_only_use(part: Expr, epilogue: Expr) -> bool:
    """Whether the accumulator is used only in this sum, which may occur several times (x * sigmoid(x))."""
    uses = sum(other.op == "acc" for other in epilogue.walk())
    return uses == sum(other == part for other in epilogue.walk()) * sum(other.op == "acc" for other in part.walk())


def _fold(part: Expr, node: Node, rewriter: Rewriter) -> Node | None:
    """Return the node with a sum's addend folded into its bias; None: the sum is not of that form."""
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
            biased = attrs.float_bias  # the accumulator's bound includes the operator's bias
            attrs = replace(attrs, float_bias=False)
            rounded = biased and rewriter.types[node.outputs[0]].dtype.is_integer and _are_fine(scale, node, rewriter)
            if not (rounded or are_whole(steps)) or (not biased and np.abs(steps).max(initial=0) > 2**30):
                continue
            data = (bias.astype(np.int64) + np.rint(steps).astype(np.int64)).astype(bias.dtype)
            if not biased:
                attrs = replace(attrs, acc_bound=attrs.acc_bound + int(np.abs(steps).max(initial=0)) + 1)
                if bias.dtype == np.int32 and attrs.acc_bound >= 2**31:
                    continue
        attrs = replace(attrs, expr=attrs.epilogue.with_part(part, term))
        name = rewriter.constant(f"{node.name}/bias", data)
        return replace(node, attrs=attrs, inputs=(*node.inputs[:2], name, *node.inputs[3:]))
    return None


def _are_fine(scale: Array, node: Node, rewriter: Rewriter) -> bool:
    """Whether the result is quantized, to steps that are large against the accumulator's."""
    quantized = [part for part in WeightedSum.of(node).epilogue.walk() if part.op == "quantize"]
    steps = [_vector(part.args[1], node, rewriter) for part in quantized]
    return bool(steps) and all(step is not None and (scale * FINER <= step).all() for step in steps)


def _vector(expr: Expr, node: Node, rewriter: Rewriter) -> Array | None:
    """Return a constant that depends at most on the channel, one number per channel."""
    channels = rewriter.constants[node.inputs[2]].size
    if expr.op == "const" and expr.dtype is DType.FLOAT32:
        return np.full(channels, expr.value, np.float32)
    data = rewriter.constants.get(node.inputs[expr.value]) if expr.op == "load" else None
    if data is None or not expr.args:
        return None
    last = len(rewriter.types[node.outputs[0]].shape) - 1
    channel = expr.args[-1]
    lead = all(index.op == "const" for index in expr.args[:-1])
    if not lead or channel.op != "axis" or channel.value != last or data.size != channels:
        return None
    return data.reshape(-1)


def _scale_of(expr: Expr, node: Node, rewriter: Rewriter) -> Array | None:
    """Return the scale of the accumulator in `expr`, if that is acc or acc * scale."""
    if expr.op == "acc" and expr.dtype is DType.FLOAT32:
        return np.ones(1)
    if expr.op == "mul" and expr.args[0].op == "cast" and expr.args[0].args[0].op == "acc":
        factor = _vector(expr.args[1], node, rewriter)
        return None if factor is None else factor.astype(np.float64)
    return None


COMPARISONS = ("greater_equal", "greater", "less", "less_equal")
MONOTONIC = ("add", "sub", "mul", "maximum", "minimum")


def _compared(node: Node, rewriter: Rewriter) -> Node:
    """Fold what a sum is compared with into its bias, if the sum is used for nothing else.

    In channels of which smaller sums are meant, weights and bias change their signs.
    """
    attrs, total, last = WeightedSum.of(node), acc(DType.INT32), len(rewriter.types[node.outputs[0]].shape) - 1
    weights, bias = (rewriter.constants[value] for value in node.inputs[1:3])
    test = next((part for part in attrs.epilogue.walk() if part.op in COMPARISONS and total in part.walk()), None)
    if test is None or not attrs.acc_bound or not (_is_only_use(test, attrs.epilogue) and _is_monotonic(test)):
        return node
    loads = [part for part in test.walk(indices=False) if part.op == "load"]
    if any(_vector(part, node, rewriter) is None for part in loads):
        return node
    data = [rewriter.constants.get(value, bias) for value in node.inputs]
    shape = (*(1 for _ in range(last)), len(bias))

    def holds(sums: Array) -> Array:
        return evaluate(test, data, shape, sums.astype(np.int32)).reshape(-1)

    most = np.full(len(bias), attrs.acc_bound, np.int64)
    sign = np.where(holds(-most) & ~holds(most), -1, 1)
    low, high = -most, most + 1  # the least sum, times its sign, of which it holds
    while (low < high).any():
        middle = (low + high) >> 1
        is_met = holds(sign * np.minimum(middle, most)) & (middle <= most)
        low, high = np.where(is_met, low, np.minimum(middle + 1, high)), np.where(is_met, middle, high)
    turned = weights.astype(np.int32) * sign.reshape(-1, *(1 for _ in weights.shape[1:]))
    bound = attrs.acc_bound + int(np.abs(low).max(initial=0))
    if bound >= 1 << 31 or (turned != turned.astype(weights.dtype)).any():
        return node
    constants = {"weights": turned.astype(weights.dtype), "bias": (sign * bias.astype(np.int64) - low).astype(np.int32)}
    parameters = [rewriter.constant(f"{node.name}/{name}", array) for name, array in constants.items()]
    expr = attrs.epilogue.with_part(test, compare("greater_equal", total, 0))
    changed = replace(attrs, expr=expr, acc_bound=bound, float_bias=False)
    return replace(node, attrs=changed, inputs=(node.inputs[0], *parameters, *node.inputs[3:]))


def _is_monotonic(part: Expr) -> bool:
    """Whether a comparison is of a sum that float arithmetic with finite constants moves in one direction."""
    for expr in part.walk():
        sums = [arg for arg in expr.args if any(inner.op == "acc" for inner in arg.walk())]
        is_float = expr.op == "cast" and expr.dtype is DType.FLOAT32
        if sums and not (len(sums) == 1 and (is_float or expr is part or expr.op in MONOTONIC)):
            return False
        if expr.op == "const" and not np.isfinite(expr.value):
            return False
    return True
