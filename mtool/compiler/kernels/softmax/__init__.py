"""Softmax and LogSoftmax (ai.onnx 1, 11, 13), float and integer.

Internal form `softmax`: input x[M,N] along the last axis; acc is the float32 result. For integers,
exp(scale * (q - max)) has only 256 values, which stand in a table: input 1, a constant.
"""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.schedule import KernelOp
from mtool.compiler.kernels.softmax.node import SPECIFICATION, SoftmaxOfRows


def _label(node: Node, graph: Graph) -> str:
    return "log softmax" if SoftmaxOfRows.of(node).log else "softmax"


def _macs(node: Node, graph: Graph) -> int:
    return 0


KERNEL = KernelOp(SPECIFICATION, _label, _macs, schedules_of(__name__, __path__))
