"""Small convolutions' C compiles without warnings: schedules declare nothing that they do not use."""

import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest
from graphs import compiled, model
from one_firmware import STRICT
from onnx import helper

from mtool.base import resources
from mtool.compiler import codegen
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan

DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))


def _convolution(
    target: Target, name: str, channels: int, kernel: int, stride: int, pad: int, group: int = 1, pixels: int = 12
) -> Plan:
    """Plan a QLinearConv of four output channels of 12 pixels a side, into which two pixels and three go."""
    size = (pixels - 1) * stride + kernel - 2 * pad
    constants = {
        "xs": np.float32(0.05), "xz": np.int8(3), "ws": np.float32(0.01), "wz": np.int8(0), "ys": np.float32(0.07),
        "yz": np.int8(-5), "w": np.full((4, channels // group, kernel, kernel), 3, np.int8),
    }  # fmt: skip
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    node = helper.make_node("QLinearConv", names, ["y"], strides=[stride] * 2, pads=[pad] * 4, group=group)
    return compiled(model([node], {"x": (np.int8, (1, channels, size, size))}, ["y"], constants), target, name)


@pytest.mark.parametrize("target", [DSP, MVE], ids=["dsp", "mve"])
def test_small_convolutions_compile_without_a_warning(target: Target, tmp_path: Path) -> None:
    shapes: list[tuple[int, ...]] = [
        (channels, kernel, stride, pad, 1)
        for channels, kernel, stride, pad in itertools.product((2, 3), (2, 3), (1, 2), (0, 1))
    ]
    shapes += [(4, 2, 2, 0, 2), (32, 1, 1, 0, 1, 1), (32, 1, 1, 0, 1, 3)]
    chosen = set()
    for number, shape in enumerate(shapes):
        plan = _convolution(target, f"m{number}", *shape)
        chosen |= {step.schedule.name for step in plan.steps}
        files, _ = codegen.generate(plan, "test.onnx", "0" * 64)
        for name in files:
            (tmp_path / name).write_bytes(files[name])
    units = [f"m{number}.c" for number in range(len(shapes))]
    (tmp_path / "all.c").write_text("".join(f'#include "{unit}"\n' for unit in units))
    flags = [*STRICT, "-Wno-unused-function", f"-I{resources.path('crt') / 'include'}", "-fsyntax-only"]
    subprocess.run(["gcc", *flags, "all.c"], cwd=tmp_path, check=True)
    assert chosen >= ({"mve_patch", "mve_pixels"} if "mve" in target.features else {"dsp_patch"}), chosen
