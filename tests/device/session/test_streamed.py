"""A model with a streamed input on a device: the frame arrives by WRITE, row by row, and is never stored whole."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from convolutional import images
from graphs import reference

import mtool
from mtool import commands
from mtool.base.errors import DeviceError, UsageError
from mtool.cli import app
from mtool.device.rpc import protocol

needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)


@pytest.mark.slow
def test_rows_come_by_writes(tmp_path: Path) -> None:
    """Runs, times and profiles; an order that is refused changes nothing."""
    proto, feeds = images(gated=True)
    onnx.save(proto, tmp_path / "model.onnx")
    options = commands.Options(stream="x", portable=True)  # whose scratch is small
    prepared = mtool.prepare(tmp_path / "model.onnx", board="host", options=options, folder=tmp_path / "project")
    assert prepared.manifest.arena_bytes < 24 * 8 * 8 * 4, "less than one of the tensors between the convolutions"
    expected = reference(proto, feeds)[0]
    index = next(n for n, tensor in enumerate(prepared.manifest.inputs) if tensor.stream)
    with mtool.open(prepared) as device:
        for in_steps in (True, False):
            np.testing.assert_allclose(device.run(feeds, in_steps=in_steps)["y"], expected, rtol=1e-4, atol=1e-5)
        with pytest.raises(DeviceError, match="code 23"):  # the rows are used up
            device.client.time(1, work_s=1)
        row = bytes(3 * 8 * 4)
        for offset, why in ((len(row), "MT_BAD_ORDER"), (0, ""), (2 * len(row), "MT_BAD_ORDER"), (len(row), "")):
            if why:
                with pytest.raises(DeviceError, match=why):
                    device.client.write_at(protocol.ROWS, index, offset, row)
            else:
                device.client.write_at(protocol.ROWS, index, offset, row)
        with pytest.raises(DeviceError, match="MT_BAD_RANGE"):
            device.client.write_at(protocol.ROWS, index, 2 * len(row), row * 23)
        with pytest.raises(DeviceError, match="MT_BAD_INDEX"):
            device.client.write_at(protocol.ROWS, 1 - index, 0, row)
        with pytest.raises(UsageError, match="does not keep the rows"):
            device.get_input("x")
        assert device.time(number=3, repeat=2, inputs=feeds).median > 0
        profile = device.profile(feeds, repeat=1)
        assert sum(row.macs for row in profile.operators) == prepared.manifest.macs
        assert device.time(function="take_row_row5", repeat=1, inputs=feeds).median >= 0
        np.testing.assert_allclose(device.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@needs_arm
def test_bench_and_verify_feed_a_board(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto, _ = images(1)
    onnx.save(proto, tmp_path / "model.onnx")
    words = [str(tmp_path / "model.onnx"), "--board", "mps2_an386", "--stream", "x"]
    words += ["--output-dir", str(tmp_path / "project")]
    assert app.invoke(["verify", *words, "--samples", "2"]) == 0
    assert app.invoke(["verify", *words, "--layers"]) == 0
    assert app.invoke(["bench", *words, "--repeat", "1"]) == 0
    assert "instructions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--interface-api", "step", "--stream", "x"], "--interface-api step does not have"),
        (["--interface-api", "c", "--stream", "x"], "--interface-api c does not have"),
        (["--stream", "x", "--io", "external"], "can't be combined with --io external"),
        (["--stream", "x", "--executor", "graph"], "computes operators by rows"),
        (["--stream", "x", "--arena", "caller"], "--arena caller is for --interface-api c"),
        (["--stream", "X2"], "--stream: unknown input X2"),
        (["--interface-api", "feed", "--state", "y:x"], "can't be combined with --state"),
    ],
)
def test_what_does_not_go_together(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto, _ = images()
    if "--state" in words:
        proto = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> m (float[1,4] x) => (float[1,4] y) { y = Abs(x) }'
        )
    onnx.save(proto, tmp_path / "model.onnx")
    folder = tmp_path / "out"
    assert app.invoke(["compile", str(tmp_path / "model.onnx"), *words, "--output-dir", str(folder)]) == 2
    assert said in capsys.readouterr().err and not folder.exists()


@pytest.mark.slow
@pytest.mark.product(3)
@pytest.mark.parametrize("interface", ["feed", "step", "packed"])
def test_a_standalone_program_calls_each_of_its_models(interface: str, tmp_path: Path) -> None:
    """What one model has for its own interface, the next one has by another name."""
    for name in ("one", "two"):
        onnx.save(images()[0], tmp_path / f"{name}.onnx")
    words = ["build", str(tmp_path / "one.onnx"), str(tmp_path / "two.onnx"), "--board", "host", "--arena", "own"]
    words += ["--interface-api", interface, "--output-dir", str(tmp_path / "project")]
    assert app.invoke(words) == 0
    subprocess.run([tmp_path / "project" / "build" / "standalone"], check=True, timeout=20)


@pytest.mark.slow
def test_models_in_one_arena_are_not_streamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A frame is under way for long, and another model would run over its rows."""
    for name in ("one", "two"):
        onnx.save(images()[0], tmp_path / f"{name}.onnx")
    words = ["compile", str(tmp_path / "one.onnx"), str(tmp_path / "two.onnx"), "--interface-api", "feed"]
    words += ["--output-dir", str(tmp_path / "out")]
    assert app.invoke(words) == 2
    assert "--arena own" in capsys.readouterr().err
    assert app.invoke([*words, "--arena", "own"]) == 0
