"""Control flow, IF and WHILE, as ONNX's If and Loop; resource variables, which VAR_HANDLE looks up by name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mtool.base.frozen import frozen
from mtool.compiler.frontend.tflite.schema import Tensor
from mtool.compiler.frontend.tflite.translation import Key, Translation, Variable
from mtool.compiler.operators.problems import Unsupported

_CONDITION = Tensor("condition", np.dtype(bool), (), np.zeros(0), np.zeros(0), 0, None, "")


@frozen
class _Body:
    """A subgraph as an ONNX graph, and the variables that it shares with others: its last inputs and outputs."""

    graph: onnx.GraphProto
    variables: Mapping[Key, Variable]


def _body(t: Translation, option: str, prefix: str, operands: Sequence[Tensor], results: Sequence[Tensor]) -> _Body:
    """Return a subgraph as an ONNX graph whose names all begin with `prefix`.

    Args:
        t: the model around it.
        option: the operator's option with its number.
        prefix: the prefix of its names.
        operands: the tensors at its inputs.
        results: the tensors at its outputs.

    Raises:
        Unsupported: there is no such subgraph, or its inputs and outputs do not match.
    """
    number = t.op.option(option)
    network = t.subgraph(number, operands)
    graph = onnx.GraphProto()
    graph.CopyFrom(network.proto.graph)
    shared = len(network.crossing)
    for side, declared, tensors in (("inputs", graph.input, operands), ("outputs", graph.output, results)):
        if len(declared) - shared != len(tensors):
            raise Unsupported(f"its subgraph {number} has {len(declared) - shared} {side}; expected {len(tensors)}")
        for index, (value, tensor) in enumerate(zip(declared, tensors, strict=False)):
            dtype, shape = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type), _shape(value)
            if dtype != tensor.dtype or (side == "inputs" and shape != tensor.shape):
                mismatch = f"{dtype}{[*shape]} in its subgraph {number}, {tensor.dtype}{[*tensor.shape]} outside"
                raise Unsupported(f"{side.removesuffix('s')} {index} is {mismatch}")
    t.budget.spend("work", len(prefix) * len(graph.node), t.op.name)
    _rename(graph, prefix)
    variables = (replace(var, input=prefix + var.input, last=prefix + var.last) for var in network.crossing)
    return _Body(graph, {_key_of(var.key, number): var for var in variables})


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _key_of(key: Key, number: int) -> Key:
    """Return the key of a subgraph's variable, unique in the model; resource variables are shared by all subgraphs."""
    return key if isinstance(key, tuple) and key[0] in ("resource", "subgraph") else ("subgraph", number, key)


def _shared_variables(t: Translation, *bodies: _Body) -> dict[Key, tuple[Variable, str]]:
    """Return the variables that bodies share, with their values before the operator."""
    shared: dict[Key, tuple[Variable, str]] = {}
    for key, variable in (pair for body in bodies for pair in body.variables.items()):
        if variable.first is not None:
            t.variables.begin(key, variable.first)
        is_written = variable.is_written or (key in shared and shared[key][0].is_written)
        value = t.variables.read(key, variable.tensor, lambda: t.unique(f"{t.op.name}/variable"))
        shared[key] = replace(variable, is_written=is_written), value
    return shared


def _rename(graph: onnx.GraphProto, prefix: str) -> None:
    """Add a prefix to all names of a graph and of the graphs in it."""
    waiting = [graph]
    while waiting:
        graph = waiting.pop()
        for named in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            named.name = prefix + named.name
        for node in graph.node:
            node.input[:] = [name and prefix + name for name in node.input]
            node.output[:] = [name and prefix + name for name in node.output]
            waiting += [attr.g for attr in node.attribute if attr.type == onnx.AttributeProto.GRAPH]


def _copies(t: Translation, pairs: Iterable[tuple[str, str]]) -> list[onnx.NodeProto]:
    """Return the nodes that give values other names."""
    return [helper.make_node("Identity", [value], [name], name=t.op.name) for value, name in pairs]


