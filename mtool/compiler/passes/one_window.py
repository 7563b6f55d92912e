"""A convolution of one window as a dense layer, whose kernels read such weights faster.

The window is the whole input, or rows of it that dilation keeps apart, which are joined.
"""

from dataclasses import fields, replace
from math import prod

from mtool.compiler.ir import DType, Graph, Node, Rewriter, View, axis, const, rewritten
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.dense import Dense
from mtool.compiler.kernels.registry import KERNELS
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import WeightedSum

ALIGNMENT = 4  # bytes: kernels read words


def windows_to_dense(graph: Graph, target: Target) -> Graph:
    """Turn convolutions of one window into dense layers, if that takes less time."""
    dense = rewritten(graph, _dense, Conv2d)
    is_same = len(dense.nodes) == len(graph.nodes)
    return graph if is_same or cost(graph, target) <= cost(dense, target) else dense


def cost(graph: Graph, target: Target) -> float:
    """Return the instructions of convolutions, dense layers and joined rows."""
    return sum(
        min(s.cost(node, graph, target) for s in KERNELS[node.op].schedules if s.supports(node, graph, target))
        for node in graph.nodes
        if isinstance(node.attrs, Conv2d | Dense | Concat)
    )


def _dense(rewriter: Rewriter, node: Node) -> Node:
    """Return the node, or the view of a dense layer's result."""
    attrs, types = Conv2d.of(node), rewriter.types
    x, weights, out = types[node.inputs[0]], types[node.inputs[1]], types[node.outputs[0]]
    apart, size = attrs.dilations[0] if attrs.kernel[0] > 1 else 1, prod(x.shape[2:])
    reach = ((attrs.kernel[0] - 1) * apart + 1, attrs.kernel[1])
    is_whole = x.shape[1:3] == reach and not any(attrs.pads) and x.shape[0] == 1 == attrs.group
    if not is_whole or out.count != out.shape[3] or 0 in attrs.expr.operands():
        return node
    window = node.inputs[0]
    if apart > 1:
        if apart * size * x.dtype.size % ALIGNMENT:
            return node
        rows = [rewriter.value(f"{window} row", x.dtype, (1, 1, *x.shape[2:])) for _ in range(attrs.kernel[0])]
        for number, row in enumerate(rows):
            rewriter.node("view", [window], [row], View(first=number * apart * size), like=node)
        window = rewriter.value(f"{window} rows", x.dtype, (1, *attrs.kernel, x.shape[3]))
        rewriter.node("concat", rows, [window], Concat(axis=1), like=node)
    size = weights.count // out.count
    flat = rewriter.value(f"{node.inputs[0]} flat", x.dtype, (1, size))
    rewriter.node("view", [window], [flat], View(), like=node)
    kernel = rewriter.constant(f"{node.inputs[1]} flat", rewriter.constants[node.inputs[1]].reshape(out.count, size))
    result = rewriter.value(f"{node.outputs[0]} flat", out.dtype, (1, out.count))
    sums = {f.name: getattr(attrs, f.name) for f in fields(WeightedSum)}
    places = {1: const(0, DType.INT32), 2: const(0, DType.INT32), 3: axis(1)}
    dense = Dense(**{**sums, "expr": attrs.expr.with_axes(places)})
    rewriter.node("dense", [flat, kernel, *node.inputs[2:]], [result], dense, like=node)
    return replace(node, op="view", inputs=(result,), attrs=View())
