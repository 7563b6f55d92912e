"""Softmax in fixed point, in portable C."""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.epilogues.expression import EpilogueText
from mtool.compiler.kernels.expressions import needs_math, operand_arguments, operand_constants
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Argument, Kernel
from mtool.compiler.kernels.softmax.c99.softmax import DISTANCES, Softmax
from mtool.compiler.kernels.softmax.node import SoftmaxOfRows
from mtool.compiler.kernels.target import Target


class SoftmaxFixed(Softmax):
    """Row by row in fixed point: gemmlowp's, the quotients in steps of 1/256 or 1/65536."""

    name = "c99_fixed_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """8-bit integers with a table of exponentials of int32."""
        return SoftmaxOfRows.of(node).fixed

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        epilogue = EpilogueText(node, graph)
        kind = x.dtype.kind[0] + str(x.dtype.size * 8)
        rows, length = x.shape
        bits = SoftmaxOfRows.of(node).bits
        body = template(
            "kernels/softmax/c99/softmax_fixed.c.j2",
            rows=rows, length=length, x=x.dtype.c, kind=kind, bits=bits, epilogue=epilogue,
        )  # fmt: skip
        arguments = (
            Argument("input", x.dtype.c, ("input", 0)),
            Argument("output", y.dtype.c, "output"),
            Argument("exponential", "int32_t", ("constant", "exponential")),
            *operand_arguments(node, graph, epilogue.names),
        )
        constants = {"exponential": graph.constants[node.inputs[1]]}
        constants |= operand_constants(node, graph, epilogue.names)
        layouts = {"exponential": f"exp(scale * d) in steps of 2^-31 for {DISTANCES}"}
        return Kernel(arguments, body, constants, needs_math(epilogue.expr), ("mt_fixed.h",), layouts)


SCHEDULE = SoftmaxFixed()
