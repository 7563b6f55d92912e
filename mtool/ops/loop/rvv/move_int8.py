"""Loops that only copy bytes, by RISC-V vectors. See crt/include/mt_rvv.h."""

from mtool.ir import Graph, Node
from mtool.kernels.schedule import Argument, Kernel
from mtool.kernels.target import Target
from mtool.ops.loop.c99.move import Move, copied_range


class VectorMove(Move):
    """One copy by vectors, where a C library's memmove may be a loop over bytes."""

    name = "rvv_move"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """What memmove would copy, if it has 8 bits."""
        return target.has_rvv and graph.types[node.outputs[0]].dtype.size == 1 and super().supports(node, graph, target)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """8 instructions for eight registers, and for the call."""
        return 8 + graph.types[node.outputs[0]].bytes / 16

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the call."""
        out, start = graph.types[node.outputs[0]], copied_range(node, graph)
        arguments = (Argument("input", out.dtype.c, ("input", 0)), Argument("output", out.dtype.c, "output"))
        source, to = ("input", "output") if out.dtype.c == "int8_t" else ("(const int8_t *)input", "(int8_t *)output")
        call = f"    mt_rvv_move({to}, {source}{f' + {start}' if start else ''}, {out.c_bytes});"
        return Kernel(arguments, call, headers=("mt_rvv.h",))


SCHEDULE = VectorMove()
