"""Pools in portable C."""

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.scalar import literal
from mtool.compiler.kernels.epilogues.expression import EpilogueText
from mtool.compiler.kernels.expressions import needs_math, operand_arguments, operand_constants
from mtool.compiler.kernels.pool2d.node import Pool2d
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Argument, BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target


class Window(BaseSchedule):
    """One output at a time, over the part of its window that lies inside the input."""

    name = "c99_window"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything."""
        return True

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """5 instructions an input element of a window, 20 an output."""
        height, width = Pool2d.of(node).kernel
        return float(graph.types[node.outputs[0]].count * (5 * height * width + 20))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        attrs = Pool2d.of(node)
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        epilogue = EpilogueText(node, graph)
        average = attrs.kind == "average"
        acc = x.dtype if x.dtype.is_float or not average else DType.INT32
        low = literal(float("-inf") if x.dtype.is_float else x.dtype.limits[0], x.dtype).c if not average else "0"
        body = template(
            "kernels/pool2d/c99/window.c.j2",
            attrs=attrs,
            size=x.shape[1:3],
            out_size=y.shape[1:3],
            batch=x.shape[0],
            channels=x.shape[3],
            average=average,
            joined=graph.is_sample,
            mean=average and x.dtype.is_float,
            acc=acc.c,
            start="0" if average else low,
            kind=x.dtype.kind[0] + str(x.dtype.size * 8),
            epilogue=epilogue,
        )
        names = epilogue.names
        arguments = [
            Argument("input", x.dtype.c, ("input", 0)),
            Argument("output", y.dtype.c, "output"),
            *operand_arguments(node, graph, names),
        ]
        constants = operand_constants(node, graph, names)
        return Kernel(tuple(arguments), body, constants, needs_math(epilogue.expr))


SCHEDULE = Window()
