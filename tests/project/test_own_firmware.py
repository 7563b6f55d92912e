"""A package with the RPC server in firmware of the user's own, driven at its port."""

import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import packages
import pytest

from mtool import commands
from mtool.base import resources
from mtool.base.errors import CommunicationError, UsageError
from mtool.base.option_values import Format
from mtool.cli import app
from mtool.compiler.codegen import conventions
from mtool.compiler.plan.pool import Pool
from mtool.device import session
from mtool.stages.deployment import Deployment
from mtool.stages.job import own_firmware
from tests.arduino import sine

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
OWN = resources.path("examples/own_firmware")
WITHOUT_BOARD: tuple[Format, ...] = ("arduino-lib", "platformio-lib", "idf-component", "cmsis-pack", "zephyr-module")


def built(folder: Path, source: Path, *arguments: str) -> Path:
    subprocess.run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", *arguments], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", folder], check=True, capture_output=True)
    return folder


@contextmanager
def emulated(machine: str, program: Path) -> Iterator[str]:
    """Run a program in QEMU, and return the port of its first UART."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    emulator = ("qemu-system-arm", "-M", machine, "-nographic", "-monitor", "none", "-icount", "shift=0")
    serial = f"tcp:127.0.0.1:{number},server=on,wait=off"
    with subprocess.Popen([*emulator, "-serial", serial, "-kernel", program]) as running:
        try:
            time.sleep(0.5)
            yield f"tcp://127.0.0.1:{number}"
        finally:
            running.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder with the package in build/."""
    path = tmp_path_factory.mktemp("own")
    before = Path.cwd()
    os.chdir(path)
    packages.write(commands.compile(DIGITS, board="host"), path / "build/digits", form="cmake", rpc=True)
    yield path
    os.chdir(before)


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[str]:
    """The pseudo-terminal of a program that contains the package (examples/own_firmware/ports/posix.c)."""
    sources = [*(folder / "build/digits/src").glob("*.c"), OWN / "ports/posix.c"]
    program = folder / "program"
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
    includes = f"-I{folder / 'build/digits/include'}"
    subprocess.run(["gcc", "-std=c99", "-O0", *warnings, includes, *sources, "-o", program, "-lm"], check=True)
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        yield served.stdout.readline().strip()
        served.kill()


