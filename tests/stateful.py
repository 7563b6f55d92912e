"""Models with states, as exporters write them: recurrent cells of one step, a keyword spotter over a stream."""

import random
from typing import Any

import numpy as np
import onnx
from graphs import HOST
from graphs import model as one_model
from onnx import helper, numpy_helper

from mtool.compiler import passes
from mtool.compiler.frontend import from_proto
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.ir import Graph

Array = np.ndarray[Any, Any]
F32 = np.float32
SIZE, HIDDEN, CLASSES = 8, 16, 4
GATES = {"LSTM": 4, "GRU": 3}


def _info(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    constants: dict[str, Array],
) -> onnx.ModelProto:
    initialisers = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    graph = helper.make_graph(nodes, "stateful", inputs, outputs, initialisers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def recurrent(kind: str, style: str, steps: int) -> tuple[onnx.ModelProto, list[tuple[str, str]]]:
    """Return a classifier with an LSTM or a GRU of `steps` steps, and the pairs of its states.

    Args:
        kind: "LSTM" or "GRU".
        style: "torch" (states as the operator has them, linear_before_reset) or "keras" (batch first, states of two
            dimensions).
        steps: 1 for a model that is called once a step; more to run a sequence at once.
    """
    chance = np.random.default_rng(0)
    gates = GATES[kind]
    shapes = {
        "w": (1, gates * HIDDEN, SIZE), "r": (1, gates * HIDDEN, HIDDEN), "b": (1, 2 * gates * HIDDEN),
        "head": (HIDDEN, CLASSES),
    }  # fmt: skip
    constants: dict[str, Array] = {
        name: (chance.standard_normal(shape) * 0.4).astype(F32) for name, shape in shapes.items()
    }
    names = ["h", "c"][: gates // 2]
    attrs: dict[str, Any] = {"hidden_size": HIDDEN}
    if kind == "GRU":
        attrs["linear_before_reset"] = 1
    constants |= {"axis0": np.array([0]), "axis1": np.array([1])}
    outs = ["all", *(f"{name}_last" for name in names)]
    if style == "torch":
        pairs = [(f"{name}n", f"{name}0") for name in names]
        cell = helper.make_node(kind, ["x", "w", "r", "b", "", *(f"{name}0" for name in names)], outs, "cell", **attrs)
        nodes = [
            cell,
            helper.make_node("Squeeze", ["all", "axis1"], ["rows"]),
            *(helper.make_node("Identity", [f"{name}_last"], [f"{name}n"]) for name in names),
        ]
        shape, state = (steps, 1), (1, 1, HIDDEN)
    else:
        pairs = [(f"state_{name}_out", f"state_{name}") for name in names]
        nodes = [
            helper.make_node("Transpose", ["x"], ["rows_first"], perm=[1, 0, 2]),
            *(helper.make_node("Unsqueeze", [f"state_{name}", "axis0"], [f"{name}_first"]) for name in names),
            helper.make_node(
                kind, ["rows_first", "w", "r", "b", "", *(f"{name}_first" for name in names)], outs, "cell", **attrs
            ),
            helper.make_node("Squeeze", ["all", "axis1"], ["unsorted"]),
            helper.make_node("Transpose", ["unsorted"], ["rows"], perm=[1, 0, 2]),
            *(helper.make_node("Squeeze", [f"{name}_last", "axis0"], [f"state_{name}_out"]) for name in names),
        ]
        shape, state = (1, steps), (1, HIDDEN)
    nodes.append(helper.make_node("MatMul", ["rows", "head"], ["y"]))
    inputs = [_info("x", *shape, SIZE), *(_info(value, *state) for _, value in pairs)]
    outputs = [_info("y", *shape, CLASSES), *(_info(output, *state) for output, _ in pairs)]
    return _model(nodes, inputs, outputs, constants), pairs


class _Stream:
    """A streaming keyword spotter under construction; quantized: QDQ with int8 weights and int32 biases."""

    def __init__(self, quantized: bool) -> None:
        self.quantized = quantized
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {"scale": F32(0.05), "zero": np.int8(3)}
        self.chance = np.random.default_rng(0)

    def node(self, op: str, inputs: list[str], output: str, **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], output, **attrs))
        return output

    def on_grid(self, value: str, output: str = "") -> str:
        if not self.quantized:
            return value
        steps = self.node("QuantizeLinear", [value, "scale", "zero"], f"{value}_q")
        return self.node("DequantizeLinear", [steps, "scale", "zero"], output or f"{value}_dq")

    def parameter(self, name: str, data: Array, scale: Array, dtype: type) -> str:
        steps = np.rint(data / scale.reshape(-1, *[1] * (data.ndim - 1)))
        self.constants |= {f"{name}_q": steps.astype(dtype), f"{name}_s": scale}
        return self.node("DequantizeLinear", [f"{name}_q", f"{name}_s"], name, axis=0)

    def parameters(self, name: str, shape: tuple[int, ...], fan: int) -> list[str]:
        weights = (self.chance.standard_normal(shape) / np.sqrt(fan) * 1.4).astype(F32)
        bias = (self.chance.standard_normal(shape[0]) * 0.1).astype(F32)
        if not self.quantized:
            self.constants |= {f"{name}_w": weights, f"{name}_b": bias}
            return [f"{name}_w", f"{name}_b"]
        scale = (np.abs(weights).reshape(shape[0], -1).max(1) / 127).astype(F32)
        made = self.parameter(f"{name}_w", weights, scale, np.int8)
        return [made, self.parameter(f"{name}_b", bias, scale * F32(0.05), np.int32)]

    def conv(self, value: str, name: str, shape: tuple[int, ...], **attrs: Any) -> str:
        parameters = self.parameters(name, shape, shape[1] * shape[2])
        made = self.node("Conv", [value, *parameters], name, kernel_shape=[shape[2]], **attrs)
        return self.on_grid(self.node("Relu", [made], f"{name}_r"))


