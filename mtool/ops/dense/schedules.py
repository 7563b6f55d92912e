"""Schedules of dense in portable C."""

from mtool.ir import Graph, Node
from mtool.ops.conv2d.schedules import EpilogueText, acc_type
from mtool.ops.schedule import BaseSchedule, Kernel, Schedule, Target, template


class Rows(BaseSchedule):
    """Row by row of the input; four outputs at a time share each input element."""

    name = "c99_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything."""
        return True

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """1.5 instructions a multiply-accumulate besides itself, 12 an output."""
        rows, depth = graph.types[node.inputs[0]].shape
        return rows * graph.types[node.outputs[0]].shape[1] * ((1.5 + target.product_instructions) * depth + 12)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        rows, depth = graph.types[node.inputs[0]].shape
        acc = acc_type(node, graph)
        epilogue = EpilogueText(node, graph)
        body = template(
            "dense/c99_rows.c.j2",
            rows=rows,
            depth=depth,
            outputs=graph.types[node.outputs[0]].shape[1],
            x=graph.types[node.inputs[0]].dtype.c,
            w=graph.types[node.inputs[1]].dtype.c,
            acc=acc.c,
            float=acc.is_float,
            epilogue=epilogue,
        )
        return epilogue.kernel(body, graph.constants[node.inputs[1]])


SCHEDULES: tuple[Schedule, ...] = (Rows(),)
