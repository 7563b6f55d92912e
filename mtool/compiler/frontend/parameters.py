"""Count the parameters of an imported model: its weights and biases."""

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.control import all_graphs

_ELSEWHERE = {"QuantizeLinear": 1, "DequantizeLinear": 1, "Resize": 1}  # the first operand whose constants are settings
_OF_INTEGERS = {"DequantizeLinear", "ConvInteger", "MatMulInteger"}  # operators whose integers represent real numbers


def parameter_count(graph: Graph) -> int:
    """Return the number of trained parameters: the elements of constants that represent real numbers.

    Scalars, scales, zero points, shapes and indices do not count. A constant that several operators read counts once.
    """
    sizes: dict[int, int] = {}
    for inner in all_graphs(graph):
        for node in inner.nodes:
            for value in node.inputs[: _ELSEWHERE.get(node.op)]:
                if value in inner.constants and _is_learned(node, inner, value):
                    sizes[id(inner.constants[value])] = inner.constants[value].size
    return sum(sizes.values())


def _is_learned(node: Node, graph: Graph, value: str) -> bool:
    data = graph.constants[value]
    return data.ndim > 0 and (DType.of(data.dtype).is_float or node.op in _OF_INTEGERS)
