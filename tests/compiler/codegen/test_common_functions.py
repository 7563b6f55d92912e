"""Small code: operators whose C differs only in numbers share a function, and results stay the same."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import pytest
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from graphs import Array, lowered, model, run_c
from onnx import helper

from mtool import boards, commands
from mtool.base import resources
from mtool.compiler import codegen
from mtool.compiler.ir.parametric import DifferError
from mtool.compiler.kernels.parametric_c import numbers_apart
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, make_plan

BOARDS = ("mps2_an386", "mps2_an500", "mps3_an547", "mps2_an385", "mps2_an383", "qemu_riscv32")
M4 = Target("cortex-m4", frozenset({"fpu", "dsp"}))
LAYERS = ((3, 8, 1), (1, 12, 1), (3, 12, 2), (1, 20, 1), (3, 20, 1), (1, 8, 1), (3, 8, 1), (1, 16, 1), (3, 16, 2))
"""Kernel, output channels and stride; 3: depthwise, 1: pointwise."""


def network(size: int = 13) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    constants: dict[str, Any] = {"s": np.float32(0.04), "z": np.int8(-128), "wz": np.int8(0)}
    nodes, value, channels = [], "x", 8
    for number, (kernel, outputs, stride) in enumerate(LAYERS):
        shape = (outputs, 1, 3, 3) if kernel == 3 else (outputs, channels, 1, 1)
        constants[f"w{number}"] = rng.integers(-127, 128, shape).astype(np.int8)
        constants[f"s{number}"] = np.exp(rng.normal(-7, 1, outputs)).astype(np.float32)
        constants[f"b{number}"] = rng.integers(-3000, 20000, outputs).astype(np.int32)
        constants[f"z{number}"] = np.zeros(outputs, np.int8)
        own = [f"w{number}", f"s{number}", f"z{number}", "s", "z", f"b{number}"]
        pads = [kernel // 2] * 4
        attrs = {"strides": [stride, stride], "pads": pads, "group": outputs if kernel == 3 else 1}
        nodes.append(helper.make_node("QLinearConv", [value, "s", "z", *own], [f"y{number}"], **attrs))
        value, channels = f"y{number}", outputs
    return model(nodes, {"x": (np.int8, (1, 8, size, size))}, [value], constants)


def plan_of(proto: onnx.ModelProto, target: Target = M4, *, for_size: bool) -> Plan:
    return make_plan(replace(lowered(proto, target), for_size=for_size), target)


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")
def test_code_for_size_is_small_and_its_estimate_not_much_slower(tmp_path: Path) -> None:
    usual, small = (plan_of(network(), for_size=for_size) for for_size in (False, True))
    files, made = codegen.generate(small, "net.onnx", "ab" * 32)
    _, other = codegen.generate(usual, "net.onnx", "ab" * 32)
    assert [len({one.function for one in each.operators}) for each in (made, other)] == [6, 11]
    assert small.cost < 1.15 * usual.cost and small.arena_bytes < 1.15 * usual.arena_bytes
    for name in files:
        (tmp_path / name).write_bytes(files[name])
    board, include = boards.get("mps2_an386"), resources.path("crt") / "include"
    argv = [board.toolchain, *board.cflags, "-O2", "-std=c99", "-Werror", f"-I{include}", "-c", "test.c"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    with (tmp_path / "test.o").open("rb") as file:
        code = sum(one.data_size for one in ELFFile(file).iter_sections() if one["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)
    assert code < 3300  # 5,028 with -O2 and a function for each size


@pytest.mark.slow
@pytest.mark.parametrize("size", [9, 13, 24])
def test_small_code_computes_the_same(size: int, tmp_path: Path) -> None:
    proto = network(size)
    x = np.random.default_rng(1).integers(-128, 128, (1, 8, size, size)).astype(np.int8)
    results: list[list[Array]] = []
    for for_size in (False, True):
        folder = tmp_path / str(for_size)
        folder.mkdir()
        results.append(run_c(plan_of(proto, for_size=for_size), {"x": x}, folder))
    assert len(np.unique(results[0][0])) > 12
    np.testing.assert_array_equal(*results)


@pytest.mark.slow
@pytest.mark.parametrize(
    "board", ["mps2_an386", "mps2_an500", "mps3_an547", "mps2_an385", "mps2_an383", "qemu_riscv32"]
)
def test_small_code_computes_the_same_on_boards(board: str, tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "net.onnx")
    options = commands.Options(optimize="size")
    found = commands.verify(
        tmp_path / "net.onnx", board=board, options=options, deployment=commands.Deployment(tmp_path / "project")
    )
    assert found.ok


@models.needed
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "instructions"),
    [("kws", 3000, 2.75e6), ("vww", 5400, 5.25e6), ("ic", 5600, 12.3e6), ("ad", 1400, 0.285e6)],
)
def test_mlperf_tiny_for_size(name: str, code: int, instructions: float, tmp_path: Path) -> None:
    cost = commands.bench(
        models.path(f"{name}/{name}_int8_qdq"),
        board="mps2_an386",
        number=1,
        repeat=1,
        options=commands.Options(optimize="size"),
        deployment=commands.Deployment(tmp_path / "project"),
    ).as_json()
    assert cost["flash_code_bytes"] <= code
    assert cost["instructions"] <= instructions


def test_numbers_that_differ_are_read_from_a_table() -> None:
    texts = [
        f"    for (int32_t i = 0; i < {n}; ++i) /* {n} of them */\n        memcpy(out + {n}, x + {2 * n}, {n});\n"
        for n in (3, 5)
    ]
    body, columns = numbers_apart(texts, "numbers", frozenset())
    assert body == (
        "    const int32_t number0 = numbers[0];\n    const int32_t number1 = numbers[1];\n"
        "    for (int32_t i = 0; i < number0; ++i) \n        memcpy(out + number0, x + number1, (size_t)number0);"
    )
    assert columns == [(3, 5), (6, 10)]


@pytest.mark.parametrize(
    "text",
    [
        "    f(x, {});",
        "    int32_t sums[{}];",
        "    static const int8_t t[] = {{1, {}}};",
        "    x = g(x, {}) + 1;",
    ],
)
def test_constants_are_not_read_from_a_table(text: str) -> None:
    with pytest.raises(DifferError, match="a constant of its C differs"):
        numbers_apart([text.format(3), text.format(4)], "numbers", frozenset())
    text = text.replace("f(", "mt_run_time(").replace("g(", "mt_run_time(")
    if "mt_run_time" in text:
        assert numbers_apart([text.format(3), text.format(4)], "numbers", frozenset({"mt_run_time"}))[1] == [(3, 4)]
