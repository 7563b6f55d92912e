"""Lower every canonical ONNX operator by its own function in `mtool.ops`."""

from mtool import ops
from mtool.ir import Graph
from mtool.ops.lowering import Lowering
from mtool.ops.quantise import note_moved
from mtool.passes.states import hold_quantised


def lower(graph: Graph) -> Graph:
    """Replace ONNX operators by kernels, loops, views and transpositions."""
    ctx = Lowering(graph)
    for node in graph.nodes:
        ops.LOWERINGS[node.op](ctx, node)
    note_moved(ctx)
    return hold_quantised(ctx.finish(), ctx.dequantised)
