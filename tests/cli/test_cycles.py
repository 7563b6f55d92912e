"""`mtool bench --cycles` on real models, and what it refuses."""

import json
import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest
from convolutional import images

from mtool.cli import app
from tests import models

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
GRANULARITY = 40  # instructions a step of the board's timer

Captured = pytest.CaptureFixture[str]

needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja", "cc")),
    reason="the Arm toolchain, QEMU or a compiler is not installed",
)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bench(capsys: Captured, model: Path, *arguments: str) -> dict[str, Any]:
    assert app.invoke(["bench", str(model), *arguments, "--json"]) == 0, capsys.readouterr().err
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.slow
@needs_arm
def test_the_estimate_is_of_what_the_timer_counts(tmp_path: Path, capsys: Captured) -> None:
    document = bench(capsys, DIGITS, "-b", "mps2_an386", "--cycles", "--clock", "nucleo_l4r5zi", "-d", "digits")
    cycles = document["cycles"]
    assert abs(cycles["instructions"] - document["instructions"]) <= 2 * GRANULARITY
    assert sum(cycles["mix"].values()) == cycles["instructions"]
    for parts in (cycles["operators"], cycles["functions"]):
        assert sum(part["instructions"] for part in parts) == cycles["instructions"]
        for cpu in ("cortex-m4", "cortex-m7"):
            assert sum(part["cycles"][cpu] for part in parts) == cycles["cycles"][cpu]
    described = json.loads((tmp_path / "digits" / "mtool.json").read_text())
    names = [operator["name"] for operator in described["models"][0]["operators"]]
    assert [part["name"] for part in cycles["operators"]][: len(names)] == names
    assert cycles["instructions"] < cycles["cycles"]["cortex-m4"] < 2 * cycles["instructions"]
    assert 0.5 * cycles["instructions"] < cycles["cycles"]["cortex-m7"] < cycles["cycles"]["cortex-m4"]
    assert document["milliseconds"] == pytest.approx(
        {"nucleo_l4r5zi": (cycles["cycles"]["cortex-m4"] + cycles["waits"]["nucleo_l4r5zi"]) / 120e3}
    )
    share = cycles["waits"]["nucleo_l4r5zi"] / cycles["cycles"]["cortex-m4"]
    in_flash = bench(
        capsys, DIGITS, "-b", "mps2_an386", "--cycles", "--clock", "nucleo_l4r5zi", "--optimize", "size", "-d", "digits"
    )["cycles"]
    again = bench(capsys, DIGITS, "-b", "mps2_an386", "--cycles", "--optimize", "size", "-d", "digits")
    assert again["cycles"]["instructions"] == pytest.approx(in_flash["instructions"], rel=0.01)  # none in RAM
    assert again["cycles"]["waits"] == {}
    assert 0.02 < in_flash["waits"]["nucleo_l4r5zi"] / in_flash["cycles"]["cortex-m4"] < 0.5
    assert 0 < share < 0.5


@pytest.mark.slow
@pytest.mark.product(2)
@needs_arm
@pytest.mark.parametrize("interface", ["feed", "step"])
def test_an_inference_of_several_calls_is_counted_whole(interface: str, tmp_path: Path, capsys: Captured) -> None:
    onnx.save(images(height=12)[0], tmp_path / "net.onnx")
    document = bench(capsys, tmp_path / "net.onnx", "-b", "mps2_an386", "--cycles", "--interface-api", interface)
    cycles = document["cycles"]
    assert cycles["instructions"] == pytest.approx(document["instructions"], rel=0.02)
    ran = {part["name"] for part in cycles["functions"]}
    assert {"net_begin", f"net_{interface}", {"feed": "net_finish", "step": "net_done"}[interface]} <= ran
    assert sum(part["instructions"] for part in cycles["operators"]) == cycles["instructions"]
    assert max(part["instructions"] for part in cycles["operators"]) < 0.8 * cycles["instructions"], "reported apart"


