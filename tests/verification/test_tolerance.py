"""The tolerance for float16 models, whose reference rounds less often."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

import mtool
from mtool.cli import app
from mtool.verification.comparison import Tolerance

pytest.importorskip("onnxruntime")


def test_a_model_in_float16_is_held_to_a_step_of_it(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    shapes = {"w1": (24, 32), "b1": (32,), "w2": (32, 24), "b2": (24,)}
    constants = {name: (random.standard_normal(shape) * 0.3).astype(np.float16) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]), helper.make_node("Sigmoid", ["h"], ["s"]),
        helper.make_node("Mul", ["h", "s"], ["g"]), helper.make_node("Gemm", ["g", "w2", "b2"], ["k"]),
        helper.make_node("Add", ["k", "x"], ["y"]),
    ]  # fmt: skip
    onnx.save(model(nodes, {"x": (np.float16, (8, 24))}, ["y"], constants), tmp_path / "half.onnx")
    deployment = mtool.Deployment(tmp_path / "project")
    report = mtool.verify(tmp_path / "half.onnx", board="host", samples=2, deployment=deployment)
    report.check()
    (output,) = report.outputs
    assert output.differing and output.max_abs is not None and output.max_abs > 1e-4 and "0.000976" in output.allowed
    strict = Tolerance(atol=1e-5, rtol=1e-5)
    assert not mtool.verify(tmp_path / "half.onnx", board="host", samples=2, tolerance=strict, deployment=deployment).ok


def test_steps_of_floats_are_warned_of_and_nan_reads_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, (4,))}, ["y"]), "relu.onnx")
    x = np.ones((2, 4), np.float32)
    np.savez("g.npz", x0=x, y0=x, x1=x)
    command = ["verify", "relu.onnx", "--board", "host", "--golden", "g.npz"]
    assert app.invoke(command) == 0
    reported = capsys.readouterr().err
    assert "unused arrays: x1" in reported and "lsb" not in reported
    assert app.invoke([*command, "--lsb", "3"]) == 0
    assert "warning: --lsb applies to integers" in capsys.readouterr().err
    np.savez("g.npz", x0=x, y0=np.full_like(x, np.inf))
    assert app.invoke(command) == 9
    assert "8 of 8 elements differ (100%), some of them infinite or NaN" in capsys.readouterr().out
