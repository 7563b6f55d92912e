"""Lower every canonical ONNX operator by its own function in `mtool.lowerings`."""

from mtool import lowerings
from mtool.errors import ModelError, MtoolError
from mtool.ir import Graph
from mtool.lowerings import own_results
from mtool.lowerings.lowering import Lowering
from mtool.lowerings.own_domains import own_of_kind
from mtool.lowerings.quantise import note_moved
from mtool.passes.state_layout import quantise_states


def lower(graph: Graph, *, float_weights: bool = False) -> Graph:
    """Replace ONNX operators by kernels, loops, views and transpositions.

    `float_weights`: int8 weights of float activations become float32, for kernels that can't widen them.
    """
    ctx = Lowering(graph, float_weights=float_weights)
    for node in graph.nodes:
        own = own_of_kind(node.op)
        if own is not None:
            own_results.lower(own, ctx, node)
            continue
        try:
            operator = lowerings.lowering_of(node.op)
            assert operator is not None, f"{node.op} is no operator"
            operator.lower(ctx, node)
        except MtoolError:
            raise
        except Exception as failed:  # of operands or attributes that do not go together
            raise ModelError(
                f"{node.op} {node.name!r} can't be compiled", details=[f"{type(failed).__name__}: {failed}"]
            ) from failed
    note_moved(ctx)
    return quantise_states(ctx.finish(), ctx.dequantised)
