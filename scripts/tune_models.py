"""Generate scripts/bench_tune.py's additional models from seeds: a ResNet, a sequence, separable layers.

scripts/tune_models.py FOLDER
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A model that grows by one layer at a time; its weights follow from a seed."""

    def __init__(self, seed: int, shape: tuple[int, ...], *, quantized: bool) -> None:
        self.random, self.shape, self.quantized = np.random.default_rng(seed), shape, quantized
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.count = 0

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        """Add a node and return its output, on the grid of int8 where the model is quantized."""
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return self.grid(name) if self.quantized else name

    def grid(self, value: str) -> str:
        """Add a quantization of a value, and return what that stands for."""
        scale = self.constant(np.asarray(np.float32(0.05)))
        point = self.constant(np.asarray(np.int8(-3)))
        self.nodes.append(helper.make_node("QuantizeLinear", [value, scale, point], [f"{value}_q"]))
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{value}_q", scale, point], [f"{value}_g"]))
        return f"{value}_g"

    def constant(self, data: np.ndarray) -> str:
        """Add a constant."""
        name = f"c{len(self.weights)}"
        self.weights[name] = data
        return name

    def filters(self, *shape: int) -> str:
        """Add weights that keep the magnitude of what they are multiplied with."""
        depth = int(np.prod(shape[1:]))
        if not self.quantized:
            return self.constant(self.random.normal(0, depth**-0.5, shape).astype(np.float32))
        stored = self.constant(self.random.integers(-127, 128, shape).astype(np.int8))
        scale = self.constant((self.random.uniform(0.5, 1.5, shape[0]) / 73 / depth**0.5).astype(np.float32))
        points = self.constant(np.zeros(shape[0], np.int8))
        self.nodes.append(helper.make_node("DequantizeLinear", [stored, scale, points], [f"{stored}_f"], axis=0))
        return f"{stored}_f"

    def conv(self, value: str, inputs: int, outputs: int, kernel: int, *, stride: int = 1, group: int = 1) -> str:
        """Add a convolution with ReLU."""
        weights = self.filters(outputs, inputs // group, kernel, kernel)
        pads = [kernel // 2] * 4
        made = helper.make_node(
            "Conv", [value, weights], [f"n{self.count}"], strides=[stride, stride], pads=pads, group=group
        )
        self.nodes.append(made)
        return self.node("Relu", f"n{self.count}")

    def model(self, result: str) -> onnx.ModelProto:
        """Return the model."""
        graph = helper.make_graph(
            self.nodes,
            "made",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(data, name) for name, data in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def resnet() -> onnx.ModelProto:
    """Return residual blocks in int8 with projections: 24x20 pixels, 12 to 48 channels."""
    net = Net(11, (1, 3, 24, 20), quantized=True)
    value = net.conv(net.grid("x"), 3, 12, 3)
    for inputs, outputs in ((12, 12), (12, 24), (24, 48)):
        stride = 1 if inputs == outputs else 2
        inner = net.conv(net.conv(value, inputs, outputs, 3, stride=stride), outputs, outputs, 3)
        value = value if stride == 1 else net.conv(value, inputs, outputs, 1, stride=stride)
        value = net.node("Relu", net.node("Add", inner, value))
    pooled = net.node("Flatten", net.node("GlobalAveragePool", value))
    return net.model(net.node("Gemm", pooled, net.filters(7, 48), transB=1))


def sequence() -> onnx.ModelProto:
    """Return a GRU behind an LSTM, in float32, over 12 steps of 10 features."""
    net, steps, features, hidden = Net(12, (12, 1, 10), quantized=False), 12, 10, 20
    gates = net.filters(1, 4 * hidden, features), net.filters(1, 4 * hidden, hidden)
    lstm = net.node("LSTM", "x", *gates, hidden_size=hidden)
    value = net.node("Reshape", lstm, net.constant(np.asarray([steps, 1, hidden], np.int64)))
    net.nodes.append(
        helper.make_node(
            "GRU", [value, net.filters(1, 3 * 16, hidden), net.filters(1, 3 * 16, 16)], ["", "last"], hidden_size=16
        )
    )
    flat = net.node("Reshape", "last", net.constant(np.asarray([1, 16], np.int64)))
    return net.model(net.node("Softmax", net.node("Gemm", flat, net.filters(5, 16), transB=1)))


def separable() -> onnx.ModelProto:
    """Return depthwise and pointwise layers in float32: 20x28 pixels, 8 to 40 channels, one window of 5x5."""
    net = Net(13, (1, 1, 20, 28), quantized=False)
    value = net.conv("x", 1, 8, 3, stride=2)
    for inputs, outputs, kernel, stride in ((8, 16, 3, 1), (16, 40, 5, 2), (40, 40, 3, 1)):
        value = net.conv(value, inputs, inputs, kernel, stride=stride, group=inputs)
        value = net.conv(value, inputs, outputs, 1)
    pooled = net.node("Flatten", net.node("GlobalAveragePool", value))
    return net.model(net.node("Softmax", net.node("Gemm", pooled, net.filters(6, 40), transB=1)))


MADE: dict[str, Callable[[], onnx.ModelProto]] = {"resnet": resnet, "sequence": sequence, "separable": separable}


def write(folder: Path) -> dict[str, Path]:
    """Write the models into a folder and return their paths by their names."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.onnx" for name in MADE}
    for name, path in paths.items():
        path.write_bytes(MADE[name]().SerializeToString())
    return paths


if __name__ == "__main__":
    write(Path(sys.argv[1]))
