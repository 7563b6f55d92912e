"""The loop operator: one expression an element, as one loop nest. Every simple operator becomes one."""

from mtool.ir import Graph, Node
from mtool.kernels.schedule import KernelOp
from mtool.ops.loop import c99


def _label(node: Node, graph: Graph) -> str:
    return str(node.attrs.get("label", "loop"))


def _macs(node: Node, graph: Graph) -> int:
    return 0


KERNEL = KernelOp(_label, _macs, c99.SCHEDULES)
