"""The parameters of a model: its weights and biases, as it was read."""

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.control import with_own_bodies

_ELSEWHERE = {"QuantizeLinear": 1, "DequantizeLinear": 1, "Resize": 1}  # from which operand on constants are settings
_OF_INTEGERS = {"DequantizeLinear", "ConvInteger", "MatMulInteger"}  # what reads integers that stand for reals


def parameter_count(graph: Graph) -> int:
    """Return how many numbers a model has learned: elements of the constants of which it makes real numbers.

    Single numbers are none, nor are scales, zero points, shapes and indices. A constant that several operators read
    counts once.
    """
    found: dict[int, int] = {}
    for one in with_own_bodies(graph):
        for node in one.nodes:
            for value in node.inputs[: _ELSEWHERE.get(node.op)]:
                if value in one.constants and _is_learned(node, one, value):
                    found[id(one.constants[value])] = one.constants[value].size
    return sum(found.values())


def _is_learned(node: Node, graph: Graph, value: str) -> bool:
    data = graph.constants[value]
    return data.ndim > 0 and (DType.of(data.dtype).is_float or node.op in _OF_INTEGERS)
