"""Concatenation: internal form `concat`, inputs of one type, attribute `axis`.

The planner sets `appends` where the output lies over the first input, which then is not copied.
"""

from mtool.ir import Graph, Node
from mtool.kernels.schedule import KernelOp
from mtool.ops.concat import c99


def _label(node: Node, graph: Graph) -> str:
    return "concat"


def _macs(node: Node, graph: Graph) -> int:
    return 0


KERNEL = KernelOp(_label, _macs, c99.SCHEDULES)
