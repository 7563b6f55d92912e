"""Dense layers in portable C."""

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.epilogues import EpilogueText, acc_type
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target, plain_product
from mtool.compiler.kernels.weighted_sum import is_widened, stored_weights, weight_offset

# Dense layers in portable C.


class Gemv(BaseSchedule):
    """Row by row of the input; four outputs at a time share each input element."""

    name = "c99_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything."""
        return True

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Those of the products, 24 instructions an output; outputs that are left of four share no input: 1.8 more."""
        (rows, depth), outputs = graph.types[node.inputs[0]].shape, graph.types[node.outputs[0]].shape[1]
        each = plain_product(target, widened=is_widened(node, graph))
        return rows * (outputs * (each * depth + 24) + outputs % 4 * 1.8 * depth)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        rows, depth = graph.types[node.inputs[0]].shape
        acc = acc_type(node, graph)
        epilogue, weights = EpilogueText(node, graph), stored_weights(node, graph)
        body = template(
            "kernels/dense/c99/gemv.c.j2",
            rows=rows,
            depth=depth,
            outputs=graph.types[node.outputs[0]].shape[1],
            x=graph.types[node.inputs[0]].dtype.c,
            w=DType.of(weights.dtype).c,
            offset=weight_offset(node, graph),
            acc=acc.c,
            float=acc.is_float,
            epilogue=epilogue,
        )
        return epilogue.kernel(body, weights)


SCHEDULES = (Gemv(),)
