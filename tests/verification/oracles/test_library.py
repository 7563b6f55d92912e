"""onnxruntime as the oracle: its telemetry, which leaves a file in the temporary folder, is off; few bits are bytes."""

import os
import subprocess
import sys
from pathlib import Path

import graphs
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mtool.verification.oracles import ort

pytest.importorskip("onnxruntime")


COMMANDS = ["check model.onnx", "verify model.onnx --board host", "quantize model.onnx --data x.npy"]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_left_in_the_temporary_folder(command: str, tmp_path: Path) -> None:
    weights = {"w": np.eye(16, 4, dtype=np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="dense")
    onnx.save(graphs.model([node], {"x": (np.float32, (1, 16))}, ["y"], weights), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((10, 1, 16), dtype=np.float32))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run(
        [sys.executable, "-m", "mtool", *command.split()],
        cwd=tmp_path, env={**environment, "TMPDIR": str(temporary)}, check=True, capture_output=True,
    )  # fmt: skip
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(("kind", "expected"), [("UINT4", [0, 5, 15]), ("INT4", [-8, 2, 7])])
def test_outputs_of_4_bits_are_bytes(kind: str, expected: list[int]) -> None:
    """NumPy has no type of 4 bits: onnxruntime's own conversion fails."""
    proto = graphs.model(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])],
        {"x": (np.float32, (3,))}, ["y"], {"s": np.float32(1)}, opset=21,
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.DataType.Value(kind)
    proto.graph.initializer.append(helper.make_tensor("z", TensorProto.DataType.Value(kind), [], [0]))
    x = np.float32([-20, expected[1], 20])
    (y,) = ort.opened(proto.SerializeToString())({"x": x}).values()
    assert y.tolist() == expected


def test_inputs_of_4_bits_are_given_as_bytes() -> None:
    proto = graphs.model(
        [helper.make_node("DequantizeLinear", ["x", "s"], ["y"])],
        {"x": (np.int8, (3,))}, ["y"], {"s": np.float32(0.5)}, opset=21,
    )  # fmt: skip
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT4
    (y,) = ort.opened(proto.SerializeToString())({"x": np.int8([-8, 0, 7])}).values()
    assert y.tolist() == [-4, 0, 3.5]
