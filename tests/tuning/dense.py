"""A network of one int8 dense layer with about two dozen candidates on a Cortex-M4: little to compile."""

from pathlib import Path

import numpy as np
import onnx
from graphs import model
from onnx import helper


def network(path: Path) -> Path:
    """Write it."""
    weights = np.random.default_rng(0).integers(-127, 127, (16, 16)).astype(np.int8)
    constants = {"s": np.float32(0.02), "z": np.int8(0), "ws": np.float32(0.01), "w": weights}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "z"], ["wf"]),
        helper.make_node("MatMul", ["xf", "wf"], ["m"], name="dense"),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "s", "z"], ["y"]),
    ]
    proto = model(nodes, {"x": (np.float32, (1, 16))}, ["y"], {k: np.asarray(v) for k, v in constants.items()})
    onnx.save(proto, path)
    return path
