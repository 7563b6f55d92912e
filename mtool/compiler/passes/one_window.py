"""A convolution of one window, which is its whole input, as a dense layer, whose kernels read such weights faster."""

from dataclasses import fields, replace

from mtool.compiler.ir import DType, Graph, Node, Rewriter, View, axis, const, rewritten
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.dense import Dense
from mtool.compiler.kernels.registry import KERNELS
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import WeightedSum


def windows_to_dense(graph: Graph, target: Target) -> Graph:
    """Turn convolutions of one window into dense layers, if that takes less time."""
    made = rewritten(graph, _dense, Conv2d)
    is_same = len(made.nodes) == len(graph.nodes)
    return graph if is_same or cost(graph, target) <= cost(made, target) else made


def cost(graph: Graph, target: Target) -> float:
    """Return the instructions of convolutions and dense layers, which share functions."""
    return sum(
        min(one.cost(node, graph, target) for one in KERNELS[node.op].schedules if one.supports(node, graph, target))
        for node in graph.nodes
        if isinstance(node.attrs, Conv2d | Dense)
    )


def _dense(rewriter: Rewriter, node: Node) -> Node:
    """Return the node, or the view of a dense layer's result."""
    attrs, types = Conv2d.of(node), rewriter.types
    x, weights, out = types[node.inputs[0]], types[node.inputs[1]], types[node.outputs[0]]
    is_whole = x.shape[1:3] == attrs.kernel and not any(attrs.pads) and x.shape[0] == 1 == attrs.group
    if not is_whole or out.count != out.shape[3] or 0 in attrs.expr.operands():
        return node
    size = weights.count // out.count
    flat = rewriter.value(f"{node.inputs[0]} flat", x.dtype, (1, size))
    rewriter.node("view", [node.inputs[0]], [flat], View(), like=node)
    own = rewriter.constant(f"{node.inputs[1]} flat", rewriter.constants[node.inputs[1]].reshape(out.count, size))
    made = rewriter.value(f"{node.outputs[0]} flat", out.dtype, (1, out.count))
    sums = {one.name: getattr(attrs, one.name) for one in fields(WeightedSum)}
    places = {1: const(0, DType.INT32), 2: const(0, DType.INT32), 3: axis(1)}
    dense = Dense(**{**sums, "expr": attrs.expr.with_axes(places)})
    rewriter.node("dense", [flat, own, *node.inputs[2:]], [made], dense, like=node)
    return replace(node, op="view", inputs=(made,), attrs=View())