def _fed(values: Sequence[str], graph: onnx.GraphProto) -> Iterable[tuple[str, str]]:
    """Return pairs of a value and the name of a graph's input; further inputs are variables."""
    return zip(values, (value.name for value in graph.input), strict=False)


def _read(body: _Body, values: Mapping[Key, str]) -> Iterable[tuple[str, str]]:
    """Return pairs of a value and the name of a subgraph's variable."""
    return [(values[key], variable.input) for key, variable in body.variables.items() if key in values]


def branch(t: Translation) -> None:
    """Append IF."""
    operands = [t.tensor(index) for index in range(1, len(t.op.inputs))]
    results = [t.result(index) for index in range(len(t.op.outputs))]
    values = [t.stored(index) for index in range(1, len(t.op.inputs))]
    options = (("then", "ThenSubgraphIndex"), ("else", "ElseSubgraphIndex"))
    sides = [_body(t, option, f"{t.op.name}/{name}/", operands, results) for name, option in options]
    for index, number in enumerate(t.op.outputs):
        shapes = {_shape(side.graph.output[index]) for side in sides}
        if t.tensors[number].open and len(shapes) == 1:
            t.tensors[number] = replace(t.tensors[number], shape=shapes.pop())
    variables = _shared_variables(t, *sides)
    graphs = []
    for (name, _), side in zip(options, sides, strict=True):
        before = {key: value for key, (_, value) in variables.items()}
        nodes = [*_copies(t, [*_read(side, before), *_fed(values, side.graph)]), *side.graph.node]
        outputs = [*side.graph.output][: len(results)]
        for key, (variable, value) in variables.items():
            inner = side.variables.get(key)
            if variable.is_written:
                last = inner.last if inner is not None else f"{t.op.name}/{name}/{value}"
                if inner is None:
                    nodes += _copies(t, [(value, last)])
                outputs.append(_info(last, variable.tensor))
        graphs.append(helper.make_graph(nodes, name, [], outputs, [*side.graph.initializer]))
    node = helper.make_node("If", [t.stored(0)], [], name=t.op.name, then_branch=graphs[0], else_branch=graphs[1])
    _put_control(t, node, variables)


def loop(t: Translation) -> None:
    """WHILE: the condition is computed before the first round, and at the end of each for the next."""
    operands = [t.tensor(index) for index in range(len(t.op.inputs))]
    for index, tensor in enumerate(operands):
        result = t.result(index)
        if result.dtype != tensor.dtype or not result.allows(tensor.shape):
            raise Unsupported(f"its output {index} and its input {index} differ in type or shape")
    condition = [_CONDITION]
    first, again = (
        _body(t, "CondSubgraphIndex", f"{t.op.name}/{name}/", operands, condition) for name in ("first", "cond")
    )
    if any(var.is_written for var in first.variables.values()):
        raise Unsupported("its condition writes variables")
    body = _body(t, "BodySubgraphIndex", f"{t.op.name}/body/", operands, operands)
    for index, (output, tensor) in enumerate(zip(t.op.outputs, operands, strict=True)):
        shape = _shape(body.graph.output[index])
        if t.tensors[output].open and shape != tensor.shape:
            raise Unsupported(f"its value {index} changes its shape in a round, from {[*tensor.shape]} to {[*shape]}")
        t.tensors[output] = replace(t.tensors[output], shape=tensor.shape)
    variables = _shared_variables(t, first, body)
    values = [t.stored(index) for index in range(len(operands))]
    before = {key: value for key, (_, value) in variables.items()}
    t.nodes += [*_copies(t, [*_read(first, before), *_fed(values, first.graph)]), *first.graph.node]
    t.constants |= {tensor.name: numpy_helper.to_array(tensor) for tensor in first.graph.initializer}
    number, going = (f"{t.op.name}/body/{name}" for name in ("round of WHILE", "condition of WHILE"))
    leading = [
        helper.make_tensor_value_info(number, TensorProto.INT64, []),
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
    ]
    results = [*body.graph.output][: len(operands)]
    inputs = [*body.graph.input][: len(operands)]
    last = {key: body.variables[key].last if var.is_written else value for key, (var, value) in variables.items()}
    unwritten = {key: value for key, (var, value) in variables.items() if not var.is_written}
    nodes = [*_copies(t, _read(body, unwritten)), *body.graph.node]
    nodes += [*_copies(t, [*_read(again, last), *_fed([r.name for r in results], again.graph)]), *again.graph.node]
    for var, value in variables.values():
        if var.is_written:
            inputs.append(_info(var.input, var.tensor))
            results.append(_info(var.last, var.tensor))
            values.append(value)
    graph = helper.make_graph(
        nodes, "body", [*leading, *inputs], [again.graph.output[0], *results],
        [*body.graph.initializer, *again.graph.initializer],
    )  # fmt: skip
    node = helper.make_node("Loop", ["", first.graph.output[0].name, *values], [], name=t.op.name, body=graph)
    _put_control(t, node, variables)


