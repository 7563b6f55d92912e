"""The loop operator: one expression an element, as one loop nest. Every simple operator becomes one."""

from mtool.ir import Graph, Node
from mtool.kernels.schedule import KernelOp
from mtool.ops.loop import c99
from mtool.ops.loop.node import SPECIFICATION, Loop


def _label(node: Node, graph: Graph) -> str:
    return Loop.of(node).label or "loop"


def _macs(node: Node, graph: Graph) -> int:
    return 0


KERNEL = KernelOp(SPECIFICATION, _label, _macs, c99.SCHEDULES)
