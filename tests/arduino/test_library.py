"""The example of a library, linked with the plain AVR core for a Uno, and run in simavr."""

import subprocess
from pathlib import Path

import numpy as np
import packages
import pytest

from mtool import boards, commands
from mtool.base import resources
from mtool.commands import Options
from mtool.compiler.codegen import Conventions, conventions
from mtool.device.transport import emulator
from mtool.stages.deployment import Deployment
from tests.arduino import simavr, sine

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
FLAGS = (
    "-mmcu=atmega328p", "-Os", "-ffunction-sections", "-fdata-sections", "-ffp-contract=off", "-w",
    "-DF_CPU=16000000L", "-DARDUINO=10819", "-DARDUINO_ARCH_AVR", "-DARDUINO_AVR_UNO",
    "-DDECIMAL_DIG=__DECIMAL_DIG__", f"-I{simavr.CORE / 'cores/arduino'}", f"-I{simavr.CORE / 'variants/standard'}",
)  # fmt: skip
C = ("avr-gcc", "-std=gnu11", *FLAGS)
CPP = ("avr-g++", "-std=gnu++11", "-fno-exceptions", "-fno-threadsafe-statics", *FLAGS)
STACK_BYTES = 200
"""For the deepest call of the model, Serial and an interrupt."""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The objects of Arduino's core for a Uno."""
    simavr.need_the_core()
    folder = tmp_path_factory.mktemp("core")
    sources = simavr.CORE / "cores/arduino"
    subprocess.run([*C, "-c", *sources.glob("*.c"), *sources.glob("*.S")], cwd=folder, check=True)
    subprocess.run([*CPP, "-c", *sources.glob("*.cpp")], cwd=folder, check=True)
    return [*folder.glob("*.o")]


def linked(core: list[Path], package: Path, example: str, folder: Path) -> Path:
    """Link an example of a library; fails if it does not fit a Uno."""
    (sketch,) = package.glob(f"examples/*_{example}/*.ino")
    include = f"-I{package / 'src'}"
    subprocess.run([*C, include, "-c", *(package / "src").rglob("*.c")], cwd=folder, check=True)
    argv = [*CPP, include, "-x", "c++", "-include", "Arduino.h", "-c", sketch, "-o", "sketch.o"]
    subprocess.run(argv, cwd=folder, check=True)
    argv = [
        "avr-gcc",
        "-mmcu=atmega328p",
        "-Os",
        "-Wl,--gc-sections",
        *folder.glob("*.o"),
        *core,
        "-lm",
        "-o",
        "app.elf",
    ]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / "app.elf"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "chosen"),
    [
        ("arduino_uno", conventions()),
        ("arduino_uno", conventions(context=True)),
        ("arduino_uno", conventions("step")),
        ("host", conventions()),
    ],
    ids=["uno", "caller", "step", "all cores"],
)
def test_the_example_of_a_library_fits_a_uno(board: str, chosen: Conventions, core: list[Path], tmp_path: Path) -> None:
    simavr.need()
    ort = pytest.importorskip("onnxruntime")
    model = commands.compile(DIGITS, board=board, options=Options(conventions=chosen, weights="text"))
    package = packages.write(model, tmp_path / "library", form="arduino-lib")
    elf = linked(core, package, "example", tmp_path)
    lines = subprocess.run(["avr-size", "-A", elf], check=True, capture_output=True, text=True).stdout.splitlines()
    sizes = {words[0]: int(words[1]) for words in map(str.split, lines) if words and words[0].startswith(".")}
    memories = boards.get("arduino_uno").memories
    assert sizes[".text"] + sizes[".data"] <= memories["flash"].size
    assert sizes[".data"] + sizes[".bss"] + STACK_BYTES <= memories["sram"].size
    session = ort.InferenceSession(DIGITS, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"image": np.zeros((1, 1, 8, 8), np.int8)})[0].reshape(-1).tolist()
    machine = boards.get("arduino_uno").emulator
    assert machine is not None
    argv = emulator.command(machine, elf, channel="uart")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        printed = [running.stdout.readline().decode().strip() for _ in range(len(expected) + 1)]
        running.kill()
    assert printed == [*map(str, expected), "ok"]


@pytest.mark.slow
def test_a_sketch_with_the_server_is_verified_at_its_port(core: list[Path], tmp_path: Path) -> None:
    simavr.need()
    pytest.importorskip("onnxruntime")
    path = sine.write(tmp_path / "sine.onnx")
    package = packages.write(
        commands.compile(path, board="arduino_uno"), tmp_path / "library", form="arduino-lib", rpc=True
    )
    elf = linked(core, package, "rpc", tmp_path)
    machine = boards.get("arduino_uno").emulator
    assert machine is not None
    with simavr.plugged_in(emulator.command(machine, elf, channel="uart")) as port:
        deployment = Deployment(port=port)
        report = commands.verify(path, board="arduino_uno", deployment=deployment, on=package)
        assert all(output.within for output in report.outputs)
        cost = commands.bench(path, board="arduino_uno", deployment=deployment, on=package)
        assert cost.time_ns is not None and cost.time_ns > 50_000
