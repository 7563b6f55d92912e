"""Mutations of an ONNX model's structure: versions, inserted nodes, growing chains, control flow, functions."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

from tests.fuzzing.onnx_parts import ELEMS, NAMES, REALS, SMALL, a_graph, number, values


def rename_value(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Rename a value everywhere in its graph, which leaves the model valid if the new name is free."""
    graph = a_graph(model, rng)
    old, new = rng.choice(values(graph)), rng.choice(NAMES)
    for node in graph.node:
        for side in (node.input, node.output):
            for place, value in enumerate(side):
                if value == old:
                    side[place] = new
    for item in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        if item.name == old:
            item.name = new


def change_versions(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Change the opset, the version of the format, or a domain."""
    roll = rng.random()
    if roll < 0.7 and model.opset_import:
        rng.choice(model.opset_import).version = rng.choice((*range(1, 28), 0, -1, 99, 2**40))
    elif roll < 0.8:
        model.ir_version = rng.choice((0, 1, 3, 7, 13, 99, -1))
    elif roll < 0.9:
        model.opset_import.add(domain=rng.choice(("", "ai.onnx", "own", "com.microsoft")), version=number(rng))
    else:
        del model.opset_import[rng.randrange(len(model.opset_import)) :]


def quantize_value(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Put QuantizeLinear and DequantizeLinear on what a node reads."""
    graph = a_graph(model, rng)
    places = [(node, place) for node in graph.node for place, value in enumerate(node.input) if value]
    node, place = rng.choice(places)
    value, tag = node.input[place], f"q{rng.randrange(10**6)}"
    count = rng.choice((0, 0, 0, 0, 1, 2, 3, 4))
    scale = np.array([rng.choice((0.01, 0.05, 0.1, 1.0, *REALS)) for _ in range(count or 1)], np.float32)
    dtype = rng.choice((np.int8, np.uint8, np.int16, np.uint16, np.int32))
    zero = np.array([rng.choice((0, 0, 3, 100, 127)) for _ in range(count or 1)], dtype)
    shape = (count,) if count else ()
    attrs = {"axis": rng.choice((0, 1, -1, 2))} if rng.random() < 0.5 else {}
    if rng.random() < 0.1:
        attrs["block_size"] = rng.choice((1, 2, 3, -1, 2**40))
    graph.initializer.append(numpy_helper.from_array(scale.reshape(shape), f"{tag}s"))
    graph.initializer.append(numpy_helper.from_array(zero.reshape(shape), f"{tag}z"))
    nodes = [
        helper.make_node("QuantizeLinear", [value, f"{tag}s", f"{tag}z"], [f"{tag}q"], **attrs),
        helper.make_node("DequantizeLinear", [f"{tag}q", f"{tag}s", f"{tag}z"], [f"{tag}d"], **attrs),
    ]
    node.input[place] = f"{tag}d"
    at = next(number for number, other in enumerate(graph.node) if other is node or other == node)
    for made in reversed(nodes):
        graph.node.insert(at, made)


def insert_operator(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Put an operator of one input in front of a node."""
    graph = a_graph(model, rng)
    at = rng.randrange(len(graph.node))
    node = graph.node[at]
    place = rng.randrange(len(node.input))
    tag = f"i{rng.randrange(10**6)}"
    choices: Sequence[tuple[str, dict[str, object]]] = (
        ("Relu", {}), ("Transpose", {}), ("Softmax", {"axis": rng.choice((0, 1, -1))}), ("Identity", {}),
        ("Cast", {"to": rng.choice(ELEMS)}), ("Flatten", {"axis": rng.choice(SMALL)}), ("Neg", {}), ("Softplus", {}),
        ("Transpose", {"perm": rng.choice(([1, 0], [0, 2, 1], [0, 2, 3, 1], [0, 1]))}), ("Shape", {}), ("Abs", {}),
        ("GlobalAveragePool", {}), ("ReduceMax", {"keepdims": 0}), ("CumSum", {}), ("ArgMax", {"axis": 0}),
    )  # fmt: skip
    kind, attrs = rng.choice(choices)
    if kind == "Cast" and attrs["to"] == -1:
        attrs = {"to": 1}
    graph.node.insert(at, helper.make_node(kind, [node.input[place]], [tag], **attrs))
    graph.node[at + 1].input[place] = tag


def grow(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Append a chain that squares, repeats or copies a value, to make little describe much."""
    graph = model.graph
    value = rng.choice(values(graph))
    chain = rng.choice(("square", "concat", "relu", "tile", "expand", "range"))
    if chain in ("tile", "expand", "range"):
        sizes = np.array([rng.choice((2, 1000, 2**20, 2**31, 2**40)) for _ in range(rng.randint(1, 3))], np.int64)
        graph.initializer.append(numpy_helper.from_array(sizes, "grow"))
        op = {"tile": "Tile", "expand": "Expand", "range": "ConstantOfShape"}[chain]
        graph.node.append(helper.make_node(op, ["grow"] if chain == "range" else [value, "grow"], ["grown"]))
        value = "grown"
    else:
        for step in range(rng.choice((3, 12, 30, 200) if chain != "concat" else (3, 12, 30))):
            op = {"square": "Mul", "concat": "Concat", "relu": "Relu"}[chain]
            attrs = {"axis": 0} if chain == "concat" else {}
            inputs = [value] if chain == "relu" else [value, value]
            graph.node.append(helper.make_node(op, inputs, [f"grow{step}"], **attrs))
            value = f"grow{step}"
    graph.output.add().name = value


def wrap(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Put a node into the branches of an If, the body of a Loop or of a Scan, or into a function."""
    graph = a_graph(model, rng)
    at = rng.randrange(len(graph.node))
    node = NodeProto.FromString(graph.node[at].SerializeToString())
    tag = f"w{rng.randrange(10**6)}"
    outputs = [value for value in node.output if value]
    kind = rng.choice(("If", "Loop", "Scan", "function"))
    if kind == "function":
        inner = NodeProto.FromString(node.SerializeToString())
        if rng.random() < 0.2:
            inner.op_type, inner.domain = tag, "own"  # calls itself
        formal = list(dict.fromkeys(value for value in node.input if value))
        calls = [inner] * rng.choice((1, 1, 2))
        made = helper.make_function("own", tag, formal, outputs, calls, list(model.opset_import))
        model.functions.append(made)
        if not any(entry.domain == "own" for entry in model.opset_import):
            model.opset_import.add(domain="own", version=1)
        call = helper.make_node(tag, formal, outputs, domain="own")
    else:
        types = {value.name: value for value in (*graph.value_info, *graph.output)}
        results = [types.get(value) or onnx.ValueInfoProto(name=value) for value in outputs]
        constants = [numpy_helper.from_array(np.array(rng.choice((True, False))), f"{tag}c")]
        constants += [numpy_helper.from_array(np.array(rng.choice((0, 1, 2, 100, 10**6, -1)), np.int64), f"{tag}n")]
        graph.initializer.extend(constants)
        if kind == "If":
            attrs = {f"{b}_branch": helper.make_graph([node], b, [], results) for b in ("then", "else")}
            call = helper.make_node("If", [f"{tag}c"], outputs, **attrs)
        else:
            went = helper.make_node("Identity", [f"{tag}i"], [f"{tag}o"])
            put = [helper.make_tensor_value_info(f"{tag}t", 7, []), helper.make_tensor_value_info(f"{tag}i", 9, [])]
            done = [helper.make_tensor_value_info(f"{tag}o", 9, [])]
            body = helper.make_graph([node, went], "body", put, [*done, *results])
            call = helper.make_node(kind, [f"{tag}n", f"{tag}c"], outputs, body=body)
    graph.node[at].CopyFrom(call)


def flip_bytes(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Damage the file itself."""
    data = bytearray(model.SerializeToString())
    for _ in range(rng.choice((1, 1, 3, 10))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    (folder / "raw").write_bytes(bytes(data))
