"""A small quantized network that calls every int8 kernel."""

import numpy as np
import onnx
from graphs import model
from onnx import helper

F = np.float32


def network(seed: int = 0) -> onnx.ModelProto:
    """Return a convolution, a depthwise one, a residual sum, a transposition, a pool, a dense layer, a softmax."""
    rng = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    constants = {"s": F(0.06), "z": np.int8(-5), "p": F(1 / 256), "q": np.int8(-128)}

    def op(kind: str, *inputs: str, **attrs: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"v{len(nodes)}"], **attrs))
        return f"v{len(nodes) - 1}"

    def stored(value: str, scale: str = "s", zero: str = "z") -> str:
        return op("DequantizeLinear", op("QuantizeLinear", value, scale, zero), scale, zero)

    def weights(*shape: int) -> str:
        name = f"w{len(constants)}"
        data = rng.integers(-127, 128, shape).astype(np.int8)
        scale = (8 / np.abs(data.astype(F)).reshape(len(data), -1).sum(axis=1)).astype(F)
        constants.update({name: data, f"{name}s": scale, f"{name}z": np.zeros(len(data), np.int8)})
        return op("DequantizeLinear", name, f"{name}s", f"{name}z", axis=0)

    x = op("DequantizeLinear", "x", "s", "z")
    first = stored(op("Relu", op("Conv", x, weights(8, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 1])))
    deep = stored(op("Conv", first, weights(8, 1, 3, 3), pads=[1, 1, 1, 1], group=8))
    added = stored(op("Add", stored(op("Conv", deep, weights(8, 8, 1, 1))), first))
    pooled = stored(op("MaxPool", added, kernel_shape=[2, 2], strides=[2, 2]))
    turned = op("Transpose", pooled, perm=[0, 1, 3, 2])
    mean = stored(op("AveragePool", turned, kernel_shape=[3, 2], strides=[3, 2]))
    flat = op("Flatten", mean, axis=1)
    rows = stored(op("Gemm", flat, weights(10, 8), transB=1))
    end = op("QuantizeLinear", op("Softmax", rows, axis=1), "p", "q")
    return model(nodes, {"x": (np.int8, (1, 3, 9, 6))}, [end, added], constants)
