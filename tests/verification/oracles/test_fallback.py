"""The reference if LiteRT's reference kernels, or all of LiteRT, lack an operator."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_models import Op, T, model

from mtool.cli import app
from mtool.stages.options import Options
from mtool.verification import reference
from mtool.verification.oracles import process
from mtool.verification.oracles.process import DiedError

pytest.importorskip("ai_edge_litert")

Captured = pytest.CaptureFixture[str]
X = np.array([[3, -2]], np.int8)
DEFAULT = "LiteRT's default kernels (its reference kernels lack TILE version 3)"


@pytest.fixture
def tile(tmp_path: Path) -> Path:
    tensors = [T("x", [1, 2], np.int8, 0.5), T("n", [2], np.int32, data=np.array([2, 1], np.int32))]
    tensors.append(T("y", [2, 2], np.int8, 0.5))
    path = tmp_path / "tile.tflite"
    path.write_bytes(model(tensors, [Op("TILE", ["x", "n"], ["y"])], ["x"], ["y"], versions={"TILE": 3}))
    return path


def test_the_default_kernels_compute_what_the_reference_kernels_lack(tile: Path) -> None:
    name, (found,) = reference.computed_by(tile, [{"x": X}], options=Options(rounding="tflite"))
    assert name == DEFAULT and found["y"].tolist() == [*X.tolist(), *X.tolist()]
    assert reference.computed_by(tile, [{"x": X}])[0] == "LiteRT's default kernels"


def test_verify_says_what_it_compared_with(
    tile: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["verify", str(tile), "--board", "host", "--rounding", "tflite", "--samples", "1"]
    assert app.invoke(command) == 0
    assert f"matches {DEFAULT} over 1 sample" in capsys.readouterr().out
    assert app.invoke([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reference"] == DEFAULT


def test_onnx_reference_computes_what_litert_lacks(tmp_path: Path) -> None:
    custom = flexbuffers.Dumps({"delay_length": 2})
    tensors = [T("x", [3], np.int16), T("y", [3], np.int16)]
    path = tmp_path / "m.tflite"
    path.write_bytes(model(tensors, [Op("CUSTOM SignalDelay", ["x"], ["y"], custom=custom)], ["x"], ["y"]))
    samples = [{"x": np.array(x, np.int16)} for x in ([1, 2, 3], [4, 5, 6])]
    name, found = reference.computed_by(path, samples)
    assert name == "onnx.reference (LiteRT lacks an operator)"
    assert [sample["y"].tolist() for sample in found] == [[0, 0, 1], [2, 3, 4]]


@pytest.mark.parametrize(
    ("survive", "used"),
    [
        ("delegates", "LiteRT's default kernels without delegates (LiteRT crashed)"),
        ("evaluator", "onnx.reference (LiteRT crashed)"),
        ("nothing", ""),
    ],
)
@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
def test_the_next_reference_computes_what_litert_dies_of(
    survive: str, used: str, rounding: str, tile: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    real = process.call

    def dying(oracle: str, path: Path, function: str, /, **named: Any) -> Any:
        survives = "delegates" in named if survive == "delegates" else function.startswith(survive)
        if not survives:
            raise DiedError(f"{oracle} was killed by SIGABRT (aborted) when it ran {path}")
        return real(oracle, path, function, **named)

    monkeypatch.setattr(process, "call", dying)
    monkeypatch.chdir(tile.parent)
    command = ["verify", tile.name, "--board", "host", "--rounding", rounding]
    assert app.invoke(command) == (0 if used else 3)
    reported = capsys.readouterr()
    assert "LiteRT was killed by SIGABRT" in reported.err
    assert bool(used) or "  onnx.reference can't run its translation to ONNX" in reported.err
    assert not used or f"matches {used} over 4 samples" in reported.out
