"""Which convolutions use vectors on this computer: those worth it, whose sums are exact as floats."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

import mtool
from mtool.cli import app

F = np.float32


def written(folder: Path, weights: Any, *, size: int = 16, depthwise: bool = False) -> Path:
    """A 3x3 convolution of int8, each weight of which is the largest there is."""
    channels = len(weights) if depthwise else weights.shape[1]
    constants = {"s": F(0.05), "z": np.int8(-7), "w": weights, "wz": np.int8(0)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("DequantizeLinear", ["w", "s", "wz"], ["v"]),
        helper.make_node("Conv", ["f", "v"], ["c"], group=channels if depthwise else 1),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    path = folder / "one.onnx"
    onnx.save(model(nodes, {"x": (np.int8, (1, channels, size, size))}, ["y"], constants), str(path))
    return path


def schedules(path: Path, **options: Any) -> list[str]:
    made = mtool.compile(path, board="host", options=mtool.Options(**options)).manifest
    return [operator.schedule.partition(":")[0] for operator in made.operators if operator.macs]


def filters(outputs: int, inputs: int, value: int = 127) -> Any:
    return np.full((outputs, inputs, 3, 3), value, np.int8)


def test_a_layer_uses_vectors_if_worth_it_and_not_portable(tmp_path: Path) -> None:
    assert schedules(written(tmp_path, filters(16, 8))) == ["simd_columns"]
    assert schedules(written(tmp_path, filters(64, 1, -128), depthwise=True)) == ["simd_taps"]
    assert schedules(written(tmp_path, filters(16, 8)), portable=True) == ["c99_patch"]
    assert schedules(written(tmp_path, filters(4, 2), size=6)) == ["c99_patch"]


@pytest.mark.parametrize(("inputs", "schedule"), [(114, "simd_columns"), (115, "c99_patch")])
def test_sums_of_integers_stay_below_what_float32_has(inputs: int, schedule: str, tmp_path: Path) -> None:
    """9 x 114 x 127 x 128 is less than 2^24, 9 x 115 x 127 x 128 is more."""
    assert schedules(written(tmp_path, filters(16, inputs), size=6)) == [schedule]


def test_what_is_compiled_to_be_taken_elsewhere_is_portable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["compile", str(written(tmp_path, filters(16, 8))), "-d", str(tmp_path / "c"), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert not any("simd" in name for name in reported["files"])
    assert "simd" not in (tmp_path / "c" / "one.c").read_text()
