"""Sketches built with the plain AVR core, run in simavr and driven over their UART."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import packages
import pytest

from mtool import boards, commands
from mtool.base import resources
from mtool.base.errors import BuildError, FitError, UsageError
from mtool.base.filetree import FileTree
from mtool.commands import Options
from mtool.compiler.codegen import weights
from mtool.device.build import arduino
from mtool.manifest import Manifest, Project
from mtool.stages.deployment import run_samples
from tests.arduino import simavr, sine
from tests.device.flash.jobs import fake

pytestmark = pytest.mark.long

DIGITS = resources.path("examples/digits")
WITH_CMAKE = Options(template_options={"builder": "cmake"})
UNO_RAM_BYTES = 2048


def test_a_hello_world_sized_model_runs_on_an_uno(tmp_path: Path) -> None:
    simavr.need()
    model = sine.write(tmp_path / "sine.onnx")
    prepared = commands.prepare(
        model, board="arduino_uno", folder=tmp_path / "p", options=WITH_CMAKE, kinds=commands.ALL_KINDS
    )
    x = np.linspace(0, 2 * np.pi, 12, dtype=np.float32)
    with simavr.open_device(prepared.built) as device:
        y = np.array([device.run({"x": np.full((1, 1), value)})["y"].item() for value in x])
        stack_bytes = device.stack_bytes()
        nanoseconds = device.time(number=2, repeat=1).median
    np.testing.assert_allclose(y, np.sin(x), atol=0.1)
    cycles = 2 * nanoseconds / 62.5  # of two inferences, whose nanoseconds are whole
    assert 100e3 < nanoseconds < 100e6 and abs(cycles - round(cycles)) < 1 / 62.5, "each cycle is counted"
    size = commands.cost.measure(prepared.built.firmware["host_driven"], prepared.manifest)
    ram = size.ram_static_bytes + size.arena_bytes
    assert stack_bytes is not None and ram + stack_bytes < UNO_RAM_BYTES
    constants = _section_bytes(prepared.built.firmware["standalone"], ".data")
    assert constants < 100, "the weights stay in flash"


@pytest.mark.slow
def test_the_digits_run_on_a_mega(tmp_path: Path) -> None:
    simavr.need()
    prepared = commands.prepare(
        DIGITS / "digits_int8.onnx", board="arduino_mega2560", folder=tmp_path / "p", options=WITH_CMAKE
    )
    host = commands.prepare(DIGITS / "digits_int8.onnx", board="host", folder=tmp_path / "h")
    with np.load(DIGITS / "test_data.npz") as data:
        samples = [{"image": image[np.newaxis]} for image in data["x"][:5]]
        labels = data["y"][:5]
    with simavr.open_device(prepared.built) as device:
        found = [device.run(sample)["scores"] for sample in samples]
        timing = device.time(number=1, repeat=2, inputs=samples[0])
    assert timing.spread == 0 and timing.median * 0.016 > 1e6, "cycles of millions are the same each time"
    expected = [output["scores"] for output in run_samples(host, samples)]
    np.testing.assert_allclose(np.array(found), np.array(expected), atol=1)  # fixed point: within one step
    assert [int(scores.argmax()) for scores in found] == labels.tolist()


@pytest.mark.slow
def test_a_standalone_sketch_prints_its_outputs(tmp_path: Path) -> None:
    simavr.need()
    model = sine.write(tmp_path / "sine.onnx")
    prepared = commands.prepare(
        model, board="arduino_uno", folder=tmp_path / "p", options=WITH_CMAKE, kinds=["standalone"]
    )
    text = b""
    with simavr.start(prepared.built, "standalone") as transport:
        while text.count(b"\n") < 2:
            read = transport.read(timeout_s=10)
            assert read, "the sketch fell silent"
            text += read
    first, second = text.decode().splitlines()[:2]
    assert first == second and first.startswith("y ") and first.endswith(" argmax 0")
    assert abs(float(first.split()[1])) < 0.1  # the sine of 0


@pytest.mark.slow
def test_a_model_that_is_too_large_is_reported(tmp_path: Path) -> None:
    simavr.need_the_core()
    with pytest.raises(FitError, match=r"digits_int8\.onnx does not fit arduino_uno") as caught:
        commands.prepare(DIGITS / "digits_int8.onnx", board="arduino_uno", folder=tmp_path / "p", options=WITH_CMAKE)
    flash, sram = caught.value.details
    assert flash.startswith("flash    fits in ")
    assert sram.startswith("sram     needs ") and "of 2,048 B" in sram and "arena 1,600 B" in sram


@pytest.mark.slow
def test_external_inputs_and_outputs_build_too(tmp_path: Path) -> None:
    simavr.need_the_core()
    options = Options(io="external", template_options={"builder": "cmake"})
    model = sine.write(tmp_path / "sine.onnx")
    commands.prepare(model, board="arduino_uno", folder=tmp_path / "p", options=options, kinds=commands.ALL_KINDS)


def test_constants_may_lie_beyond_64_kilobytes_too(tmp_path: Path) -> None:
    simavr.need_the_core()
    compiled = commands.compile(DIGITS / "digits_int8.onnx", board="arduino_mega2560")
    folder = packages.write(compiled, tmp_path / "c")
    for path in sorted(folder.glob("*.c")):
        argv = ["avr-gcc", "-mmcu=atmega2560", "-Os", "-std=gnu99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow"]
        for far in ([], ["-DMT_FLASH_FAR"]):
            subprocess.run([*argv, *far, "-Werror", "-c", path.name], cwd=folder, check=True)


def test_a_model_with_more_constants_takes_the_long_way_by_itself(tmp_path: Path) -> None:
    simavr.need_the_core()
    constants = {f"m_weights{number}": np.full(20_000, number, np.int8) for number in range(4)}
    (tmp_path / "m_weights.h").write_text(
        "\n".join(weights.weights_header("/* m */", "m", constants, flash_is_apart=True))
    )
    (tmp_path / "m_weights.c").write_text("\n".join(weights.weights_source("/* m */", "m", constants)))
    headers = f"-I{resources.path('crt') / 'include'}"
    argv = ["avr-gcc", "-mmcu=atmega2560", "-std=gnu99", headers, "-c", "m_weights.c"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    assert _section_bytes(tmp_path / "m_weights.o", ".progmemx.data") == 80_000


def test_main_and_port_are_short() -> None:
    tree = _tree()
    port = tree.text("libraries/mtool_model/src/port.cpp")
    for kind in ("host_driven", "standalone"):
        assert len((tree.text(f"{kind}/main.cpp") + port).splitlines()) <= 170, kind
    assert len((tree.text("host_driven/main.cpp") + port).splitlines()) <= 150


def test_a_board_without_the_plain_core_has_no_cmake() -> None:
    other = boards.get("arduino_uno").model_copy(update={"port": {}})
    assert {"CMakeLists.txt", "toolchain.cmake", "platformio.ini"} <= set(_tree())
    assert not {"CMakeLists.txt", "toolchain.cmake", "platformio.ini", ""} & set(_tree(other))


@pytest.mark.parametrize(
    ("tool", "program", "lines"),
    [
        (
            "arduino-cli",
            "arduino-cli",
            [
                "arduino-cli compile --fqbn arduino:avr:uno --libraries libraries --build-path build/host_driven"
                " --build-property compiler.c.extra_flags=-ffp-contract=off host_driven"
            ],
        ),
        ("platformio", "pio", ["pio run --environment host_driven"]),
        (
            "cmake",
            "cmake",
            ["cmake -G Ninja -S . -B build", "cmake --build build --target host_driven"],
        ),
    ],
)
def test_each_builder_has_its_commands(tool: str, program: str, lines: list[str]) -> None:
    project = _project(builder=tool)
    assert [" ".join(argv) for argv in arduino.commands(project, ["host_driven"])] == lines
    assert arduino.TOOLS[tool].program == program


def test_the_first_tool_that_is_installed_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert arduino.tool_of(_project()) == "arduino-cli"
    fake(tmp_path, "cmake")
    assert arduino.tool_of(_project()) == "cmake"
    fake(tmp_path, "pio")
    assert arduino.tool_of(_project()) == "platformio"
    fake(tmp_path, "arduino-cli")
    assert arduino.tool_of(_project()) == "arduino-cli"
    other = boards.get("arduino_uno").model_copy(update={"port": {}})
    with pytest.raises(UsageError, match="can't be built with cmake"):
        arduino.tool_of(_project(builder="cmake").model_copy(update={"board": other}))


@pytest.mark.parametrize(("tool", "program"), [("arduino-cli", "arduino-cli"), ("platformio", "pio")])
def test_a_missing_tool_is_reported(tool: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=f"{program} is not installed") as caught:
        arduino.compiler(tmp_path, _project(builder=tool))
    assert caught.value.hint


def test_a_missing_core_is_reported_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    fake(tmp_path, "arduino-cli", says="Error during build: platform not installed", ends=1)
    described = _manifest(builder="arduino-cli")
    with pytest.raises(BuildError, match="the Arduino core arduino:avr is not installed") as caught:
        arduino.build(tmp_path, described, ["host_driven"])
    assert "arduino-cli core install arduino:avr" in caught.value.hint


@pytest.mark.slow
def test_a_tool_that_can_not_get_its_core_leaves_the_build_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    simavr.need_the_core()
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/bin:/usr/bin")
    fake(tmp_path / "tools", "pio", says="Platform Manager: Installing atmelavr\nHTTPClientError:", ends=1)
    model = sine.write(tmp_path / "sine.onnx")
    prepared = commands.prepare(model, board="arduino_uno", folder=tmp_path / "p")
    assert prepared.built.firmware["host_driven"].is_file()
    assert "building with CMake and Debian's Arduino core instead" in caplog.text
    with pytest.raises(BuildError, match="PlatformIO can't download") as caught:
        arduino.build(tmp_path, _manifest(builder="platformio"), ["host_driven"])
    assert "builder=cmake" not in caught.value.hint, "a named builder is used"
    monkeypatch.setattr(arduino.shutil, "which", lambda program: "pio" if program == "pio" else None)
    with pytest.raises(BuildError) as caught:
        arduino.build(tmp_path, _manifest(), ["host_driven"])
    assert "apt-get install" in caught.value.hint and "builder=cmake" in caught.value.hint


@pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed")
def test_what_platformio_makes_gets_the_sketchs_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    made = tmp_path / "build" / "host_driven"
    made.mkdir(parents=True)
    fake(tmp_path, "pio")
    subprocess.run(["cc", "-x", "c", "-", "-o", made / "firmware.elf"], input=b"int main(void) {return 0;}", check=True)
    (made / "firmware.hex").write_text(":00000001FF\n")
    no_memories = _manifest(builder="platformio")
    assert no_memories.project is not None
    board = no_memories.project.board.model_copy(update={"memories": {}})
    project = no_memories.project.model_copy(update={"board": board})
    arduino.build(tmp_path, no_memories.model_copy(update={"project": project}), ["host_driven"])
    assert (made / "host_driven.ino.elf").read_bytes() == (made / "firmware.elf").read_bytes()
    assert (made / "host_driven.ino.hex").is_file()
    assert (tmp_path / "log").read_text() == "pio run --environment host_driven\n"


def _tree(board: boards.Board | None = None) -> FileTree:
    model = commands.compile(DIGITS / "digits_int8.onnx", board=board or "arduino_uno")
    return model.render_project()[0]


def _manifest(**options: str) -> Manifest:
    model = commands.compile(
        DIGITS / "digits_int8.onnx", board="arduino_uno", options=Options(template_options=options)
    )
    return model.render_project()[1]


def _project(**options: str) -> Project:
    project = _manifest(**options).project
    assert project is not None
    return project


def _section_bytes(elf: Path, name: str) -> int:
    from elftools.elf.elffile import ELFFile

    with elf.open("rb") as file:
        section = ELFFile(file).get_section_by_name(name)
        return 0 if section is None else int(section["sh_size"])
