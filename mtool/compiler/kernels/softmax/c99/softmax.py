"""Softmax in portable C."""

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.epilogues.expression import EpilogueText
from mtool.compiler.kernels.expressions import needs_math, operand_arguments, operand_constants
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Argument, BaseSchedule, Kernel
from mtool.compiler.kernels.softmax.node import SoftmaxOfRows
from mtool.compiler.kernels.target import Target

DISTANCES = "d = -255 to 0, how far an element is below the largest of its row"


class Softmax(BaseSchedule):
    """Row by row: the maximum, the sum of the exponentials, the quotients.

    The exponentials are kept where the quotients go, if they are floats; those of integers are looked up twice.
    """

    name = "c99_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Results of float32."""
        return not SoftmaxOfRows.of(node).fixed

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input: each element is read for the last time when its quotient is written."""
        same = graph.types[node.inputs[0]].dtype.size == graph.types[node.outputs[0]].dtype.size
        return (0,) if same else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """80 instructions an element."""
        return 80.0 * graph.types[node.outputs[0]].count

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        epilogue = EpilogueText(node, graph)
        integer, log, names = x.dtype.is_integer, SoftmaxOfRows.of(node).log, epilogue.names
        # an operand may lie where the output does, and is read when that has powers already
        residuals = [number for number in names if node.inputs[number] not in graph.constants]
        body = template(
            "kernels/softmax/c99/softmax.c.j2",
            rows=x.shape[0],
            length=x.shape[1],
            x=x.dtype.c,
            kind=x.dtype.kind[0] + str(x.dtype.size * 8),
            integer=integer,
            joined=graph.is_sample,
            log=log,
            stores=not (integer or log or residuals) and y.dtype is DType.FLOAT32,
            epilogue=epilogue,
        )
        arguments = [
            Argument("input", x.dtype.c, ("input", 0)),
            Argument("output", y.dtype.c, "output"),
            *([Argument("exponential", "float", ("constant", "exponential"))] if integer else []),
            *operand_arguments(node, graph, names),
        ]
        constants = {"exponential": graph.constants[node.inputs[1]]} if integer else {}
        constants |= operand_constants(node, graph, names)
        layouts = {"exponential": f"exp(scale * d) for {DISTANCES}"}
        math = not integer or needs_math(epilogue.expr)
        return Kernel(tuple(arguments), body, constants, math, layouts=layouts)


SCHEDULE = Softmax()
