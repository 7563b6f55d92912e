"""Pooling (ai.onnx MaxPool, AveragePool and their Global forms), one and two dimensions.

Internal form `pool2d`: input x[N,H,W,C]; acc is the maximum, the mean (float) or the sum (integer).
"""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.pool2d.node import SPECIFICATION, Pool2d
from mtool.compiler.kernels.schedule import KernelOp


def _label(node: Node, graph: Graph) -> str:
    attrs = Pool2d.of(node)
    height, width = attrs.kernel
    return f"{attrs.kind} pool {height}x{width}"


KERNEL = KernelOp(SPECIFICATION, _label, schedules_of(__name__, __path__))
