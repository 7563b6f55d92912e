"""A tiny "hello world" model: one number in, its sine out, with 16 hidden units."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN = 16


def write(path: Path) -> Path:
    """Write the float32 model; its hidden layer is drawn from a seed, its output layer is fitted."""
    random = np.random.default_rng(3)
    slope = random.choice([-1.0, 1.0], HIDDEN) * random.uniform(0.5, 1.5, HIDDEN)
    offset = -slope * random.uniform(0, 2 * np.pi, HIDDEN)
    x = np.linspace(0, 2 * np.pi, 400)
    features = np.maximum(x[:, None] * slope + offset, 0)
    fitted, *_ = np.linalg.lstsq(np.c_[features, np.ones(len(x))], np.sin(x), rcond=None)
    tensors = {
        "w0": slope.reshape(1, HIDDEN),
        "b0": offset,
        "w1": fitted[:HIDDEN].reshape(HIDDEN, 1),
        "b1": fitted[HIDDEN:],
    }
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], "hidden"),
            helper.make_node("Relu", ["h"], ["r"], "relu"),
            helper.make_node("Gemm", ["r", "w1", "b1"], ["y"], "output"),
        ],
        "sine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(path))
    return path
