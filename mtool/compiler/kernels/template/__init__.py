"""Kernels that are one C template each: sorting, scattering, running sums, recurrence.

Internal form `template`, with the attributes of mtool.compiler.kernels.template.node.
"""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.schedule import KernelOp
from mtool.compiler.kernels.template.node import SPECIFICATION, TemplateKernel


def _label(node: Node, graph: Graph) -> str:
    return TemplateKernel.of(node).label


def _macs(node: Node, graph: Graph) -> int:
    return TemplateKernel.of(node).macs


KERNEL = KernelOp(SPECIFICATION, _label, _macs, schedules_of(__name__, __path__))
