"""A network of pointwise convolutions, for tests of tasks."""

from pathlib import Path

import numpy as np
import onnx
from graphs import model
from onnx import helper


def network(path: Path, *, channels: int = 8, scale: float = 0.02) -> Path:
    """Write a network of four 1x1 convolutions in int8, the second and the third of which differ in weights alone."""
    random = np.random.default_rng(0)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x0"])]
    constants = {"s": np.float32(scale), "z": np.int8(0), "ws": np.float32(0.01)}
    sizes = (4, *[channels] * 4)
    for number in range(4):
        shape = (sizes[number + 1], sizes[number], 1, 1)
        constants[f"w{number}"] = random.integers(-127, 127, shape).astype(np.int8)
        nodes += [
            helper.make_node("DequantizeLinear", [f"x{number}", "s", "z"], [f"f{number}"]),
            helper.make_node("DequantizeLinear", [f"w{number}", "ws", "z"], [f"g{number}"]),
            helper.make_node("Conv", [f"f{number}", f"g{number}"], [f"c{number}"], name=f"conv{number}"),
            helper.make_node("QuantizeLinear", [f"c{number}", "s", "z"], [f"x{number + 1}"]),
        ]
    nodes.append(helper.make_node("DequantizeLinear", ["x4", "s", "z"], ["y"]))
    proto = model(nodes, {"x": (np.float32, (1, 4, 6, 6))}, ["y"], {k: np.asarray(v) for k, v in constants.items()})
    onnx.save(proto, path)
    return path
