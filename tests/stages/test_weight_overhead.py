"""The warning about constants that take more flash than in the model's file."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

from mtool import commands
from mtool.manifest import Firmware

F = np.float32
LOOPS = commands.Options(portable=True)  # packing for vectors is not reported


def written(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "grown.onnx"
    onnx.save(proto, path)
    return path


def convolution(zero: int, channels: int = 16) -> onnx.ModelProto:
    """A 3x3 convolution of uint8 whose weights span all numbers, which 0 as their zero point leaves beyond int8."""
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 256, (16, channels, 3, 3)).astype(np.uint8)
    weights.flat[:2] = 0, 255
    constants: dict[str, Any] = {
        "s": F(0.05), "xz": np.uint8(120), "filters": weights, "wz": np.uint8(zero),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["filters", "s", "wz"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["c"], name="widened"),
        helper.make_node("QuantizeLinear", ["c", "s", "xz"], ["y"]),
    ]
    return model(nodes, {"x": (np.uint8, (1, channels, 6, 6))}, ["y"], constants)


def test_weights_that_become_int16_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, convolution(0))
    with caplog.at_level(logging.WARNING):
        made = commands.compile(path, board="host", options=LOOPS)
    (grown,) = made.manifest.weight_overhead
    assert grown.tensor == "filters" and 2304 < grown.file_bytes < 2350
    assert grown.flash_bytes >= 2 * 2304 and grown.reason.startswith("uint8 weights less their zero point are int16")
    assert "filters takes 2,3" in caplog.text and "int16" in caplog.text


@pytest.mark.parametrize("zero", [128, 140])
def test_weights_that_stay_bytes_are_not(zero: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = commands.compile(written(tmp_path, convolution(zero)), board="host", options=LOOPS)
    assert made.manifest.weight_overhead == () and not caplog.records


@pytest.mark.parametrize(
    ("dilation", "board", "is_told"), [(1, "mps3_an547", False), (2, "mps3_an547", True), (1, "host", True)]
)
def test_float16_that_becomes_float32_is_reported(dilation: int, board: str, is_told: bool, tmp_path: Path) -> None:
    """The Cast behind the weights is folded as the model is read: the file has two bytes for each."""
    weights = np.random.default_rng(3).standard_normal((16, 16, 4)).astype(np.float16)
    nodes = [
        helper.make_node("Cast", ["halves"], ["w"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Conv", ["x", "w"], ["y"], name="conv", dilations=[dilation]),
    ]
    path = written(tmp_path, model(nodes, {"x": (F, (1, 16, 20))}, ["y"], {"halves": weights}))
    found = [(one.file_bytes, one.reason) for one in commands.compile(path, board=board).manifest.weight_overhead]
    assert found == ([(2048, "float16 weights are float32 in c99_patch")] if is_told else [])


def test_integers_that_meet_floats_are_reported(tmp_path: Path) -> None:
    weights = np.random.default_rng(2).integers(0, 256, (64, 40)).astype(np.uint8)
    nodes = [
        helper.make_node("DequantizeLinear", ["bytes", "s", "z"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    constants = {"bytes": weights, "s": np.float32(0.01), "z": np.uint8(0)}
    proto = model(nodes, {"x": (np.float32, (1, 64))}, ["y"], constants)
    (grown,) = commands.compile(written(tmp_path, proto), board="mps2_an386").manifest.weight_overhead
    assert grown.tensor == "bytes" and grown.flash_bytes > 3.9 * weights.nbytes
    assert grown.reason == "uint8 weights are float32, since the activations are"


def test_little_overhead_is_only_in_the_manifest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = commands.compile(written(tmp_path, convolution(0, channels=2)), board="host")
    assert made.manifest.weight_overhead and not caplog.records
    assert Firmware.model_validate(json.loads(made.manifest.to_json())).manifests() == (made.manifest,)


def test_check_reports_it_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from mtool import boards

    report = commands.check(written(tmp_path, convolution(0)), [boards.get("mps2_an386")])
    assert report.manifest.weight_overhead and "filters takes" in caplog.text


@pytest.mark.slow
def test_a_long_row_of_moves_is_not_followed_to_its_end(tmp_path: Path) -> None:
    """No recursion over the graph: 3,000 transpositions in front of a product compile."""
    moves = [helper.make_node("Transpose", [f"t{n}" if n else "x"], [f"t{n + 1}"], perm=[1, 0]) for n in range(3000)]
    nodes = [*moves, helper.make_node("MatMul", ["t3000", "w"], ["y"])]
    proto = model(nodes, {"x": (np.float32, (4, 4))}, ["y"], {"w": np.ones((4, 4), F)})
    (grown,) = commands.compile(written(tmp_path, proto), board="mps2_an386").manifest.weight_overhead
    assert (grown.tensor, grown.file_bytes) == ("w", 64)
