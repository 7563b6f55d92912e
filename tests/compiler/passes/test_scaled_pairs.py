"""Sums, products, maxima and conditions of two 8-bit numbers are integer arithmetic with the float formula's bits."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import NO_FPU, Array, compiled, model, run_c
from onnx import helper

from mtool import commands
from mtool.compiler.bytecode.model import encode, plan_bytecode
from mtool.compiler.ir.node import expression_of
from mtool.device import session
from tests.compiler.bytecode import host

CODES = np.arange(-128, 128).astype(np.int8)
LEFT, RIGHT = np.repeat(CODES, 256), np.tile(CODES, 256)
CASES = {  # the operator, three scales, three zero points, the form
    "sum": ("Add", (0.0213, 0.0347, 0.0451), (3, -7, 5), "rescale_pair"),
    "sum with ties": ("Add", (0.02, 0.03, 0.04), (3, -7, 5), "shifted_tie"),
    "difference with ties": ("Sub", (0.05, 0.1, 0.1), (0, -7, -128), "shifted_tie"),
    "mean": ("Add", (0.0213, 0.0213, 0.0426), (11, -40, 0), "shifted_tie"),
    "sum of powers of two": ("Add", (0.0625, 0.125, 0.125), (3, -7, 5), "rescale_pair"),
    "product": ("Mul", (0.0213, 0.0347, 0.09), (3, -7, 5), "shifted"),
    "product of two words": ("Mul", (0.0213, 0.0347, 0.1511), (-128, -128, -128), "high_product"),
    "product with ties": ("Mul", (0.02, 0.03, 0.04), (3, -7, 5), "shifted_tie"),
    "product of powers of two": ("Mul", (1 / 128, 1 / 128, 1 / 128), (3, -7, 5), "shifted"),
    "maximum": ("Max", (0.02, 0.03, 0.04), (3, -7, 5), "maximum"),
    "minimum": ("Min", (0.0213, 0.0347, 0.0451), (3, -7, 5), "minimum"),
}


def pair(op: str, scales: tuple[float, ...], zeros: tuple[int, ...], size: int = 65536) -> onnx.ModelProto:
    """Return a model of an operator of all pairs of two numbers."""
    constants: dict[str, Any] = {f"s{n}": np.float32(scale) for n, scale in enumerate(scales)}
    constants |= {f"z{n}": np.int8(zero) for n, zero in enumerate(zeros)}
    nodes = [helper.make_node("DequantizeLinear", [f"x{n}", f"s{n}", f"z{n}"], [f"f{n}"]) for n in (0, 1)]
    nodes += [helper.make_node(op, ["f0", "f1"], ["t"]), helper.make_node("QuantizeLinear", ["t", "s2", "z2"], ["y"])]
    return model(nodes, {"x0": (np.int8, (size,)), "x1": (np.int8, (size,))}, ["y"], constants)


def formula(op: str, scales: tuple[float, ...], zeros: tuple[int, ...]) -> Array:
    """Return the results of all pairs, float32 as ONNX has it."""
    a, b = (
        (codes.astype(np.float32) - np.float32(zero)) * np.float32(scale)
        for codes, zero, scale in zip((LEFT, RIGHT), zeros, scales, strict=False)
    )
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum}[op]
    steps = np.rint(function(a, b) / np.float32(scales[2])) + zeros[2]
    return np.asarray(np.clip(steps, -128, 127).astype(np.int8))


@pytest.mark.parametrize("name", CASES)
def test_all_pairs(name: str, tmp_path: Path) -> None:
    op, scales, zeros, form = CASES[name]
    plan = compiled(pair(op, scales, zeros), NO_FPU)
    found = [part.op for step in plan.steps if (expr := expression_of(step.node)) for part in expr.walk()]
    assert form in found and "quantize" not in found
    (results,) = run_c(plan, {"x0": LEFT, "x1": RIGHT}, tmp_path)
    np.testing.assert_array_equal(results, formula(op, scales, zeros))


@pytest.mark.parametrize("name", ["difference with ties", "product of two words", "product of powers of two"])
def test_all_pairs_by_bytecode(name: str) -> None:
    op, scales, zeros, _ = CASES[name]
    plan = plan_bytecode(compiled(pair(op, scales, zeros), NO_FPU).graph)
    np.testing.assert_array_equal(host.run(plan, encode(plan), [LEFT, RIGHT])[0], formula(op, scales, zeros))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_scales(seed: int, tmp_path: Path) -> None:
    """Of quantizers, and with two digits, which often have ties; a few keep floats near them."""
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.005, 0.1, 3) if seed % 2 else rng.integers(1, 20, 3) / 100
    op, zeros = ("Add", "Sub", "Mul", "Max")[seed // 2 % 4], tuple(rng.integers(-128, 128, 3).tolist())
    (results,) = run_c(compiled(pair(op, tuple(scales), zeros), NO_FPU), {"x0": LEFT, "x1": RIGHT}, tmp_path)
    np.testing.assert_array_equal(results, formula(op, tuple(scales), zeros))


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2_an383", "mps2_an385", "mps2_an386", "mps3_an547", "qemu_riscv32"])
@pytest.mark.parametrize("name", CASES)
def test_all_pairs_on_a_core(name: str, board: str, tmp_path: Path) -> None:
    op, scales, zeros, _ = CASES[name]
    onnx.save(pair(op, scales, zeros, 4096), tmp_path / "m.onnx")
    prepared = commands.prepare(tmp_path / "m.onnx", board=board, folder=tmp_path / "p")
    expected = formula(op, scales, zeros)
    with session.open(prepared.folder) as device:
        for at in range(0, 65536, 4096):
            feeds = {"x0": LEFT[at : at + 4096], "x1": RIGHT[at : at + 4096]}
            np.testing.assert_array_equal(device.run(feeds)["y"], expected[at : at + 4096])


@pytest.mark.parametrize("op", ["Add", "Mul", "Max"])
@pytest.mark.parametrize("scales", [(1e8, 1e7, 1e-12), (1e-20, 1e-19, 1e15)], ids=["huge", "tiny"])
def test_scales_that_no_shift_holds(op: str, scales: tuple[float, ...], tmp_path: Path) -> None:
    zeros = (3, -7, 5)
    (results,) = run_c(compiled(pair(op, scales, zeros), NO_FPU), {"x0": LEFT, "x1": RIGHT}, tmp_path)
    np.testing.assert_array_equal(results, formula(op, scales, zeros))