@pytest.fixture(scope="module")
def timer(folder: Path) -> ctypes.CDLL:
    """The package with a counter that the test sets."""
    package, library = folder / "build/digits", folder / "timer.so"
    (folder / "timer.c").write_text(CLOCK)
    sources = [*(package / "src").glob("*.c"), folder / "timer.c"]
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{package / 'include'}", *sources, "-o", library, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def typed(*arguments: str) -> int:
    """Run mtool as a user types it, and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        app.main(arguments)
    return int(ended.value.code or 0)


def test_commands_find_the_package_and_drive_the_firmware(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = {}
    for command in ("run", "verify", "verify --layers", "bench", "bench --layers"):
        assert typed(*command.split(), str(DIGITS), "--port", port, "--json") == 0
        printed[command] = json.loads(capsys.readouterr().out)
    assert [one["difference"]["differing"] for one in printed["verify --layers"]["layers"]] == [0] * 6
    assert printed["bench"]["time_ns"] > 0 and printed["bench"]["instructions"] is None
    assert printed["bench"]["firmware"] == "own" and printed["bench --layers"]["unit"] == "ns"
    assert own_firmware(DIGITS, Deployment(port=port)) == Path("build/digits")
    assert typed("run", "build/digits", "--port", port, "--json") == 0


def test_two_models_and_another_folder(
    folder: Path, port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(DIGITS.read_bytes())
    assert typed("verify", str(DIGITS), str(copy), "--port", port) == 0
    printed = capsys.readouterr()
    assert printed.out.count("matches") == 2 and "compile" not in printed.err
    data = str(DIGITS.with_name("test_data.npz"))
    assert typed("evaluate", str(DIGITS), str(copy), "--port", port, "--data", data, "--samples", "3") == 0
    printed = capsys.readouterr()
    assert printed.out.count("100.0% (43.9% to 100.0%)") == 2 and "compile" not in printed.err
    monkeypatch.chdir(tmp_path)
    assert typed("run", str(DIGITS), "--port", port) == 8
    assert "--on PACKAGE" in capsys.readouterr().err
    assert typed("run", str(DIGITS), "--port", port, "--on", str(folder / "build/digits")) == 0
    assert typed("run", str(folder / "build/digits"), "--on", str(folder / "build/digits")) == 2
    assert "--on can't be combined with a project folder" in capsys.readouterr().err


def test_the_firmware_serves_again_after_a_reset(folder: Path, port: str) -> None:
    image = {"image": np.zeros((1, 1, 8, 8), np.int8)}
    with session.open(folder / "build/digits", port=port) as device:
        before = device.run(image)["scores"]
        assert device.stack_bytes() is None
        device.reset()
    with session.open(folder / "build/digits", port=port) as device:
        assert (device.run(image)["scores"] == before).all()


CLOCK = """
#include "mt_rpc.h"
uint32_t ticks, rate;
uint32_t mt_rpc_time(uint32_t *hz) { *hz = rate; return ticks; }
size_t mt_rpc_read(uint8_t *bytes, size_t capacity) { (void)bytes; (void)capacity; return 0; }
void mt_rpc_write(const uint8_t *bytes, size_t count) { (void)bytes; (void)count; }
void mt_rpc_idle(void) { }
"""


@pytest.mark.parametrize("start", [0, 1, 2**31 - 5, 2**32 - 10, 2**32 - 1])
@pytest.mark.parametrize(
    ("ticks", "hz", "ns"), [(30, 10**9, 30), (2**32 - 1, 10**6, (2**32 - 1) * 1000), (84, 84 * 10**6, 1000)]
)
def test_a_time_is_measured_wherever_the_counter_wraps(
    timer: ctypes.CDLL, start: int, ticks: int, hz: int, ns: int
) -> None:
    counter, rate = (ctypes.c_uint32.in_dll(timer, name) for name in ("ticks", "rate"))
    counter.value, rate.value, elapsed = start, hz, ctypes.c_uint64()
    assert timer.mt_port_timer_start() == 0
    counter.value = (start + ticks) & 0xFFFFFFFF
    assert (timer.mt_port_timer_stop(ctypes.byref(elapsed)), elapsed.value) == (0, ns)


READ = "return count > 0 ? (size_t)count : 0;"
TIME = "return (uint32_t)now.tv_sec * 1000000000u + (uint32_t)now.tv_nsec;"
SENT = "const ssize_t sent = write(terminal, bytes, count);"
RATE = "*hz = 1000000000;"
TEXT = '(void)!write(terminal, *bytes == 10 ? "\\r\\n" : (const char *)bytes, 1 + (*bytes == 10));'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (READ, "return (size_t)count;", ""),  # -1, or 0
        (READ, "return count > 0 ? (size_t)count + capacity : 0;", "sent nothing within"),
        (TIME, "return 5;", "timer does not run.*a counter that is enabled and counts up"),
        (RATE, "*hz = 0;", "timer does not run.*a counter that is enabled and counts up"),
        (TIME, TIME.replace("return ", "return 0u - (").replace(";", ");"), "timer counts down, or at another rate"),
        (RATE, "*hz = 100000000;", "timer is 10.* times as fast as this computer's clock: mt_rpc_time returns"),
        (SENT, "ssize_t sent = write(terminal, bytes, count > 48 ? 48 : count); sent = (ssize_t)count;", "as they are"),
        (SENT, f"{TEXT} ssize_t sent = 1;", "does its port lose bytes, or change them"),
    ],
    ids=["-1", "more than fits", "stands still", "no rate", "down", "ten times", "short", "text"],
)
def test_what_is_wrong_with_a_port(
    before: str, after: str, says: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (OWN / "ports/posix.c").read_text()
    assert before in text
    (tmp_path / "port.c").write_text(text.replace(before, after))
    sources = [*(folder / "build/digits/src").glob("*.c"), tmp_path / "port.c"]
    argv = ["gcc", "-std=c99", "-O1", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    argv += [f"-I{folder / 'build/digits/include'}", *map(str, sources), "-o", str(tmp_path / "program"), "-lm"]
    subprocess.run(argv, check=True)
    with subprocess.Popen([tmp_path / "program"], stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        status = typed("bench", str(DIGITS), "--port", served.stdout.readline().strip(), "--repeat", "1")
        assert served.poll() is None, "the firmware goes on"
        served.kill()
    printed = " ".join(capsys.readouterr().err.split())
    assert re.search(says, printed), printed
    assert (status == 0) == (not says or "times as fast" in says)


@pytest.mark.slow
def test_several_models_are_found_by_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    models = [shutil.copy(DIGITS, tmp_path), sine.write(tmp_path / "sine.onnx")]
    assert typed("compile", *map(str, models), "--emit", "cmake", "--rpc", "--output-dir", "build/both") == 0
    argv = ["gcc", "-std=c99", "-O0", "-Ibuild/both/include", *map(str, Path("build/both/src").glob("*.c"))]
    subprocess.run([*argv, str(OWN / "ports/posix.c"), "-o", "program", "-lm"], check=True)
    with subprocess.Popen(["./program"], stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        port = served.stdout.readline().strip()
        for path in models:
            capsys.readouterr()
            assert typed("verify", Path(path).name, "--port", port, "--samples", "1") == 0
            assert f"{Path(path).name} on host matches" in capsys.readouterr().out
        served.kill()


@pytest.mark.slow
def test_two_servers_in_one_firmware_are_an_error(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    packages.write(
        commands.compile(DIGITS, board="host", options=commands.Options(name="b")), again, form="cmake", rpc=True
    )
    text = "cmake_minimum_required(VERSION 3.20)\nproject(app C)\n"
    text += f"add_subdirectory({folder / 'build/digits'} a)\nadd_subdirectory({again} b)\n"
    (tmp_path / "CMakeLists.txt").write_text(text)
    argv = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja"]
    failed = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert failed.returncode and "b and digits_int8 both contain mtool's RPC server" in " ".join(failed.stderr.split())


def test_another_build_and_another_model_are_refused(folder: Path, port: str, tmp_path: Path) -> None:
    other = packages.write(commands.compile(DIGITS, board="mps2_an386"), tmp_path / "other", form="cmake", rpc=True)
    with pytest.raises(CommunicationError, match="another build"):
        commands.verify(DIGITS, board="mps2_an386", deployment=Deployment(port=port), on=other)
    (tmp_path / "digits_int8.onnx").write_bytes(DIGITS.read_bytes() + b"\x32\x00")  # an empty doc_string
    with pytest.raises(UsageError, match="was not made from"):
        on = folder / "build/digits"
        commands.verify(tmp_path / "digits_int8.onnx", board="host", deployment=Deployment(port=port), on=on)


@pytest.mark.usefixtures("folder")
def test_what_only_its_own_project_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("run", "build/digits") == 6
    assert typed("flash", "build/digits", "--board", "mps2_an386") == 2
    assert typed("debug", "build/digits", "--board", "host") == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("form", WITHOUT_BOARD)
def test_the_core_must_be_known(form: Format) -> None:
    with pytest.raises(UsageError, match="without --board") as refused:
        commands.compile(DIGITS, board="host").package(form, rpc=True)
    assert "--board" in refused.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("form", ["c", "cmake", *WITHOUT_BOARD])
def test_each_package_has_the_server(form: Format, tmp_path: Path) -> None:
    package = packages.write(commands.compile(DIGITS, board="nucleo_l4r5zi"), tmp_path, form=form, rpc=True)
    if form == "cmsis-pack":
        (archive,) = package.glob("*.pack")
        shutil.unpack_archive(archive, package, "zip")
    sources = [path for path in package.rglob("*.c") if not {"examples", "samples", "zephyr"} & {*path.parts}]
    includes = {f"-I{path.parent}" for path in package.rglob("*.h")}
    core = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
    objects = tmp_path / "objects"
    objects.mkdir()
    subprocess.run(["arm-none-eabi-gcc", *core, "-Wall", "-Werror", "-c", *includes, *sources], check=True, cwd=objects)
    symbols = subprocess.run(
        ["arm-none-eabi-nm", *objects.glob("*.o")], check=True, capture_output=True, text=True
    ).stdout
    lines = [line.split()[-2:] for line in symbols.splitlines() if line.startswith((" ", "0"))]
    defined = {name for kind, name in lines if kind != "U"}
    assert "mt_poll" in defined
    left = {name for kind, name in lines if kind == "U" and name.startswith("mt_")} - defined
    assert left == {"mt_rpc_read", "mt_rpc_write", "mt_rpc_time", "mt_rpc_idle"}


def test_an_archive_has_no_server() -> None:
    with pytest.raises(UsageError, match="--rpc is not supported by --emit mlf"):
        commands.compile(DIGITS, board="mps2_an386").package("mlf", rpc=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"conventions": conventions(context=True)},
        {"conventions": conventions("step"), "arena_section": ".bss.own"},
        {"pools": (Pool("fast", 2048, section=".bss.fast"), Pool("slow", 8192, waits=2, section=".bss.slow"))},
    ],
    ids=["caller", "step", "pools"],
)
def test_options_of_the_model(options: dict[str, Any], tmp_path: Path) -> None:
    own = commands.Options(**options)
    package = packages.write(commands.compile(DIGITS, board="host", options=own), tmp_path, form="cmake", rpc=True)
    argv = ["gcc", "-std=c99", "-O0", f"-I{package / 'include'}", *(package / "src").glob("*.c"), OWN / "ports/posix.c"]
    subprocess.run([*argv, "-o", tmp_path / "program", "-lm"], check=True)
    with subprocess.Popen([tmp_path / "program"], stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        deployment = Deployment(port=served.stdout.readline().strip())
        report = commands.verify(DIGITS, board="host", options=own, deployment=deployment, on=package)
        assert all(output.differing == 0 for output in report.outputs)
        served.kill()


@pytest.mark.slow
@pytest.mark.parametrize("receives", ["interrupt", "dma"])
def test_an_application_with_the_hal_of_st(tmp_path: Path, receives: str) -> None:
    """ST's own HAL drives the UART of an emulated STM32F405; by DMA, which QEMU does not have, it is only compiled."""
    hal, cmsis = os.environ.get("STM32CUBE"), os.environ.get("CMSIS")
    if not (hal and cmsis):
        pytest.skip("STM32CUBE and CMSIS name no folders with STM32CubeF4 and CMSIS_6")
    package = packages.write(commands.compile(DIGITS, board="mps2_an386"), tmp_path / "digits", form="cmake", rpc=True)
    places = (f"-DSTM32CUBE={hal}", f"-DCMSIS={cmsis}", f"-DMODEL={package}")
    build = built(tmp_path / "build", OWN / "stm32_hal", *places, "-DQEMU=ON", f"-DDMA={receives == 'dma'}")
    if receives == "dma":
        return
    with emulated("netduinoplus2", build / "own_firmware.elf") as port:
        deployment = Deployment(port=port)
        report = commands.verify(DIGITS, board="mps2_an386", deployment=deployment, on=package)
        assert all(output.differing == 0 for output in report.outputs)
        layers = commands.verify_layers(DIGITS, board="mps2_an386", deployment=deployment, on=package)
        assert all(one.difference is not None and one.difference.differing == 0 for one in layers.layers)
        cost = commands.bench(DIGITS, board="mps2_an386", deployment=deployment, on=package)
        assert cost.time_ns is not None and cost.time_ns > 100_000


