"""Concatenation: internal form `concat`, of inputs of one type."""

from mtool.ir import Graph, Node
from mtool.kernels.discovery import schedules_of
from mtool.kernels.schedule import KernelOp
from mtool.ops.concat.node import SPECIFICATION


def _label(node: Node, graph: Graph) -> str:
    return "concat"


def _macs(node: Node, graph: Graph) -> int:
    return 0


KERNEL = KernelOp(SPECIFICATION, _label, _macs, schedules_of(__name__, __path__))
