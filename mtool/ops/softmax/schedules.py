"""Schedules of softmax in portable C."""

from mtool.ir import Graph, Node
from mtool.ops.conv2d.schedules import EpilogueText
from mtool.ops.ctext import needs_math, operand_arguments
from mtool.ops.schedule import Argument, BaseSchedule, Kernel, Schedule, Target, template


class Rows(BaseSchedule):
    """Row by row: the maximum, the sum of the exponentials, the quotients."""

    name = "c99_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Results of float32."""
        return not node.attrs.get("fixed")

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
        integer = x.dtype.is_integer
        body = template(
            "softmax/c99_rows.c.j2",
            rows=x.shape[0],
            length=x.shape[1],
            x=x.dtype.c,
            kind=x.dtype.kind[0] + str(x.dtype.size * 8),
            integer=integer,
            log=node.attrs["log"],
            epilogue=epilogue,
        )
        names = epilogue.names
        arguments = [
            Argument("input", x.dtype.c, ("input", 0)),
            Argument("output", y.dtype.c, "output"),
            *([Argument("exponential", "float", ("constant", "exponential"))] if integer else []),
            *operand_arguments(node, graph, names),
        ]
        constants = {"exponential": graph.constants[node.inputs[1]]} if integer else {}
        constants |= {names[n]: graph.constants[node.inputs[n]] for n in names if node.inputs[n] in graph.constants}
        return Kernel(tuple(arguments), body, constants, not integer or needs_math(epilogue.expr))


class FixedRows(Rows):
    """Row by row in fixed point: gemmlowp's, the quotients in steps of 1/256."""

    name = "c99_fixed_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """8-bit integers with a table of exponentials of int32."""
        return bool(node.attrs.get("fixed"))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        epilogue = EpilogueText(node, graph)
        kind = x.dtype.kind[0] + str(x.dtype.size * 8)
        rows, length = x.shape
        body = template(
            "softmax/c99_fixed_rows.c.j2", rows=rows, length=length, x=x.dtype.c, kind=kind, epilogue=epilogue
        )
        arguments = (
            Argument("input", x.dtype.c, ("input", 0)),
            Argument("output", y.dtype.c, "output"),
            Argument("exponential", "int32_t", ("constant", "exponential")),
            *operand_arguments(node, graph, epilogue.names),
        )
        constants = {"exponential": graph.constants[node.inputs[1]]}
        constants |= {
            name: graph.constants[node.inputs[n]]
            for n, name in epilogue.names.items()
            if node.inputs[n] in graph.constants
        }
        return Kernel(arguments, body, constants, needs_math(epilogue.expr), ("mt_fixed.h",))


SCHEDULES: tuple[Schedule, ...] = (Rows(), FixedRows())
