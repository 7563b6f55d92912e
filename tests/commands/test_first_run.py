"""`run` and `bench` compare the first run of a new build with the reference, once."""

import json
import logging
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper

import mtool
from mtool.base.errors import ModelError
from mtool.cli import app
from mtool.device.rpc import Client
from mtool.verification import reference
from mtool.verification.oracles import ort

pytest.importorskip("onnxruntime")

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    weights = np.random.default_rng(15).standard_normal((8, 4)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    onnx.save(graphs.model([node], {"x": (np.float32, (1, 8))}, ["y"], {"w": weights}), "small.onnx")
    return Path("small.onnx")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often the reference is run, by the number of its samples."""
    found: list[int] = []
    real = reference.computed_by

    def computed_by(path: Path, samples: Any, **rest: Any) -> Any:
        found.append(len(samples))
        return real(path, samples, **rest)

    monkeypatch.setattr(reference, "computed_by", computed_by)
    return found


def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reference give other numbers than the model's."""
    real = reference.computed_by

    def computed_by(*put: Any, **rest: Any) -> Any:
        name, outputs = real(*put, **rest)
        return name, [{"y": sample["y"] + 1} for sample in outputs]

    monkeypatch.setattr(reference, "computed_by", computed_by)


@pytest.mark.slow
def test_the_first_run_of_a_build_is_compared_and_the_second_is_not(
    model: Path, asked: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    inputs = [{"x": np.full((1, 8), value, np.float32)} for value in (0.5, 2.0)]
    with caplog.at_level(logging.WARNING):
        first = mtool.run(model, board="host", inputs=inputs)
        assert first.first_run is not None and first.first_run.report.ok and asked == [1]
        assert mtool.run(model, board="host").first_run is None
        assert mtool.bench(model, board="host").first_run is None and asked == [1]
        changed = mtool.Options(io="external")
        assert mtool.run(model, board="host", options=changed).first_run is not None and asked == [1, 1]
    assert not caplog.records, "equal outputs are not worth a line"


def test_bench_compares_a_new_build_too(model: Path, asked: list[int], capsys: Captured) -> None:
    assert app.invoke(["bench", str(model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["first_run"]["ok"] and found["first_run"]["reference"] == "onnxruntime" and asked == [1]
    assert app.invoke(["bench", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["first_run"] is None and asked == [1]


@pytest.mark.product(3)
@pytest.mark.parametrize("command", ["run", "bench", "bench --layers"])
def test_a_difference_is_reported_in_a_line_until_it_is_gone(
    command: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    wrong(monkeypatch)
    for _ in range(2):
        assert app.invoke([*command.split(), str(model)]) == 0
        lines = [line for line in capsys.readouterr().err.splitlines() if "differ from onnxruntime" in line]
        assert len(lines) == 1 and "y: 4 of 4 elements, by 1 at most" in lines[0] and "mtool verify" in lines[0]
    if "--layers" not in command:
        assert app.invoke([command, str(model), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["first_run"]["ok"] is False


@pytest.mark.parametrize("how", ["refused", "missing", "large"])
def test_nothing_fails_where_nothing_can_be_compared(how: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ModelError("onnxruntime can't run small.onnx")

    if how == "refused":
        monkeypatch.setattr(reference, "computed_by", refuse)
    elif how == "missing":
        monkeypatch.setattr(ort, "version", lambda: "")
    else:
        monkeypatch.setattr("mtool.commands.cost.MOST_MACS", 31)
    assert mtool.run(model, board="host").first_run is None


def test_run_builds_what_it_runs_and_infers_once_a_sample(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for name in ("run", "time"):
        real = getattr(Client, name)

        def counted(client: Client, *put: Any, name: str = name, real: Any = real, **rest: Any) -> Any:
            seen.append(f"{name} {put[0]}" if name == "time" else name)
            return real(client, *put, **rest)

        monkeypatch.setattr(Client, name, counted)
    inputs = [{"x": np.full((1, 8), value, np.float32)} for value in (0.5, 2.0)]
    ran = mtool.run(model, board="host", inputs=inputs)
    assert seen == ["run", "time 1"] and ran.cost.time_ns is not None
    assert [*ran.prepared.built.firmware] == ["host_driven"] and ran.cost.firmware == "host_driven"
    expected = reference.outputs(model, inputs)
    for found, wanted in zip(ran.outputs, expected, strict=True):
        np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5)
    whole = mtool.run(model, board="host", inputs=inputs, kinds=("host_driven", "standalone"))
    assert whole.cost.firmware == "standalone" and whole.first_run is None
