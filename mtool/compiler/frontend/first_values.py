"""What stands for 0 in a state: a quantised one begins at its zero point, which is what its reader subtracts."""

from collections.abc import Sequence

import onnx
from onnx import numpy_helper

from mtool.compiler.frontend.options import Pairs

_ZERO_POINTS = {
    "DequantizeLinear": {0: 2}, "QLinearConv": {0: 2}, "QLinearMatMul": {0: 2, 3: 5}, "ConvInteger": {0: 2},
    "MatMulInteger": {0: 2, 1: 3}, "QLinearAdd": {0: 2, 3: 5}, "QLinearMul": {0: 2, 3: 5}, "QLinearSigmoid": {0: 2},
    "QLinearLeakyRelu": {0: 2}, "QLinearAveragePool": {0: 2}, "QLinearGlobalAveragePool": {0: 2}, "QGemm": {0: 2, 3: 5},
}  # fmt: skip
"""Operators that read quantised inputs: which of them has its zero point where."""

_QLINEAR_CONCAT = 3  # of each of whose parts there are so many inputs, behind the output's scale and zero point

_MOVING = {
    "Concat", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Split", "Squeeze",
    "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
"""Operators whose elements are their first inputs'; Concat's those of all its inputs."""


def first_values(graph: onnx.GraphProto, states: Pairs) -> dict[str, int]:
    """Return the zero points of the inputs that states feed, of those that have one other than 0."""
    if not states:
        return {}
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for index, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, index))
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {
        node.output[0]: attr.t
        for node in graph.node
        if node.op_type == "Constant"
        for attr in node.attribute
        if attr.name == "value" and len(node.output) == 1
    }
    found = {}
    for _, value in states:
        point = _zero_point(value, readers, constants)
        if point:
            found[value] = point
    return found


def _zero_point(
    value: str, readers: dict[str, list[tuple[onnx.NodeProto, int]]], constants: dict[str, onnx.TensorProto]
) -> int:
    """Return the zero point by which a value, or what its elements are moved to, is read first."""
    waiting, seen = [value], {value}
    for name in waiting:
        for node, index in readers.get(name, ()):
            where = _operand_of_zero_point(node, index)
            if 0 <= where < len(node.input):
                return _number(constants.get(node.input[where]))
            if node.op_type in _MOVING and (not index or node.op_type == "Concat"):
                waiting += [output for output in node.output if output not in seen]
                seen.update(node.output)
    return 0


def _operand_of_zero_point(node: onnx.NodeProto, index: int) -> int:
    """Return which input is the zero point of another one, or -1."""
    if node.op_type == "QLinearConcat" and index > 1 and (index - 2) % _QLINEAR_CONCAT == 0:
        return index + 2
    return _ZERO_POINTS.get(node.op_type, {}).get(index, -1)


def _number(tensor: onnx.TensorProto | None) -> int:
    """Return the zero point that is one number for the whole tensor; else 0."""
    data: Sequence[int] = [] if tensor is None else numpy_helper.to_array(tensor).reshape(-1).tolist()
    return int(data[0]) if len(set(data)) == 1 else 0
