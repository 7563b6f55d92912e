"""Dense layers: matrix products with constant weights, float and integer.

Internal form `dense`: inputs x[M,K], w[N,K] (constant, a row an output), bias[N], then what the
epilogue reads. The output is [M,N].
"""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.dense.node import SPECIFICATION, Dense
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.schedule import KernelOp


def _label(node: Node, graph: Graph) -> str:
    return "dense"


def _macs(node: Node, graph: Graph) -> int:
    macs = Dense.of(node).macs
    if macs is not None:
        return macs
    return graph.types[node.outputs[0]].count * graph.types[node.inputs[0]].shape[1]


KERNEL = KernelOp(SPECIFICATION, _label, _macs, schedules_of(__name__, __path__))