def stream(
    *, quantized: bool, channels: int = 32, features: int = 40, dilations: tuple[int, ...] = (1, 2, 4)
) -> tuple[onnx.ModelProto, list[tuple[str, str]]]:
    """Return a keyword spotter that takes one frame a call: causal depthwise-separable blocks with a cache each."""
    net = _Stream(quantized)
    inputs, outputs, pairs = [_info("x", 1, features, 1)], [_info("y", 1, 12)], []
    value = net.conv(net.on_grid("x"), "stem", (channels, features, 1))
    for number, dilation in enumerate(dilations):
        length, cache, following = 2 * dilation, f"cache{number}", f"next{number}"
        pairs.append((following, cache))
        inputs.append(_info(cache, 1, channels, length))
        outputs.append(_info(following, 1, channels, length))
        net.constants |= {f"from{number}": np.array([-length]), "end": np.array([2**31 - 1]), "time": np.array([2])}
        window = net.on_grid(net.node("Concat", [net.on_grid(cache), value], f"window{number}", axis=2))
        cut = f"cut{number}" if quantized else following
        net.node("Slice", [window, f"from{number}", "end", "time"], cut)
        if quantized:
            net.on_grid(cut, following)
        value = net.conv(window, f"depth{number}", (channels, 1, 3), group=channels, dilations=[dilation])
        value = net.conv(value, f"point{number}", (channels, channels, 1))
    flat = net.node("Flatten", [value], "flat")
    net.node("Gemm", [flat, *net.parameters("head", (12, channels), channels)], "y", transB=1)
    return _model(net.nodes, inputs, outputs, net.constants), pairs


def vectors(seed: int) -> Graph:
    """Return a network of vectors with some states, that are read, written and moved in any order."""
    chance = random.Random(seed)
    kept = chance.randrange(1, 4)
    values = ["x", *(f"h{n}" for n in range(kept))]
    constants = {"w": np.linspace(-0.4, 0.4, 16, dtype=F32).reshape(4, 4), "one": np.array([1]), "three": np.array([3])}
    constants |= {"end": np.array([4]), "axis": np.array([1]), "square": np.array([2, 2]), "flat": np.array([1, 4])}
    if chance.random() < 0.5:
        constants["h0"] = F32([[1, -2, 3, 0.5]])
    nodes = []
    for number in range(chance.randrange(2, 10)):
        made, kind = f"v{number}", chance.choice(["Add", "Tanh", "MatMul", "MatMul", "Shift", "Turn", "Sum"])
        first, second = chance.choice(values), chance.choice(values)
        if kind == "Shift":
            nodes.append(helper.make_node("Slice", [first, "one", "end", "axis"], [f"{made}s"]))
            nodes.append(helper.make_node("Slice", [second, "three", "end", "axis"], [f"{made}t"]))
            nodes.append(helper.make_node("Concat", [f"{made}s", f"{made}t"], [made], axis=1))
        elif kind == "Turn":
            nodes.append(helper.make_node("Reshape", [first, "square"], [f"{made}r"]))
            nodes.append(helper.make_node("Transpose", [f"{made}r"], [f"{made}t"], perm=[1, 0]))
            nodes.append(helper.make_node("Reshape", [f"{made}t", "flat"], [made]))
        elif kind == "Tanh":
            nodes.append(helper.make_node(kind, [first], [made]))
        else:
            nodes.append(helper.make_node(kind, [first, "w" if kind == "MatMul" else second], [made]))
        values.append(made)
    late = [value for value in values if value.startswith("v")]
    nodes.append(helper.make_node("Sum", chance.sample(values, chance.randrange(1, len(values))), ["y"]))
    for n in range(kept):
        source = chance.choice(values if chance.random() < 0.3 else late)
        nodes.append(helper.make_node(chance.choice(["Tanh", "Identity", "Neg"]), [source], [f"o{n}"]))
    inputs = {value: (F32, (1, 4)) for value in values if not value.startswith("v")}
    proto = one_model(nodes, inputs, ["y", *(f"o{n}" for n in range(kept))], constants)
    options = ModelOptions(states=tuple((f"o{n}", f"h{n}") for n in range(kept)))
    return passes.run(from_proto(proto, "test", options), HOST)
