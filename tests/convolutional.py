"""Random networks of convolutions and pooling, with residual sums and concatenated channels, as ONNX models."""

from typing import Any

import numpy as np
import onnx
from graphs import Array, model
from onnx import helper

F = np.float32


class Network:
    """A random network of convolutions and poolings, in float or behind QDQ, and its values as they come."""

    def __init__(self, seed: int, *, integer: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.integer = integer
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {"s": F(0.05), "z": np.int8(-7)}
        self.shapes: dict[str, tuple[int, ...]] = {}
        channels, size = int(self.rng.choice([1, 3, 4])), int(self.rng.integers(14, 30))
        width = int(self.rng.choice([8, 12, 16])) if channels != 1 else 16
        shape = 1, channels, size, width
        self.inputs = {"x": (np.int8 if integer else F, shape)}
        value = "x"
        if integer:
            value = self.node("DequantizeLinear", ["x", "s", "z"], shape)
        self.shapes[value] = shape
        self.values = [value]

    def pick(self, count: int) -> int:
        return int(self.rng.integers(count))

    def node(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        self.shapes[name] = shape
        return name

    def stored(self, value: str) -> str:
        """Quantize a value and take it back, as a quantizer puts it between two operators."""
        if not self.integer:
            return value
        shape = self.shapes[value]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [value, "s", "z"], shape), "s", "z"], shape)

    def windowed(self, size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
        return (size + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1

    def convolve(self, value: str) -> str:
        _, c, h, w = self.shapes[value]
        depthwise = c > 1 and self.rng.random() < 0.35
        kernel = [int(self.rng.choice([1, 3, 3, 5])), int(self.rng.choice([1, 3]))]
        stride = [int(self.rng.choice([1, 1, 2])), int(self.rng.choice([1, 1, 2]))]
        dilation = [int(self.rng.choice([1, 1, 2])), 1]
        reach = [(kernel[i] - 1) * dilation[i] for i in (0, 1)]
        pads = [self.pick(reach[0] + 1), self.pick(reach[1] + 1)] * 2 if self.rng.random() < 0.8 else [0, 0, 0, 0]
        size = [self.windowed((h, w)[i], kernel[i], stride[i], dilation[i], (pads[i], pads[i + 2])) for i in (0, 1)]
        if min(size) < 2:
            return value
        outputs = c if depthwise else int(self.rng.choice([4, 8, 16]))
        group = c if depthwise else 1
        weights = self.rng.integers(-100, 100, (outputs, c // group, *kernel))
        name, shape = f"w{len(self.nodes)}", (1, outputs, *size)
        if self.integer:
            scale = np.full(outputs, 6 / (np.abs(weights).sum(axis=(1, 2, 3)).max() + 1), F)
            self.constants |= {name: weights.astype(np.int8), f"{name}s": scale, f"{name}z": np.zeros(outputs, np.int8)}
            name = self.node("DequantizeLinear", [name, f"{name}s", f"{name}z"], weights.shape, axis=0)
        else:
            self.constants[name] = (weights / 60 / np.sqrt(weights[0].size)).astype(F)
        attrs = {"strides": stride, "dilations": dilation, "pads": pads, "group": group}
        made = self.node("Conv", [value, name], shape, **attrs)
        return self.stored(self.node("Relu", [made], shape) if self.rng.random() < 0.5 else made)

    def pool(self, value: str) -> str:
        _, c, h, w = self.shapes[value]
        kernel, pad = int(self.rng.choice([2, 3])), self.pick(2)
        kind = str(self.rng.choice(["MaxPool", "AveragePool"]))
        pads = [pad if kind == "MaxPool" else 0] * 4
        size = [self.windowed(n, kernel, 2, 1, (pads[0], pads[0])) for n in (h, w)]
        if min(size) < 2:
            return value
        attrs = {"kernel_shape": [kernel, kernel], "strides": [2, 2], "pads": pads}
        return self.stored(self.node(kind, [value], (1, c, *size), **attrs))

    def join(self, value: str) -> str:
        """Add a value of the same shape, or append its channels."""
        shape = self.shapes[value]
        others = [o for o in self.values if o != value and self.shapes[o][2:] == shape[2:]]
        same = [other for other in others if self.shapes[other] == shape]
        if same and self.rng.random() < 0.8:
            return self.stored(self.node("Add", [value, same[self.pick(len(same))]], shape))
        if not others:
            return value
        other = others[self.pick(len(others))]
        channels = shape[1] + self.shapes[other][1]
        return self.stored(self.node("Concat", [value, other], (1, channels, *shape[2:]), axis=1))

    def build(self) -> onnx.ModelProto:
        value = self.values[0]
        for _ in range(int(self.rng.integers(4, 8))):
            kind = self.rng.random()
            value = self.convolve(value) if kind < 0.6 else self.pool(value) if kind < 0.75 else self.join(value)
            self.values.append(value)
        shape = (1, self.shapes[value][1], 1, 1)
        value = self.node("GlobalAveragePool", [value], shape) if self.rng.random() < 0.5 else value
        end = self.node("QuantizeLinear", [value, "s", "z"], shape) if self.integer else self.node(
            "Identity", [value], shape
        )  # fmt: skip
        used = {name for node in self.nodes for name in node.input}
        constants = {name: data for name, data in self.constants.items() if name in used}
        return model(self.nodes, self.inputs, [end], constants)

    def feeds(self) -> dict[str, Array]:
        dtype, shape = self.inputs["x"]
        return {
            "x": self.rng.integers(-128, 128, shape).astype(dtype)
            if self.integer
            else self.rng.normal(size=shape).astype(F)
        }


def images(
    channels: int = 3, height: int = 24, width: int = 8, *, gated: bool = False, dtype: type = F
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return three convolutions, between the first two of which a gate may be multiplied, and inputs."""
    rng = np.random.default_rng(0)
    sizes = [(8, channels, 3, 3), (8, 8, 3, 3), (4, 8, 3, 3)]
    constants = {f"w{n}": rng.normal(size=size).astype(F) / 8 for n, size in enumerate(sizes)}
    nodes = [helper.make_node("Cast", ["x"], ["real"], to=1)] if dtype is not F else []
    nodes += [helper.make_node("Conv", ["real" if nodes else "x", "w0"], ["c0"], pads=[1, 1, 1, 1])]
    nodes += [helper.make_node("Mul", ["c0", "gate"], ["m"])] * gated
    nodes += [
        helper.make_node("Conv", ["m" if gated else "c0", "w1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Conv", ["c1", "w2"], ["c2"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c2"], ["y"]),
    ]
    shape = 1, channels, height, width
    feeds = {"x": rng.integers(0, 100, shape).astype(dtype) if dtype is not F else rng.normal(size=shape).astype(F)}
    inputs = {"x": (dtype, shape)}
    if gated:
        feeds["gate"] = rng.normal(size=(1, 8, 1, 1)).astype(F)
        inputs = {"gate": (F, (1, 8, 1, 1)), **inputs}
    return model(nodes, inputs, ["y"], constants), feeds