@pytest.mark.slow
@pytest.mark.skipif("ZEPHYR_BASE" not in os.environ, reason="ZEPHYR_BASE is not set")
def test_the_sample_for_zephyr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEPHYR_TOOLCHAIN_VARIANT", "gnuarmemb")
    compiler = Path(shutil.which("arm-none-eabi-gcc") or "").resolve().parents[1]
    monkeypatch.setenv("GNUARMEMB_TOOLCHAIN_PATH", str(compiler))
    package = packages.write(
        commands.compile(DIGITS, board="mps2_an386"), tmp_path / "m", form="zephyr-module", rpc=True
    )
    build = built(tmp_path / "build", package / "samples/rpc", "-DBOARD=mps2/an386")
    with emulated("mps2-an386", build / "zephyr/zephyr.elf") as port:
        report = commands.verify(DIGITS, board="mps2_an386", deployment=Deployment(port=port), on=package)
        assert all(output.differing == 0 for output in report.outputs)


# The headers of ESP-IDF that its drivers and FreeRTOS need, for an ESP32-C3.
IDF = """
    driver/uart: esp_driver_uart/include esp_hal_uart/include esp_hal_uart/esp32c3/include esp_hal_gpio/include
    kernel: freertos/FreeRTOS-Kernel/include freertos/FreeRTOS-Kernel/portable/riscv/include freertos/config/include
        freertos/FreeRTOS-Kernel/portable/riscv/include/freertos freertos/config/include/freertos
        freertos/config/riscv/include freertos/esp_additions/include
    chip: soc/include soc/esp32c3/include soc/esp32c3/register hal/include hal/platform_port/include riscv/include
        esp_hal_gpio/esp32c3/include esp_hal_clock/include esp_hal_clock/esp32c3/include esp_rom/include
        esp_rom/esp32c3/include esp_rom/esp32c3/include/esp32c3 esp_rom/esp32c3
    system: esp_common/include esp_system/include esp_timer/include esp_hw_support/include esp_hw_support/etm/include
        esp_libc/platform_include heap/include log/include
"""
SDKCONFIG = """
#define CONFIG_IDF_TARGET "esp32c3"
#define CONFIG_IDF_TARGET_ESP32C3 1
#define CONFIG_IDF_TARGET_ARCH_RISCV 1
#define CONFIG_ESP_SYSTEM_SINGLE_CORE_MODE 1
#define CONFIG_FREERTOS_HZ 100
#define CONFIG_FREERTOS_MAX_TASK_NAME_LEN 16
#define CONFIG_FREERTOS_NUMBER_OF_CORES 1
#define CONFIG_FREERTOS_TASK_NOTIFICATION_ARRAY_ENTRIES 1
#define CONFIG_FREERTOS_UNICORE 1
#define CONFIG_LOG_DEFAULT_LEVEL 3
#define CONFIG_LOG_MAXIMUM_LEVEL 3
#define CONFIG_LOG_TIMESTAMP_SOURCE_RTOS 1
#define CONFIG_LOG_VERSION 1
"""


