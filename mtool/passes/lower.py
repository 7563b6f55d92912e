"""Lower every canonical ONNX operator by its own function in `mtool.ops`."""

from mtool import ops
from mtool.errors import ModelError, MtoolError
from mtool.ir import Graph, Node
from mtool.ops.lowering import Lowering
from mtool.ops.quantise import note_moved
from mtool.passes.states import hold_quantised


def lower(graph: Graph) -> Graph:
    """Replace ONNX operators by kernels, loops, views and transpositions.

    Raises:
        ModelError: an operator's inputs and attributes do not go together.
    """
    ctx = Lowering(graph)
    for node in graph.nodes:
        _lower(ctx, node)
    note_moved(ctx)
    return hold_quantised(ctx.finish(), ctx.dequantised)


def _lower(ctx: Lowering, node: Node) -> None:
    try:
        ops.LOWERINGS[node.op](ctx, node)
    except MtoolError:
        raise
    except (ArithmeticError, LookupError, ValueError, TypeError, MemoryError) as failed:  # of a malformed node
        why = f"its inputs and attributes do not go together ({type(failed).__name__}: {failed})"
        raise ModelError(f"{node.op} {node.name!r} can't be compiled", details=[why]) from failed
