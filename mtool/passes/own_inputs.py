"""Give each kernel an activation that is a variable: what is known before may be a constant."""

from dataclasses import replace

from mtool.ir import Graph
from mtool.ir.expr import identity, load
from mtool.ir.graph import Rewriter

_READ_FROM_THE_ARENA = ("conv2d", "dense", "pool2d", "softmax")
"""Kernels whose C takes the first operand as a pointer into the arena; the others take constants as well."""


def own_inputs(graph: Graph) -> Graph:
    """Copy the constants that kernels read as their activations, such as a tensor without elements that is padded."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        value = node.inputs[0] if node.inputs else ""
        if node.op in _READ_FROM_THE_ARENA and value in graph.constants:
            kind = graph.types[value]
            copy = rewriter.value(f"{value}.copy", kind.dtype, kind.shape)
            element = load(0, kind.dtype, identity(len(kind.shape)))
            rewriter.node("loop", [value], [copy], {"expr": element, "label": "copy"})
            node = replace(node, inputs=(copy, *node.inputs[1:]))
        rewriter.keep(node)
    return rewriter.finish()
