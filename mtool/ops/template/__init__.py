"""Kernels that are one C template each: sorting, scattering, running sums, recurrence.

Internal form `template`: attributes `template` (its file), `values` (what the template is told), `names`
(the C names of the inputs, then of the outputs), `scratch` (bytes), `label`, `math` (calls the mathematical library),
`overwrites` (pairs of an input and the output that may be written over it, where there are such).
"""

from mtool.ir import Graph, Node
from mtool.kernels.schedule import KernelOp
from mtool.ops.template import c99


def _label(node: Node, graph: Graph) -> str:
    return str(node.attrs["label"])


def _macs(node: Node, graph: Graph) -> int:
    return int(node.attrs.get("macs", 0))


KERNEL = KernelOp(_label, _macs, c99.SCHEDULES)
