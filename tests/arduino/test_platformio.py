"""The sketch built with `pio run` from local packages. Skipped without PlatformIO and SCons."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mtool import boards, commands
from mtool.commands import Options
from mtool.device import build
from tests.arduino import local_platformio, simavr, sine

PIO = shutil.which("pio")


@pytest.mark.skipif(PIO is None, reason="PlatformIO is not installed")
def test_the_sketch_builds_with_platformio_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simavr.need()
    assert PIO is not None
    python = Path(PIO).resolve().parent / "python"
    if subprocess.run([python, "-c", "import SCons"], capture_output=True, check=False).returncode != 0:
        pytest.skip("SCons is not installed beside PlatformIO")
    board = boards.get("arduino_uno")
    platform, environment = local_platformio.make(
        tmp_path / "home", Path(PIO), board="uno", mcu="atmega328p", hz=board.clock_hz, variant="standard"
    )
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    model = commands.compile(
        sine.write(tmp_path / "sine.onnx"),
        board=board.model_copy(update={"port": {**board.port, "platform": platform}}),
        options=Options(template_options={"builder": "platformio"}),
    )
    folder = commands.write_project(model, tmp_path / "p")
    built = build.build(folder, kinds=["host_driven", "standalone"])
    assert not built.up_to_date and {path.suffix for path in built.firmware.values()} == {".elf"}
    with simavr.open_device(built) as device:
        y = device.run({"x": np.full((1, 1), np.pi / 2, np.float32)})["y"].item()
    assert abs(y - 1) < 0.1
    assert os.environ["PLATFORMIO_CORE_DIR"].startswith(str(tmp_path))
