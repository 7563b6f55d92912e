"""Make the inputs and outputs of a QDQ model integers: the caller quantises, and its buffers are a quarter as large."""

from pathlib import Path

import onnx
from onnx import helper

from mtool.base.errors import UsageError

_MOVEMENT = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze")  # the same values, elsewhere


def make_integer_io(path: Path) -> None:
    """Change a QDQ model's file: inputs that are quantised first, and outputs that are dequantised last.

    The scales and zero points stay in the model, in the DequantizeLinear after an input and the QuantizeLinear
    before an output. An input or output that is not quantised stays as it is.

    Raises:
        UsageError: the model has control flow.
    """
    model = onnx.load(str(path))
    if any(attr.HasField("g") or attr.graphs for node in model.graph.node for attr in node.attribute):
        raise UsageError(f"{path.name} has control flow: its inputs and outputs can't be made integers")
    for value in model.graph.input:
        _input(model.graph, value)
    for value in model.graph.output:
        _output(model.graph, value)
    onnx.save(model, str(path))


def _input(graph: onnx.GraphProto, value: onnx.ValueInfoProto) -> None:
    quantise = _only_reader(graph, value.name)
    first = quantise
    while quantise is not None and quantise.op_type in _MOVEMENT and len(quantise.output) == 1:
        quantise = _only_reader(graph, quantise.output[0])
    if first is None or quantise is None or quantise.op_type != "QuantizeLinear" or len(quantise.input) < 3:
        return
    value.type.tensor_type.elem_type = _kind(graph, quantise.input[2])
    if first is quantise:
        graph.node.remove(quantise)
        _rename(graph, quantise.output[0], value.name)
        return
    dequantised = f"{value.name}_dequantised"
    _rename(graph, value.name, dequantised)
    scale = helper.make_node("DequantizeLinear", [value.name, *quantise.input[1:3]], [dequantised], name=dequantised)
    graph.node.insert(0, scale)


def _output(graph: onnx.GraphProto, value: onnx.ValueInfoProto) -> None:
    made_by = {name: node for node in graph.node for name in node.output}
    last = made_by.get(value.name)
    is_read = any(value.name in node.input for node in graph.node)
    if last is None or is_read or last.op_type != "DequantizeLinear" or last.input[0] not in made_by:
        return
    value.type.tensor_type.elem_type = _kind(graph, last.input[2])
    graph.node.remove(last)
    _rename(graph, last.input[0], value.name)


def _only_reader(graph: onnx.GraphProto, name: str) -> onnx.NodeProto | None:
    readers = [node for node in graph.node if name in node.input]
    return readers[0] if len(readers) == 1 and all(name != value.name for value in graph.output) else None


def _kind(graph: onnx.GraphProto, name: str) -> int:
    return next(int(tensor.data_type) for tensor in graph.initializer if tensor.name == name)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new
