"""Computing with constant weights takes little more memory than the weights."""

import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from single_pass import DSP

from mtool.compiler.frontend import from_proto
from mtool.compiler.passes.pipeline import run

WIDTH = 1500


def product(kind: type[np.integer], *, per_channel: bool) -> onnx.ModelProto:
    rng, ends = np.random.default_rng(5), np.iinfo(kind)
    point = np.full(WIDTH if per_channel else (), 128 if ends.min == 0 else 0, kind)
    constants = {
        "scale": np.float32(0.05), "point": np.int8(3), "w": rng.integers(ends.min, ends.max, (WIDTH, WIDTH), kind),
        "ws": np.full(point.shape, 0.001, np.float32), "wz": point,
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "point"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["f"], axis=1),
        helper.make_node("MatMul", ["d", "f"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "scale", "point"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, WIDTH))],
        [helper.make_tensor_value_info("y", TensorProto.INT8, (1, WIDTH))],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_weights_are_not_widened_whole(kind: type[np.integer], per_channel: bool) -> None:
    graph = from_proto(product(kind, per_channel=per_channel), "g")
    tracemalloc.start()
    try:
        run(graph, DSP)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * WIDTH**2, f"{peak / WIDTH**2:.1f} times the weights"