def _info(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(tensor.dtype), tensor.shape)


def _put_control(t: Translation, node: onnx.NodeProto, variables: Mapping[Key, tuple[Variable, str]]) -> None:
    """Append a node whose outputs are those of the current operator, and the variables that it writes."""
    outputs = [t.unique(f"{t.names[number]}/{node.op_type}") for number in t.op.outputs]
    node.output.extend(outputs)
    t.nodes.append(node)  # append does not copy it, and it still grows
    t.nodes += _copies(t, zip(outputs, [t.names[number] for number in t.op.outputs], strict=True))
    for key, (variable, value) in variables.items():
        if variable.is_written:
            last = t.unique(f"{value}/next")
            node.output.append(last)
            t.variables.write(key, variable.tensor, last)


def call_once(t: Translation) -> None:
    """CALL_ONCE: the subgraph assigns initial values."""
    graph = t.other(t.op.option("InitSubgraphIndex"))
    handles: dict[int, Key] = {}
    for operator in graph.operators:
        if operator.kind == "VAR_HANDLE" and operator.outputs:
            handles[operator.outputs[0]] = _key(operator.option("Container"), operator.option("SharedName"))
            continue
        if operator.kind != "ASSIGN_VARIABLE" or len(operator.inputs) != 2:
            raise Unsupported(f"{operator.name} in its subgraph does not assign a constant to a variable")
        handle, value = operator.inputs
        data = graph.tensors[value].data if value >= 0 else None
        if handle not in handles or data is None:
            raise Unsupported(f"{operator.name} in its subgraph does not assign a constant to a variable")
        t.variables.begin(handles[handle], data)


def _key(container: bytes | None, name: bytes | None) -> Key:
    return "resource", container or b"", name or b""


def var_handle(t: Translation) -> None:
    """Append VAR_HANDLE."""
    t.handles[t.op.outputs[0]] = _key(t.op.option("Container", b""), t.op.option("SharedName", b""))


def _variable(t: Translation) -> Key:
    if not t.has(0) or t.op.inputs[0] not in t.handles:
        raise Unsupported("its input 0 is not the output of a VAR_HANDLE")
    return t.handles[t.op.inputs[0]]


def read_variable(t: Translation) -> None:
    """Append READ_VARIABLE."""
    key = _variable(t)
    assert isinstance(key, tuple)
    stem = key[2].decode("utf-8", "replace") or "variable"
    t.put(t.variables.read(key, t.result(), lambda: t.unique(stem)))


def assign_variable(t: Translation) -> None:
    """Append ASSIGN_VARIABLE."""
    t.variables.write(_variable(t), t.tensor(1), t.stored(1))
