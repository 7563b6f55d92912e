"""Compute what depends on constants alone."""

import math

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.node import Transpose, View
from mtool.compiler.ir.scalar import evaluate
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.loop.node import Loop

MOST_FOLDED = 1 << 25
"""Elements that a loop may compute here, those of its reductions too; a larger one is left to the device."""


def fold_constants(graph: Graph) -> Graph:
    """Evaluate loops, views, transpositions and concatenations whose inputs are constants."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        inputs = [rewriter.resolve(value) for value in node.inputs]
        known = all(value in rewriter.constants for value in inputs)
        attrs = node.attrs
        if not isinstance(attrs, Loop | View | Transpose | Concat) or not known or _work(node, graph) > MOST_FOLDED:
            rewriter.keep(node)
            continue
        data = [rewriter.constants[value] for value in inputs]
        kind = graph.types[node.outputs[0]]
        if isinstance(attrs, Loop):
            result = evaluate(attrs.expr, data, kind.shape)
        elif isinstance(attrs, View):
            result = data[0].reshape(kind.shape)
        elif isinstance(attrs, Transpose):
            result = np.ascontiguousarray(data[0].transpose(attrs.perm))
        else:
            result = np.concatenate(data, axis=attrs.axis)
        rewriter.constants[node.outputs[0]] = result
    return rewriter.finish()


def _work(node: Node, graph: Graph) -> int:
    """Return how many elements computing a node takes."""
    count = graph.types[node.outputs[0]].count
    if not isinstance(node.attrs, Loop):
        return count
    reduced = [part.value.axes for part in node.attrs.expr.walk() if part.op == "reduce"]
    return count * max((math.prod(size for _, size in axes) for axes in reduced), default=1)
