"""Floats are quantized alike on every core: ties, infinities, NaN, and numbers beyond an int32."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

from mtool import commands
from mtool.device import session

F = np.float32
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 3.4e38, -3.4e38, 7.3e7, -7.3e7]
COUNT = 2048


@pytest.mark.slow
@pytest.mark.parametrize("zero", [-11, 7])
@pytest.mark.parametrize("board", ["mps2_an386", "mps2_an500", "mps2_an505", "mps2_an385", "mps3_an547"])
def test_every_kind_of_float(board: str, zero: int, tmp_path: Path) -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    onnx.save(model([node], {"x": (F, (COUNT,))}, ["y"], {"s": F(0.0338), "z": np.int8(zero)}), tmp_path / "m.onnx")
    halves = (np.arange(-150, 150) + 0.5).astype(F) * F(0.0338)
    near = [np.nextafter(halves, F(by)) for by in (np.inf, -np.inf)]
    rest = np.random.default_rng(1).normal(0, 3, COUNT - 900 - len(SPECIAL)).astype(F)
    x = np.concatenate([halves, *near, np.array(SPECIAL, F), rest])
    with np.errstate(all="ignore"):
        steps = np.rint(x / F(0.0338)) + zero
    expected = np.where(np.isnan(x), -128, np.clip(np.nan_to_num(steps), -128, 127)).astype(np.int8)
    prepared = commands.prepare(tmp_path / "m.onnx", board=board, folder=tmp_path / "p")
    with session.open(prepared.folder) as device:
        np.testing.assert_array_equal(device.run({"x": x})["y"], expected)
