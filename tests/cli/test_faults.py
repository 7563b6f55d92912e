"""What users see when an operator faults on the board."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from altered import Altered

from mtool.cli import app
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.schedule import Schedule

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
MESSAGE = """\
error: MemManage in operator 2, conv2d 3x3 "conv2" (schedule faulty)
  pc 0x  digits_int8_conv_2+0x  digits_int8.c:     MMFAR 0x70000000, data access that is not allowed (DACCVIOL)
  stack  of 4096 B used
exit 10
"""

pytestmark = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)


def _faulty(sound: Schedule) -> Altered:
    """Return a schedule whose operator writes to an address where there is nothing."""
    return Altered("faulty", sound, "conv_2", lambda body: f"    *(volatile int32_t *)0x70000000 = 1;\n{body}")


@pytest.fixture(autouse=True)
def faulty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    convolution = registry.KERNELS["conv2d"]
    sound = next(schedule for schedule in convolution.schedules if schedule.name == "c99_patch")
    schedules = (*convolution.schedules, _faulty(sound))
    monkeypatch.setitem(registry.KERNELS, "conv2d", replace(convolution, schedules=schedules))


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("board", ["mps2_an385", "mps2_an386"])
def test_run_reports_a_fault(board: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["run", str(DIGITS), "--board", board, "--quiet"]) == 10
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.sub(r"(pc 0x|\+0x|\.c:|stack )[0-9a-f]+", r"\1", captured.err) == MESSAGE


@pytest.mark.slow
def test_a_fault_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["run", str(DIGITS), "--board", "mps2_an386", "--json"]) == 10
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["exit_code"] == 10
    assert error["what"] == 'MemManage in operator 2, conv2d 3x3 "conv2" (schedule faulty)'
    assert error["details"][1].endswith(" of 4096 B used")


@pytest.mark.slow
def test_bench_names_the_operator_by_its_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["bench", str(DIGITS), "--board", "mps2_an386", "--quiet"]) == 10
    assert 'in operator 2, conv2d 3x3 "conv2"' in capsys.readouterr().err
