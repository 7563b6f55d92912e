"""Write the models of scripts/bench_compile.py to a folder: 0.onnx, 1.onnx, ...

scripts/bench_models.py FOLDER
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Weights = dict[str, np.ndarray]


def chain(count: int) -> onnx.ModelProto:
    """Return convolutions in a row."""
    rng = np.random.default_rng(0)
    weights = {f"w{n}": (rng.normal(size=(4, 4, 3, 3)) / 6).astype(np.float32) for n in range(count)}
    nodes = [helper.make_node("Conv", [f"v{n}", f"w{n}"], [f"v{n + 1}"], pads=[1] * 4) for n in range(count)]
    return model(nodes, "v0", (1, 4, 8, 8), f"v{count}", weights)


def branches(count: int) -> onnx.ModelProto:
    """Return convolutions and activations side by side, which one operator joins."""
    rng = np.random.default_rng(0)
    weights = {f"w{n}": (rng.normal(size=(4, 4, 3, 3)) / 6).astype(np.float32) for n in range(count)}
    nodes = []
    for n in range(count):
        nodes.append(helper.make_node("Conv", ["x", f"w{n}"], [f"v{n}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"v{n}"], [f"r{n}"]))
    nodes.append(helper.make_node("Concat", [f"r{n}" for n in range(count)], ["y"], axis=1))
    return model(nodes, "x", (1, 4, 8, 8), "y", weights)


def pairs(count: int) -> onnx.ModelProto:
    """Return convolutions and activations in a row."""
    rng = np.random.default_rng(0)
    weights = {f"w{n}": (rng.normal(size=(4, 4, 1, 1)) / 2).astype(np.float32) for n in range(count // 2)}
    nodes = []
    for n in range(count // 2):
        nodes.append(helper.make_node("Conv", [f"r{n}", f"w{n}"], [f"v{n}"]))
        nodes.append(helper.make_node("Relu", [f"v{n}"], [f"r{n + 1}"]))
    return model(nodes, "r0", (1, 4, 4, 4), f"r{count // 2}", weights)


def products(megabytes: int) -> onnx.ModelProto:
    """Return eight products whose weights have a total size in megabytes."""
    rng = np.random.default_rng(0)
    width = int((megabytes * 1_000_000 / 4 / 8) ** 0.5)
    weights = {f"w{n}": rng.normal(size=(width, width)).astype(np.float32) / width for n in range(8)}
    nodes = [helper.make_node("MatMul", [f"v{n}", f"w{n}"], [f"v{n + 1}"]) for n in range(8)]
    return model(nodes, "v0", (1, width), "v8", weights)


def integer_products(megabytes: int) -> onnx.ModelProto:
    """Return eight integer products whose weights, with per-channel scales, have a total size in megabytes."""
    rng = np.random.default_rng(0)
    width = int((megabytes * 1_000_000 / 8) ** 0.5)
    point, spread = np.zeros((), np.int8), np.float32(0.05)
    weights: Weights = {"scale": spread, "point": point, "points": np.zeros(width, np.int8)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["q0"])]
    for n in range(8):
        weights[f"w{n}"] = rng.integers(-127, 128, (width, width), np.int8)
        weights[f"s{n}"] = (rng.uniform(0.5, 1.5, width) / 100 / width**0.5).astype(np.float32)
        nodes += [
            helper.make_node("DequantizeLinear", [f"q{n}", "scale", "point"], [f"d{n}"]),
            helper.make_node("DequantizeLinear", [f"w{n}", f"s{n}", "points"], [f"f{n}"], axis=1),
            helper.make_node("MatMul", [f"d{n}", f"f{n}"], [f"v{n}"]),
            helper.make_node("QuantizeLinear", [f"v{n}", "scale", "point"], [f"q{n + 1}"]),
        ]
    nodes.append(helper.make_node("DequantizeLinear", ["q8", "scale", "point"], ["y"]))
    return model(nodes, "x", (1, width), "y", weights)


def integer_convolution(megabytes: int) -> onnx.ModelProto:
    """Return one 3x3 convolution of integers, with a scale for each channel: all the weights are one constant."""
    rng = np.random.default_rng(0)
    width = int((megabytes * 1_000_000 / 9) ** 0.5)
    weights: Weights = {
        "scale": np.asarray(np.float32(0.05)),
        "point": np.zeros((), np.int8),
        "points": np.zeros(width, np.int8),
        "w": rng.integers(-127, 128, (width, width, 3, 3), np.int8),
        "s": (rng.uniform(0.5, 1.5, width) / 300 / width**0.5).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["q0"]),
        helper.make_node("DequantizeLinear", ["q0", "scale", "point"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "points"], ["f"], axis=0),
        helper.make_node("Conv", ["d", "f"], ["v"], pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["v", "scale", "point"], ["q1"]),
        helper.make_node("DequantizeLinear", ["q1", "scale", "point"], ["y"]),
    ]
    return model(nodes, "x", (1, width, 4, 4), "y", weights)


def model(
    nodes: list[onnx.NodeProto], source: str, shape: tuple[int, ...], result: str, weights: Weights
) -> onnx.ModelProto:
    """Return a float model of one input and one output."""
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(source, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


MADE: tuple[Callable[[], onnx.ModelProto], ...] = (
    lambda: chain(1000),
    lambda: branches(200),
    lambda: pairs(10_000),
    lambda: products(100),
    lambda: integer_products(100),
    lambda: integer_convolution(100),
)


if __name__ == "__main__":
    for number, make in enumerate(MADE):
        Path(sys.argv[1], f"{number}.onnx").write_bytes(make().SerializeToString())
