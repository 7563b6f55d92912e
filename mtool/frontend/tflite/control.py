"""Control flow: IF and WHILE become ONNX's If and Loop, whose bodies are the subgraphs that they name."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mtool.frontend.problems import Unsupported
from mtool.frontend.tflite.description import Tensor
from mtool.frontend.tflite.translation import Translation

_CONDITION = Tensor("condition", np.dtype(bool), (), np.zeros(0), np.zeros(0), 0, None, "")


def _body(
    t: Translation, option: str, prefix: str, operands: Sequence[Tensor], wanted: Sequence[Tensor]
) -> onnx.GraphProto:
    """Return a subgraph as an ONNX graph whose names all begin with `prefix`.

    Args:
        t: the model around it.
        option: what names it in the operator at work.
        prefix: of its names.
        operands: what goes in.
        wanted: what comes out.

    Raises:
        Unsupported: there is none of that number, its inputs and outputs are others, or it keeps variables.
    """
    number = t.op.option(option)
    network = t.subgraph(number)
    if network.states:
        raise Unsupported(f"its subgraph {number} keeps variables")
    graph = onnx.GraphProto()
    graph.CopyFrom(network.proto.graph)
    for what, declared, tensors in (("inputs", graph.input, operands), ("outputs", graph.output, wanted)):
        if len(declared) != len(tensors):
            raise Unsupported(f"its subgraph {number} has {len(declared)} {what} instead of {len(tensors)}")
        for index, (value, tensor) in enumerate(zip(declared, tensors, strict=True)):
            kind = value.type.tensor_type
            dtype, shape = helper.tensor_dtype_to_np_dtype(kind.elem_type), [dim.dim_value for dim in kind.shape.dim]
            if dtype != tensor.dtype or (what == "inputs" and shape != [*tensor.shape]):
                found = f"{dtype}{shape} in its subgraph {number}, {tensor.dtype}{[*tensor.shape]} outside"
                raise Unsupported(f"number {index} of its {what} is {found}")
    t.budget.spend("work", len(prefix) * len(graph.node), t.op.name)
    _rename(graph, prefix)
    return graph


def _rename(graph: onnx.GraphProto, prefix: str) -> None:
    """Put a prefix in front of all names of a graph, and of those in it."""
    waiting = [graph]
    while waiting:
        one = waiting.pop()
        for named in (*one.input, *one.output, *one.initializer, *one.value_info):
            named.name = prefix + named.name
        for node in one.node:
            node.input[:] = [name and prefix + name for name in node.input]
            node.output[:] = [name and prefix + name for name in node.output]
            waiting += [attr.g for attr in node.attribute if attr.type == onnx.AttributeProto.GRAPH]


def _copies(t: Translation, values: Sequence[str], names: Sequence[onnx.ValueInfoProto]) -> list[onnx.NodeProto]:
    """Return the nodes that give values the names of a graph's inputs."""
    pairs = zip(values, names, strict=True)
    return [helper.make_node("Identity", [value], [other.name], name=t.op.name) for value, other in pairs]


def _if(t: Translation) -> None:
    operands = [t.tensor(index) for index in range(1, len(t.op.inputs))]
    wanted = [t.result(index) for index in range(len(t.op.outputs))]
    values = [t.stored(index) for index in range(1, len(t.op.inputs))]
    bodies = []
    for name, option in (("then", "ThenSubgraphIndex"), ("else", "ElseSubgraphIndex")):
        graph = _body(t, option, f"{t.op.name}/{name}/", operands, wanted)
        nodes = [*_copies(t, values, graph.input), *graph.node]
        bodies.append(helper.make_graph(nodes, name, [], [*graph.output], [*graph.initializer]))
    _put(t, helper.make_node("If", [t.stored(0)], [], name=t.op.name, then_branch=bodies[0], else_branch=bodies[1]))


def _while(t: Translation) -> None:
    """WHILE: the condition is computed before the first round, and at the end of each for the next."""
    operands = [t.tensor(index) for index in range(len(t.op.inputs))]
    for index, tensor in enumerate(operands):
        result = t.result(index)
        if (result.dtype, result.shape) != (tensor.dtype, tensor.shape):
            raise Unsupported(f"its output {index} has another type or shape than its input {index}")
    condition = [_CONDITION]
    first, again = (
        _body(t, "CondSubgraphIndex", f"{t.op.name}/{name}/", operands, condition) for name in ("first", "cond")
    )
    body = _body(t, "BodySubgraphIndex", f"{t.op.name}/body/", operands, operands)
    t.nodes += [*_copies(t, [t.stored(index) for index in range(len(operands))], first.input), *first.node]
    t.constants |= {tensor.name: numpy_helper.to_array(tensor) for tensor in first.initializer}
    number, going = (f"{t.op.name}/body/{name}" for name in ("round of WHILE", "condition of WHILE"))
    leading = [
        helper.make_tensor_value_info(number, TensorProto.INT64, []),
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
    ]
    nodes = [*body.node, *_copies(t, [value.name for value in body.output], again.input), *again.node]
    graph = helper.make_graph(
        nodes, "body", [*leading, *body.input], [*again.output, *body.output], [*body.initializer, *again.initializer]
    )
    values = [t.stored(index) for index in range(len(operands))]
    _put(t, helper.make_node("Loop", ["", first.output[0].name, *values], [], name=t.op.name, body=graph))


def _put(t: Translation, node: onnx.NodeProto) -> None:
    """Append a node whose outputs are those of the operator at work."""
    outputs = [t.unique(f"{t.names[number]}/{node.op_type}") for number in t.op.outputs]
    node.output.extend(outputs)
    t.nodes.append(node)
    for index, output in enumerate(outputs):
        t.nodes.append(helper.make_node("Identity", [output], [t.names[t.op.outputs[index]]], name=t.op.name))


TRANSLATIONS = {"IF": _if, "WHILE": _while}
