"""Copy constants that kernels read as their activations, and that graphs of control nodes read: from the arena."""

from dataclasses import replace

from mtool.compiler.ir import Graph
from mtool.compiler.ir.control import Control
from mtool.compiler.ir.expr import identity, load
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.kernels.loop.node import Loop
from mtool.compiler.kernels.registry import SPECIFICATIONS


def copy_constant_inputs(graph: Graph) -> Graph:
    """Copy the constants that kernels read as their activations, such as a tensor without elements that is padded."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        inputs = list(node.inputs)
        own = SPECIFICATIONS[node.op].own(node)
        for index, value in enumerate(inputs):
            in_arena = isinstance(node.attrs, Control) or (index < len(own) and own[index].is_in_arena)
            if in_arena and value in graph.constants:
                kind = graph.types[value]
                inputs[index] = rewriter.value(f"{value}.copy", kind.dtype, kind.shape)
                element = load(0, kind.dtype, identity(len(kind.shape)))
                rewriter.node("loop", [value], [inputs[index]], Loop(expr=element, label="copy"))
        rewriter.keep(replace(node, inputs=tuple(inputs)))
    return rewriter.finish()