@pytest.mark.slow
@needs_arm
def test_the_tables_of_text(capsys: Captured) -> None:
    assert app.invoke(["bench", str(DIGITS), "-b", "mps2_an386", "--cycles", "--clock", "stm32f746g_disco"]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines() if line]
    assert ["one", "inference"] in [line[:2] for line in lines]
    assert "per MAC" in next(line for line in shown.splitlines() if line.startswith("Cortex-M4, estimated"))
    assert next(line for line in lines if line[0] == "stm32f746g_disco")[2:6] == ["ms", "at", "216", "MHz,"]
    for heading in ("instructions", "operator", "function"):
        assert heading in [line[0] for line in lines]
    assert "multiply-accumulate" in shown


@needs_arm
@pytest.mark.slow
def test_code_for_an_m7_is_estimated_for_an_m7_alone(capsys: Captured) -> None:
    assert set(bench(capsys, DIGITS, "-b", "mps2_an500", "--cycles")["cycles"]["cycles"]) == {"cortex-m7"}


@needs_arm
def test_without_the_option_nothing_is_estimated(capsys: Captured) -> None:
    assert not {"cycles", "milliseconds"} & set(bench(capsys, DIGITS, "-b", "mps2_an386"))


@pytest.mark.slow
@needs_arm
@models.needed
@pytest.mark.parametrize("model", ["kws", "vww", "ic", "ad"])
@pytest.mark.product(2)
def test_cycles_for_an_instruction_are_plausible(model: str, capsys: Captured) -> None:
    document = bench(capsys, models.path(f"{model}/{model}_int8_qdq"), "-b", "mps2_an386", "--cycles")
    cycles = document["cycles"]
    assert abs(cycles["instructions"] - document["instructions"]) <= 2 * GRANULARITY
    assert 1.2 < cycles["cycles"]["cortex-m4"] / cycles["instructions"] < 1.6
    assert 0.6 < cycles["cycles"]["cortex-m7"] / cycles["instructions"] < 1.2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-b", "host", "--cycles"], "there is no table for host"),
        (["-b", "nucleo_l4r5zi", "--cycles"], "it has no emulator that can list instructions"),
        (["-b", "mps2_an386", "--clock", "nucleo_l4r5zi"], "add --cycles"),
        (["-b", "mps2_an386", "--cycles", "--layers"], "can't be combined"),
        (["-b", "mps2_an386", "--cycles", "--clock", "rpi_pico"], "its core is cortex-m0plus"),
        (["-b", "mps2_an500", "--cycles", "--clock", "nucleo_l4r5zi"], "can be estimated on: cortex-m7"),
    ],
)
def test_what_can_not_be_estimated_is_refused(
    arguments: list[str], said: str, tmp_path: Path, capsys: Captured
) -> None:
    assert app.invoke(["bench", str(DIGITS), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@needs_arm
def test_a_compiler_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    which = shutil.which
    monkeypatch.setattr("shutil.which", lambda program, *rest: None if program == "cc" else which(program, *rest))
    monkeypatch.setattr("mtool.device.build.toolchains.compiler_here", lambda name: [name])  # nor another
    assert app.invoke(["bench", str(DIGITS), "-b", "mps2_an386", "--cycles"]) == 5
    captured = capsys.readouterr().err
    assert "cc is not installed" in captured and "apt-get install gcc" in captured


@pytest.mark.slow
@needs_arm
def test_an_emulator_without_plugins_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    # a plugin of an API that no QEMU has yet is refused as an old QEMU would refuse ours
    source = Path("blocks.c")
    text = (Path(__file__).parents[2] / "mtool" / "device" / "cycles" / "blocks.c").read_text()
    source.write_text(text.replace("int qemu_plugin_version = 1;", "int qemu_plugin_version = 999;"))
    monkeypatch.setattr("mtool.device.cycles.execution.PLUGIN", source)
    assert app.invoke(["bench", str(DIGITS), "-b", "mps2_an386", "--cycles"]) == 5
    captured = capsys.readouterr().err
    assert "did not start with the plugin" in captured and "version 999" in captured
