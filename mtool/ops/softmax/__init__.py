"""Softmax and LogSoftmax (ai.onnx 1, 11, 13), float and integer.

Internal form `softmax`: input x[M,N] along the last axis; acc is the float32 result. For integers,
exp(scale * (q - max)) has only 256 values, which stand in a table: input 1, a constant.
"""

from mtool.ir import Graph, Node
from mtool.kernels.discovery import schedules_of
from mtool.kernels.schedule import KernelOp
from mtool.ops.softmax.node import SPECIFICATION, SoftmaxOfRows


def _label(node: Node, graph: Graph) -> str:
    return "log softmax" if SoftmaxOfRows.of(node).log else "softmax"


def _macs(node: Node, graph: Graph) -> int:
    return 0


KERNEL = KernelOp(SPECIFICATION, _label, _macs, schedules_of(__name__, __path__))
