"""GCC has no warnings at any optimization level: its knowledge of loop counters differs between them."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from golden_model import small_model
from graphs import FLAGS, compiled, model
from onnx import helper

from mtool.base import resources
from mtool.compiler import codegen
from mtool.compiler.kernels.target import Target

M4 = Target("cortex-m4", frozenset({"fpu", "dsp"}))
M55 = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))
LEVELS = ("-O0", "-Og", "-O1", "-O2", "-O3", "-Os")


def pools(channels: int) -> onnx.ModelProto:
    """Return a quantized maximum and mean over windows of some channels; SIMD takes four at a time."""

    def step(op: str, value: str, name: str, **attrs: object) -> list[onnx.NodeProto]:
        return [
            helper.make_node("DequantizeLinear", [value, "s", "z"], [f"{name}/x"]),
            helper.make_node(op, [f"{name}/x"], [f"{name}/y"], **attrs),
            helper.make_node("QuantizeLinear", [f"{name}/y", "s", "z"], [name]),
        ]

    nodes = [*step("MaxPool", "x", "m", kernel_shape=[2, 2], strides=[2, 2]), *step("GlobalAveragePool", "m", "y")]
    constants = {"s": np.array(0.1, np.float32), "z": np.array(-3, np.int8)}
    return model(nodes, {"x": (np.int8, (1, channels, 16, 16))}, ["y"], constants)


MODELS = {"small": small_model, "pools64": lambda: pools(64), "pools10": lambda: pools(10)}


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", [M4, M55], ids=lambda target: target.cpu)
@pytest.mark.product(2)
def test_gcc_warns_of_nothing(name: str, target: Target, tmp_path: Path) -> None:
    files, _ = codegen.generate(compiled(MODELS[name](), target, "net"), "net.onnx", "ab" * 32)  # type: ignore[arg-type]
    for each in files:
        (tmp_path / each).write_bytes(files[each])
    include = resources.path("crt") / "include"
    for level in LEVELS:
        argv = ["arm-none-eabi-gcc", f"-mcpu={target.cpu}", "-mfloat-abi=hard", "-mfpu=auto", "-mthumb", *FLAGS, level]
        argv += [f"-I{include}", "-c", "net.c", "-o", "net.o"]
        done = subprocess.run(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
        assert done.stderr == "", level
