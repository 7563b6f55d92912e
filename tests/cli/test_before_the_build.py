"""Problems are reported before a build that takes minutes, and builds are not repeated."""

import os
import pty
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mtool import commands
from mtool.base import resources
from mtool.base.errors import CommunicationError
from mtool.cli import app
from mtool.commands import Deployment, Options
from mtool.commands.cost import ALL_KINDS, HOST_DRIVEN, kinds_to_measure
from mtool.device.session import opening

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
Captured = pytest.CaptureFixture[str]


@pytest.mark.product(3)
@pytest.mark.parametrize("what", [commands.run, commands.bench, commands.verify])
def test_a_board_that_does_not_answer_is_reported_before_the_build(
    what: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "TIMEOUT_S", 0.2)
    _, device = pty.openpty()
    deployment = Deployment(tmp_path / "p", port=os.ttyname(device))
    with pytest.raises(CommunicationError):
        what(DIGITS, board="host", deployment=deployment)  # type: ignore[operator]
    assert (tmp_path / "p" / "mtool.json").is_file() and not (tmp_path / "p" / "build").exists()


@pytest.mark.parametrize("command", ["flash", "run", "bench"])
def test_a_program_of_this_computer_has_no_port(command: str, tmp_path: Path, capsys: Captured) -> None:
    assert app.invoke([command, str(DIGITS), "--board", "native_sim", "--port", "/dev/ttyUSB9"]) == 2
    said = capsys.readouterr().err
    assert "native_sim runs on this computer and has no port" in said and "USB data cable" not in said


def test_a_program_of_this_computer_is_run_in_place_of_flashing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.invoke(["flash", str(DIGITS), "--board", "native_sim", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "./build/host_driven/zephyr/zephyr.exe" and "gdb" not in "".join(lines)
    assert app.invoke(["flash", str(DIGITS), "--board", "native_sim", "--runner", "gdb", "--dry-run"]) == 7
    assert "can't be flashed" in capsys.readouterr().err


@pytest.mark.parametrize(("template", "kinds"), [("baremetal", ALL_KINDS), ("zephyr", (HOST_DRIVEN,))])
def test_a_measurement_builds_a_whole_framework_once(template: str, kinds: tuple[str, ...]) -> None:
    model = commands.compile(DIGITS, board="mps2_an386", options=Options(template=template))
    assert kinds_to_measure(model) == kinds


def test_what_cannot_fit_is_reported_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = numpy_helper.from_array(np.ones((100, 100), np.float32), "w")  # 40,000 B, of 32,256
    sizes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 100)) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", sizes[:1], sizes[1:], initializer=[weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
    assert app.invoke(["build", "m.onnx", "--board", "arduino_uno"]) == 4
    reported = capsys.readouterr().err
    assert "m.onnx does not fit arduino_uno" in reported and "weights 40 KB (float32)" in reported
    assert not Path("build").exists()

    assert app.invoke(["new", "p", "--model", "m.onnx", "--board", "arduino_uno"]) == 0
    said = capsys.readouterr()
    assert "m.onnx does not fit arduino_uno" in said.err and "of 32 KB" in said.err
    assert "mtool build" not in said.out and "mtool check m.onnx" in said.out
    assert app.invoke(["new", "q", "--model", "m.onnx", "--board", "mps2_an386"]) == 0
    assert "next: cd q && mtool build" in capsys.readouterr().out
