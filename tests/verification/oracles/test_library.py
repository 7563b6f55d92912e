"""onnxruntime's telemetry, which leaves a file in the temporary folder, is off."""

import os
import subprocess
import sys
from pathlib import Path

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper

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