@pytest.mark.slow
def test_the_port_for_esp_idf_compiles_with_its_headers(tmp_path: Path) -> None:
    """Espressif's own compiler and libraries are not needed to check the calls of drivers and FreeRTOS."""
    if "IDF_PATH" not in os.environ:
        pytest.skip("IDF_PATH names no ESP-IDF")
    if shutil.which("riscv64-unknown-elf-gcc") is None:
        pytest.skip("riscv64-unknown-elf-gcc is not installed")
    idf = Path(os.environ["IDF_PATH"]) / "components"
    package = packages.write(
        commands.compile(DIGITS, board="esp32c3_devkitm"), tmp_path / "m", form="idf-component", rpc=True
    )
    (tmp_path / "sdkconfig.h").write_text(SDKCONFIG)
    headers = [word for word in IDF.split() if not word.endswith(":")]
    argv = ["riscv64-unknown-elf-gcc", "--specs=picolibc.specs", "-march=rv32imc_zicsr_zifencei", "-mabi=ilp32"]
    argv += ["-std=gnu17", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-DESP_PLATFORM=1"]
    argv += [f"-I{tmp_path}", f"-I{package / 'include'}", *(f"-isystem{idf / one}" for one in headers)]
    sources = [OWN / "ports/esp_idf.c", *package.glob("examples/*/main/main.c"), *(package / "src").glob("*.c")]
    for source in sources:
        subprocess.run([*argv, "-c", source, "-o", tmp_path / f"{source.stem}.o"], check=True)
    symbols = subprocess.run(["riscv64-unknown-elf-nm", tmp_path / "esp_idf.o"], check=True, capture_output=True)
    for name in ("mt_rpc_read", "mt_rpc_write", "mt_rpc_time", "mt_rpc_idle", "mt_rpc_reset", "rpc_start"):
        assert f" T {name}\n" in symbols.stdout.decode()
