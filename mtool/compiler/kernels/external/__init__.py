"""Calls of C that is not mtool's: a region of the network that a backend computes (mtool.compiler.backends).

Internal form `external`, with the attributes of mtool.compiler.kernels.external.node. It has one schedule, the call.
"""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.external.node import SPECIFICATION, External
from mtool.compiler.kernels.schedule import KernelOp


def _label(node: Node, graph: Graph) -> str:
    return External.of(node).label


def _macs(node: Node, graph: Graph) -> int:
    return External.of(node).macs


KERNEL = KernelOp(SPECIFICATION, _label, _macs, schedules_of(__name__, __path__))
