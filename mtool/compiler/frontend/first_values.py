"""The initial value of a quantized state: its zero point, which represents 0."""

from collections.abc import Sequence

import onnx
from onnx import numpy_helper

from mtool.compiler.frontend.inference import operator_of
from mtool.compiler.frontend.options import Pairs

MOVING = {
    "Concat", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Split", "Squeeze",
    "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
"""Operators whose output has the elements of their first input; Concat's has those of all its inputs."""


def first_values(graph: onnx.GraphProto, states: Pairs) -> dict[str, int]:
    """Return the zero points other than 0 of the inputs that states feed, by name."""
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
    points = {}
    for _, value in states:
        point = _zero_point(value, readers, constants)
        if point:
            points[value] = point
    return points


def _zero_point(
    value: str, readers: dict[str, list[tuple[onnx.NodeProto, int]]], constants: dict[str, onnx.TensorProto]
) -> int:
    """Return the zero point with which a value, or a copy of its elements, is first dequantized."""
    waiting, seen = [value], {value}
    for name in waiting:
        for node, index in readers.get(name, ()):
            zero_point = operator_of(node).zero_point
            where = None if zero_point is None else zero_point(index)
            if where is not None and where < len(node.input):
                return _number(constants.get(node.input[where]))
            if node.op_type in MOVING and (not index or node.op_type == "Concat"):
                waiting += [output for output in node.output if output not in seen]
                seen.update(node.output)
    return 0


def _number(tensor: onnx.TensorProto | None) -> int:
    """Return a per-tensor zero point; otherwise 0."""
    data: Sequence[int] = [] if tensor is None else numpy_helper.to_array(tensor).reshape(-1).tolist()
    return int(data[0]) if len(set(data)) == 1 else 0
