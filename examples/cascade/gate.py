"""Fit the gate of the cascade: writes gate.onnx beside this file. Needs numpy and onnx, takes a second.

A linear classifier of the 64 pixels, by least squares on the first half of the images that the digits example has held
out; what the cascade is measured on is the second half. Weights and scores are int8.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
RIDGE = 30.0
HALF = 225


def main() -> None:
    """Fit, quantize and write."""
    with np.load(HERE.parent / "digits" / "test_data.npz") as data:
        pixels = data["x"].reshape(-1, 64)[:HALF].astype(np.float64)
        labels = data["y"][:HALF]
    rows = np.hstack([pixels, np.full((HALF, 1), 16.0)])
    wanted = np.where(labels[:, None] == np.arange(10), 1.0, -1.0)
    fitted = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(65), rows.T @ wanted)
    weights, bias = fitted[:64], 16.0 * fitted[64]
    scale = np.float32(np.abs(weights).max() / 127)
    scores = np.float32(np.abs(pixels @ weights + bias).max() / 120)
    constants = {
        "one": np.float32(1),
        "zero": np.int8(0),
        "weight_scale": scale,
        "weights": np.round(weights / scale).astype(np.int8),
        "bias": (np.round(bias / scale) * scale).astype(np.float32),
        "score_scale": scores,
        "flat": np.array([1, 64]),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["image", "one", "zero"], ["pixels"]),
        helper.make_node("Reshape", ["pixels", "flat"], ["row"]),
        helper.make_node("DequantizeLinear", ["weights", "weight_scale", "zero"], ["w"]),
        helper.make_node("Gemm", ["row", "w", "bias"], ["sums"]),
        helper.make_node("QuantizeLinear", ["sums", "score_scale", "zero"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "gate",
        [helper.make_tensor_value_info("image", TensorProto.INT8, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.INT8, [1, 10])],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, HERE / "gate.onnx")


if __name__ == "__main__":
    main()
