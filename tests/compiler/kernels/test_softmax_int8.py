"""Softmax of int8 in integers has the bytes of the float arithmetic, also where a share lies near a half."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import HOST, NO_FPU, Array, compiled, model, reference, run_c
from onnx import helper

from mtool import commands
from mtool.device import session

F = np.float32


def softmax(shape: Sequence[int], scale: float, out: tuple[float, int] = (1 / 256, -128)) -> onnx.ModelProto:
    """Return a softmax along the last axis, between quantizations."""
    constants = {"s": F(scale), "z": np.int8(3), "os": F(out[0]), "oz": np.int8(out[1])}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("Softmax", ["f"], ["t"], axis=-1),
        helper.make_node("QuantizeLinear", ["t", "os", "oz"], ["y"]),
    ]
    return model(nodes, {"x": (np.int8, shape)}, ["y"], constants)


def rows(shape: Sequence[int], seed: int = 0) -> Array:
    """Return rows of several spreads; equal elements, of which two or more have a share near a half, among them."""
    rng = np.random.default_rng(seed)
    spread = rng.integers(0, 128, (shape[0], 1))
    x = np.clip(rng.normal(0, 1, shape) * spread, -128, 127).astype(np.int8)
    x[::7] = x[::7, :1]
    return np.asarray(x)


def float_results(x: Array, scale: float, out: tuple[float, int]) -> Array:
    """Return what portable C computes: float32 sums of blocks of 16, added with their rounding errors."""
    d = x.astype(np.int64) - x.max(axis=1, keepdims=True)
    powers = np.exp(np.arange(-255, 1) * np.float64(F(scale))).astype(F)[255 + d]
    total, lost = np.zeros(len(x), F), np.zeros(len(x), F)
    for first in range(0, x.shape[1], 16):
        part = np.zeros(len(x), F)
        for n in range(first, min(first + 16, x.shape[1])):
            part = part + powers[:, n]
        after = total + part
        lost, total = lost + (part - (after - total)), after
    share = powers / (total + lost)[:, None]
    return np.asarray(np.clip(np.rint(share / F(out[0])) + out[1], -128, 127).astype(np.int8))


CASES = list(itertools.product((2, 10, 16, 17, 32, 100, 128), (0.01, 0.1), ((1 / 256, -128), (0.005, -100))))


@pytest.mark.parametrize(("length", "scale", "out"), CASES[5::6])
def test_integer_rows(length: int, scale: float, out: tuple[float, int], tmp_path: Path) -> None:
    assert_same(length, scale, out, tmp_path, 600)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "scale", "out"), CASES)
def test_many_integer_rows(length: int, scale: float, out: tuple[float, int], tmp_path: Path) -> None:
    assert_same(length, scale, out, tmp_path, 20000)


def assert_same(length: int, scale: float, out: tuple[float, int], folder: Path, count: int) -> None:
    plan = compiled(softmax((count, length), scale, out), NO_FPU)
    assert [step.schedule.name for step in plan.steps] == ["c99_integer_rows"]
    x = rows((count, length))
    (found,) = run_c(plan, {"x": x}, folder)
    np.testing.assert_array_equal(found, float_results(x, scale, out))


def test_with_an_fpu_a_small_softmax_keeps_floats(tmp_path: Path) -> None:
    proto = softmax((4, 12), 0.1)
    plan = compiled(proto, HOST)
    assert [step.schedule.name for step in plan.steps] == ["c99_rows"]
    x = rows((4, 12))
    (found,), (expected,) = run_c(plan, {"x": x}, tmp_path), reference(proto, {"x": x})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2_an383", "mps2_an385", "mps2_an386", "mps3_an547", "qemu_riscv32"])
@pytest.mark.parametrize("length", [10, 32, 100])
def test_integer_rows_on_a_core(length: int, board: str, tmp_path: Path) -> None:
    proto: Any = softmax((512, length), 0.05)
    onnx.save(proto, tmp_path / "m.onnx")
    prepared = commands.prepare(tmp_path / "m.onnx", board=board, folder=tmp_path / "p")
    with session.open(prepared.folder) as device:
        for seed in range(4):
            x = rows((512, length), seed)
            expected = float_results(x, 0.05, (1 / 256, -128))
            np.testing.assert_array_equal(device.run({"x": x})["y"], expected)
