"""Concatenation: internal form `concat`, of inputs of one type."""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.concat.node import SPECIFICATION
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.schedule import KernelOp


def _label(node: Node, graph: Graph) -> str:
    return "concat"


def _macs(node: Node, graph: Graph) -> int:
    return 0


KERNEL = KernelOp(SPECIFICATION, _label, _macs, schedules_of(__name__, __path__))
