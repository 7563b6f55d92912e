"""Batched products of two 8-bit activations (ai.onnx MatMul between quantisations, QLinearMatMul): attention.

Internal form `matmul`: inputs a and b, whose elements are found by strides, then what the epilogue reads. acc is the
int32 sum of (a - its zero point) * (b - its zero point). The output is [..., M, N].
"""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.matmul.node import SPECIFICATION, Matmul
from mtool.compiler.kernels.schedule import KernelOp
from mtool.compiler.kernels.specification import always


def _macs(node: Node, graph: Graph) -> int:
    return graph.types[node.outputs[0]].count * Matmul.of(node).depth


KERNEL = KernelOp(SPECIFICATION, always("matmul"), schedules_of(__name__, __path__), _macs)
