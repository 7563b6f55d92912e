"""The process of onnxruntime and LiteRT: its messages, and the error if it dies."""

import io
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import graphs
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import mtool
from mtool.base.errors import ModelError
from mtool.cli import app
from mtool.verification import reference
from mtool.verification.oracles import process
from mtool.verification.oracles.process import DiedError

pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[3]
SMALLEST = np.iinfo(np.int64).min
KILLED = "onnxruntime was killed by SIGFPE (floating point exception) while running division.onnx"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def division(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that is valid, and that onnxruntime divides the smallest integer by -1 for, whatever is put in."""
    monkeypatch.chdir(tmp_path)
    nodes = [
        helper.make_node("Mul", ["x", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "smallest"], ["a"]),
        helper.make_node("Sub", ["nothing", "one"], ["b"]),
        helper.make_node("Div", ["a", "b"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "smallest": np.int64(SMALLEST), "one": np.int64(1)}
    onnx.save(graphs.model(nodes, {"x": (np.int64, (2,))}, ["y"], constants), "division.onnx")
    return Path("division.onnx")


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    path = tmp_path / "relu.onnx"
    onnx.save(graphs.model([helper.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, (2,))}, ["y"]), path)
    return path


def ran(path: Path) -> list[float]:
    (found,) = reference.outputs(path, [{"x": np.float32([-1, 2])}])
    return list(found["y"])


@pytest.mark.slow
def test_its_death_is_an_error_and_the_next_call_starts_another(division: Path, relu: Path) -> None:
    for _ in range(2):
        with pytest.raises(DiedError) as caught:
            reference.outputs(division, [{"x": np.zeros(2, np.int64)}])
        assert caught.value.what == KILLED and caught.value.exit_code == ModelError.exit_code
        assert "--golden" in caught.value.hint
        assert ran(relu) == [0, 2]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "verify --layers"])
def test_verify_says_that_it_died(command: str, division: Path, capsys: Captured) -> None:
    assert app.invoke([*command.split(), str(division), "--board", "host"]) == ModelError.exit_code
    assert KILLED in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_first_run_says_that_it_died(command: str, division: Path, capsys: Captured) -> None:
    assert app.invoke([command, str(division), "--board", "host"]) == 0
    assert KILLED in capsys.readouterr().err


def test_a_report_says_that_it_died(division: Path) -> None:
    found = mtool.report(division, board="host")
    assert found.layers is None and found.missing == KILLED and KILLED in found.as_html()


@pytest.mark.parametrize("is_constant", [True, False], ids=["optimising", "calibrating"])
def test_quantize_says_that_it_died(is_constant: bool, tmp_path: Path, capsys: Captured) -> None:
    """A division of constants is folded by its optimiser; any other is computed while the calibrator watches."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        *([] if is_constant else [helper.make_node("Cast", ["x"], ["whole"], to=onnx.TensorProto.INT64)]),
        *([] if is_constant else [helper.make_node("Mul", ["whole", "zero"], ["nothing"])]),
        *([] if is_constant else [helper.make_node("Add", ["nothing", "smallest"], ["a"])]),
        helper.make_node("Div", ["smallest" if is_constant else "a", "less"], ["z"]),
    ]
    whole = {"zero": np.zeros(2, np.int64), "smallest": np.int64([SMALLEST] * 2), "less": np.int64([-1, -1])}
    constants = {"w": np.eye(2, dtype=np.float32), **whole}
    model, data = tmp_path / "division.onnx", tmp_path / "data.npz"
    onnx.save(graphs.model(nodes, {"x": (np.float32, (1, 2))}, ["y", "z"], constants), model)
    np.savez(data, x=np.ones((3, 1, 2), np.float32))
    made = tmp_path / "made.onnx"
    assert app.invoke(["quantize", str(model), "--data", str(data), "-o", str(made)]) == ModelError.exit_code
    reported = capsys.readouterr().err
    assert "onnxruntime was killed by SIGFPE" in reported and "--golden" not in reported
    assert not made.exists()


def test_calls_share_one_process(relu: Path) -> None:
    ran(relu)
    before = process.of_process(os.getpid()).running
    ran(relu)
    assert before is not None and process.of_process(os.getpid()).running is before


def test_a_relative_path_is_that_of_the_caller(relu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(relu)  # the process is there, and has the working folder that this one had
    monkeypatch.chdir(relu.parent)
    assert ran(Path(relu.name)) == [0, 2]


@pytest.mark.slow
def test_it_imports_nothing_of_the_working_folder(relu: Path) -> None:
    """A model's folder is where mtool is run; it may hold anything."""
    for name in ("json", "numpy", "onnxruntime", "mtool", "logging"):
        (relu.parent / f"{name}.py").write_text("raise SystemExit('imported')")
    program = f"""
import os, sys
os.chdir({str(relu.parent)!r})
import numpy
from pathlib import Path
from mtool.verification import reference
print(reference.outputs(Path('relu.onnx'), [{{'x': numpy.float32([-1, 2])}}])[0]['y'])
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], env=dict(os.environ, PYTHONPATH=str(ROOT)),
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.stdout.strip() == "[0. 2.]", done.stderr


def test_a_warning_of_its_is_one_of_this_process(
    relu: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer = {"value": 1, "said": [["mtool.verification.oracles.ort", logging.WARNING, "100 % of it"]]}
    monkeypatch.setattr(process.OracleProcess, "ask", lambda *_: answer)
    with caplog.at_level(logging.WARNING):
        assert process.call("it", relu, "ort.outputs") == 1
    assert caplog.messages == ["100 % of it"]


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_it_does_not_outlive_this_process(end: signal.Signals, relu: Path) -> None:
    program = f"""
import os, time
import numpy
from pathlib import Path
from mtool.verification.oracles import process
from mtool.verification import reference
reference.outputs(Path({str(relu)!r}), [{{'x': numpy.float32([-1, 2])}}])
print(process.of_process(os.getpid()).running.child.pid, flush=True)
time.sleep(60)
"""
    caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert caller.stdout is not None
    oracle = int(caller.stdout.readline())
    os.kill(oracle, 0)
    caller.send_signal(end)
    caller.communicate()
    deadline = time.monotonic() + 10
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(oracle, 0)
            time.sleep(0.01)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2.5, True, "é\ud800"], "plain": b"\0\1", "array": {"bytes": {}}},
        {"x": np.arange(6, dtype=np.int64).reshape(2, 3)[:, ::2], "none": np.zeros((0, 3), np.float32)},
        {"scalar": np.array(3, np.uint8), "flag": np.array([True]), "nan": np.float64([np.nan, np.inf])},
        {"int4": np.array([1, -8], ml_dtypes.int4), "bf16": np.array([0.1], ml_dtypes.bfloat16)},
        {"texts": np.array([["a", "b"]], object)},
    ],
)
def test_a_message_goes_there_and_back(value: Any) -> None:
    def same(one: Any, other: Any) -> bool:
        if isinstance(one, np.ndarray):
            return (one.dtype, one.shape, one.tolist()) == (other.dtype, other.shape, other.tolist()) or bool(
                np.isnan(one.astype(float)).any() and one.tobytes() == other.tobytes()
            )
        if isinstance(one, dict):
            return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
        return bool(one == other)

    data = b"".join(bytes(part) for part in process.parts(value))
    assert same(value, process.read(io.BytesIO(data)))
    with pytest.raises(EOFError):
        process.read(io.BytesIO(data[:-1]))
