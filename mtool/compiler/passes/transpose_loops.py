"""Turn the transpositions that are left into loops."""

from mtool.compiler.ir import Graph
from mtool.compiler.ir.expr import axis, load
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.node import Transpose
from mtool.compiler.kernels.loop.node import Loop


def transposes_to_loops(graph: Graph) -> Graph:
    """Write each transposition as a loop over its output."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if not isinstance(node.attrs, Transpose):
            rewriter.keep(node)
            continue
        kind = rewriter.types[rewriter.resolve(node.inputs[0])]
        perm = node.attrs.perm
        index = tuple(axis(perm.index(dim)) for dim in range(len(perm)))
        attrs = Loop(expr=load(0, kind.dtype, index), label="transpose")
        rewriter.node("loop", [rewriter.resolve(node.inputs[0])], node.outputs, attrs, like=node)
    return rewriter.finish()
