"""The standalone program of a quantized model, fed as its comments and macros describe, against `mtool.run`."""

import re
import subprocess
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper

import mtool
from mtool.device.build import build

F, I8 = np.float32, np.int8
X_SCALE, X_ZERO, Y_SCALE, Y_ZERO = 0.05, -7, 0.125, 3

FILL = """
    static const float sensor[NET_X_COUNT] = {%s};
    int8_t *const x = (int8_t *)(uintptr_t)net_arena_inputs.x;
    for (int32_t i = 0; i < NET_X_COUNT; ++i) {
        float steps = nearbyintf(sensor[i] / NET_X_SCALE) + (float)NET_X_ZERO_POINT;
        x[i] = (int8_t)(steps < -128.0f ? -128.0f : steps > 127.0f ? 127.0f : steps);
    }
"""
SHOW = """
    const int32_t status = net_run(&net_arena_inputs, &net_arena_outputs);
    for (int32_t i = 0; i < NET_Y_COUNT; ++i) {
        const int8_t *const y = (const int8_t *)net_arena_outputs.y;
        printf("%d %.9g\\n", y[i], (double)((float)(y[i] - NET_Y_ZERO_POINT) * NET_Y_SCALE));
    }
    return (int)status;
"""


def network() -> onnx.ModelProto:
    """A product whose input and output are transposed and reshaped as integers, so that their grids stand behind."""
    weights = np.random.default_rng(2).integers(-100, 100, (6, 4)).astype(I8)
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["turned", "rows"], ["flat"]),
        helper.make_node("DequantizeLinear", ["flat", "xs", "xz"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["weights"]),
        helper.make_node("MatMul", ["real", "weights"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "ys", "yz"], ["steps"]),
        helper.make_node("Reshape", ["steps", "square"], ["squared"]),
        helper.make_node("Transpose", ["squared"], ["y"], perm=[0, 2, 1]),
    ]
    constants: dict[str, Any] = {"rows": np.array([1, 6]), "square": np.array([1, 2, 2]), "w": weights}
    constants |= {"xs": F(X_SCALE), "xz": I8(X_ZERO), "ws": F(0.01), "wz": I8(0), "ys": F(Y_SCALE), "yz": I8(Y_ZERO)}
    return graphs.model(nodes, {"x": (I8, (1, 2, 3))}, ["y"], constants)


def test_its_macros_are_the_grid_of_what_lies_behind_a_reshape_and_a_transpose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(network(), "net.onnx")
    real = np.array([[-1.0, 0.26, 6.5], [0.0, 1.75, -9.0]], F)  # the last saturates
    steps = np.clip(np.rint(real / F(X_SCALE)) + X_ZERO, -128, 127).astype(I8).reshape(1, 2, 3)
    deployment = mtool.Deployment(tmp_path / "project")
    (expected,) = mtool.run("net.onnx", board="host", inputs=[{"x": steps}], deployment=deployment).outputs

    source = tmp_path / "project" / "src" / "standalone.c"
    text = source.read_text()
    assert f"value = (q - {X_ZERO}) * {F(X_SCALE)!s}" in re.sub(r"(0\.05)\d*", r"\1", text)
    numbers = ", ".join(f"{number}f" for number in real.reshape(-1).tolist())
    text = re.sub(r"\n    return \(int\)net_run\(.*?\);\n", lambda _: SHOW, text)
    text = re.sub(r"(int main\(void\)\n\{\n)", lambda start: start[1] + FILL % numbers, text)
    source.write_text("#include <math.h>\n#include <stdio.h>\n" + text)
    built = build(tmp_path / "project", kinds=["standalone"])
    printed = subprocess.run([built.firmware["standalone"]], check=True, capture_output=True, text=True).stdout
    rows = np.array([line.split() for line in printed.splitlines()], float)
    np.testing.assert_array_equal(rows[:, 0], expected["y"].reshape(-1))
    np.testing.assert_allclose(rows[:, 1], (expected["y"].reshape(-1) - np.float64(Y_ZERO)) * Y_SCALE, rtol=1e-6)
    assert np.unique(rows[:, 0]).size > 2
