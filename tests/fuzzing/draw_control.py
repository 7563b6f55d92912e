"""Control flow around a random network: chosen at run time instead of constants, or repeated."""

import random
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHARE = 0.12  # of the networks
Values = Sequence[onnx.ValueInfoProto]


def controlled(rng: random.Random, model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which a network is a branch of an If, or the body of a Loop; or the model as it is."""
    if rng.random() >= SHARE:
        return model
    graph = model.graph
    nodes, outputs = (_branch if rng.random() < 0.5 else _loop)(rng, graph)
    constants = [*graph.initializer, numpy_helper.from_array(np.float32(0), "nothing")]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.graph.CopyFrom(helper.make_graph(nodes, "network", [*graph.input], outputs, constants))
    return made


def _branch(rng: random.Random, graph: onnx.GraphProto) -> tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto]]:
    """Choose by the sum of an input between the network and constants."""
    constants = []
    for value in graph.output:
        kind = value.type.tensor_type
        data = np.full(_shape(value), rng.randrange(2), helper.tensor_dtype_to_np_dtype(kind.elem_type))
        constants.append(helper.make_node("Constant", [], [f"no_{value.name}"], value=numpy_helper.from_array(data)))
    then_branch = helper.make_graph([*graph.node], "then", [], [*graph.output])
    else_branch = helper.make_graph(constants, "else", [], _named(graph.output, "no"))
    outputs = _named(graph.output, "chosen")
    names = [value.name for value in outputs]
    floats = [v.name for v in graph.input if v.type.tensor_type.elem_type == TensorProto.FLOAT]
    nodes = [
        helper.make_node("ReduceSum", [rng.choice(floats)], ["sum_of_input"], keepdims=0),
        helper.make_node(rng.choice(("Greater", "Less")), ["sum_of_input", "nothing"], ["choose"]),
        helper.make_node("If", ["choose"], names, then_branch=then_branch, else_branch=else_branch),
    ]
    return nodes, outputs


def _loop(rng: random.Random, graph: onnx.GraphProto) -> tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto]]:
    """Repeat the network, and keep what each round gives."""
    rounds = rng.choice((2, 30, 70))
    going = helper.make_tensor_value_info("going", TensorProto.BOOL, [])
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["goes_on"]), *graph.node],
        "body",
        [helper.make_tensor_value_info("round", TensorProto.INT64, []), going],
        [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []), *graph.output],
    )
    outputs = [
        helper.make_tensor_value_info(f"rows_{value.name}", value.type.tensor_type.elem_type, [rounds, *_shape(value)])
        for value in graph.output
    ]
    constant = helper.make_node("Constant", [], ["rounds"], value_int=rounds)
    return [constant, helper.make_node("Loop", ["rounds", ""], [value.name for value in outputs], body=body)], outputs


def _shape(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _named(values: Values, prefix: str) -> list[onnx.ValueInfoProto]:
    """Return declarations of values of the same types with other names."""
    return [
        helper.make_tensor_value_info(f"{prefix}_{value.name}", value.type.tensor_type.elem_type, _shape(value))
        for value in values
    ]
