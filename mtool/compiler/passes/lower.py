"""Lower every canonical ONNX operator with its function in `mtool.compiler.operators`."""

from mtool.base.errors import ModelError, MtoolError
from mtool.compiler import operators
from mtool.compiler.ir import Graph
from mtool.compiler.operators import custom_domains
from mtool.compiler.operators.custom_domains import custom_operator
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.quantize import note_moved
from mtool.compiler.passes.state_layout import quantize_states


def lower(graph: Graph, *, float_weights: bool = False) -> Graph:
    """Replace ONNX operators by kernels, loops, views and transpositions.

    `float_weights`: int8 weights of float activations become float32, for kernels that can't widen them.
    """
    ctx = Lowering(graph, float_weights=float_weights)
    for node in graph.nodes:
        operator = custom_operator(node.op)
        if operator is not None:
            custom_domains.lower(operator, ctx, node)
            continue
        try:
            operator = operators.lowering_of(node.op)
            assert operator is not None and operator.lower is not None, f"{node.op} is not an operator"
            operator.lower(ctx, node)
        except MtoolError:
            raise
        except Exception as failed:  # operands or attributes that do not fit together
            raise ModelError(
                f"{node.op} {node.name!r} can't be compiled", details=[f"{type(failed).__name__}: {failed}"]
            ) from failed
    note_moved(ctx)
    return quantize_states(ctx.finish(), ctx.dequantized)
