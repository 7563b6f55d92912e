"""Packages of models that were compiled with other options: each form's example is built, run and equal to onnxruntime.

The examples run on zeros, on this computer, or on an emulated Cortex-M4.
"""

import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import packages
import pytest

from mtool import boards, commands
from mtool.base import resources
from mtool.base.errors import UsageError
from mtool.base.option_values import Format
from mtool.commands import Options
from mtool.compiler.codegen import conventions
from mtool.compiler.plan.pool import Pool
from mtool.device.transport import emulator

HERE = Path(__file__).parent
DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-ffp-contract=off")
CALLER = conventions(context=True)
POOLS = (Pool("fast", 700, section=".bss.fast"), Pool("slow", 4096, waits=2, section=".bss.slow"))
CONSTANTS = (Pool("qspi", 1 << 20, "constants", section=".qspi"),)

OPTIONS: Mapping[str, Sequence[dict[str, Any]]] = {
    "caller": [{"conventions": CALLER}],
    "caller, external": [{"conventions": CALLER, "io": "external"}],
    "section": [{"arena_section": ".bss.dtcm"}],
    "pools": [{"pools": POOLS}],
    "constants in a pool": [{"pools": CONSTANTS}],
    "caller, pools": [{"pools": POOLS, "conventions": CALLER}],
    "pointers": [{"conventions": conventions("pointers")}],
    "packed": [{"conventions": conventions("packed", "packed"), "io": "external"}],
    "step": [{"conventions": conventions("step")}],
    "feed": [{"conventions": conventions("feed")}],
    "values": [{"conventions": conventions("c", "values")}],
    "graph": [{"conventions": conventions(executor="graph")}],
    "several": [{"name": "left", "io": "external"}, {"name": "right", "io": "external"}],
    "several, own": [{"name": "left", "arenas": "own", "pools": POOLS}, {"name": "right", "arenas": "own"}],
    "several, caller": [{"name": "left", "conventions": CALLER}, {"name": "right", "conventions": CALLER}],
}
FORMS: tuple[Format, ...] = (
    "cmake", "zephyr-module", "arduino-lib", "platformio-lib", "idf-component", "cmsis-pack",
)  # fmt: skip

# What the examples include of their ecosystems.
PRINTK = "#include <stdio.h>\n#define printk printf\n"
STDIO = """
#ifdef __cplusplus
extern "C"
#endif
int print(const char *format, ...);
#define printf print
#define puts(text) print("%s\\n", text)
"""
ARDUINO = """
#pragma once
#include <stdint.h>
#include <stdio.h>
#define F(text) text
static struct {
    void begin(long) {}
    void println(const char *text) { puts(text); }
    void println(int number) { printf("%d\\n", number); }
} Serial;
static inline void delay(int) {}
"""
SKETCH = """
#include "example.ino"
int main(void) { setup(); loop(); return 0; }
"""
IDF = """
#include "main.c"
int main(void) { app_main(); return 0; }
"""


def expected() -> np.ndarray:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(DIGITS, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"image": np.zeros((1, 1, 8, 8), np.int8)})[0]).reshape(-1)


def write(form: Format, options: Sequence[dict[str, Any]], board: str, folder: Path) -> Path:
    """Write a package; return its folder with the sources in `src`."""
    each = [Options(portable=True, **one) for one in options]
    models = commands.compile_models([DIGITS] * len(each), board=board, options=each)
    packages.write(models[0], folder, form=form)
    for pack in folder.glob("*.pack"):
        shutil.unpack_archive(pack, folder, "zip")
    return folder


def example(form: Format, options: Sequence[dict[str, Any]], board: str, package: Path) -> tuple[Path, str]:
    """Return the package's example and its language; a form that has none takes another form's."""
    if form in ("cmake", "cmsis-pack", "platformio-lib"):  # they have none, or one that prints nothing
        other = write("idf-component", options, board, package.with_name("other"))
        return next(other.glob("examples/*/main/main.c")), IDF
    pattern = {"zephyr-module": "samples/run/src/main.c", "arduino-lib": "examples/*_example/*.ino"}
    source = next(package.glob(pattern.get(form, "examples/*/main/main.c")))
    return source, SKETCH if form == "arduino-lib" else IDF if form == "idf-component" else '#include "main.c"\n'


def numbers(form: Format, printed: str, count: int) -> bool:
    """Whether what an example prints are the outputs of `count` models for zeros."""
    want = expected()
    lines = printed.splitlines()
    if form == "zephyr-module":
        line = f"scores: element {want.argmax()} of {want.size} is the largest"
        return [one for one in lines if "done" not in one] == [line] * count and lines[-1].endswith(": done")
    found = [line.split()[-1] for line in lines if line != "ok"]
    return [int(one) for one in found] == [*want.tolist()] * count


CORTEX_M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-ffreestanding", "-O2")


def built(
    form: Format,
    options: Sequence[dict[str, Any]],
    board: str,
    folder: Path,
    prefix: str = "",
    flags: Sequence[str] = (),
) -> Path:
    """Build the example of a package on this computer, or with another compiler, without a warning."""
    package = write(form, options, board, folder / "package")
    source, text = example(form, options, board, package)
    for name, content in (("zephyr/sys/printk.h", PRINTK), ("Arduino.h", ARDUINO)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    is_sketch = text is SKETCH
    shutil.copy(source, folder / ("example.ino" if is_sketch else "main.c"))
    main = folder / ("app.cpp" if is_sketch else "app.c")
    main.write_text(text)
    if form == "cmake":
        (folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C)\nadd_subdirectory(package)\n"
            "add_executable(app app.c)\n"
            f"target_link_libraries(app {'left_right::left_right' if len(options) > 1 else 'digits_int8::digits_int8'})"
        )
        for argv in (["cmake", "-G", "Ninja", "-B", "build"], ["cmake", "--build", "build"]):
            subprocess.run(argv, cwd=folder, check=True, capture_output=True)
        return folder / "build/app"
    include = f"-I{package / ('include' if (package / 'include').is_dir() else 'src')}"
    c, cpp = (f"{prefix}gcc", f"{prefix}g++") if prefix else ("cc", "c++")
    own = [cpp, "-std=c++11", "-fno-exceptions", "-include", "Arduino.h"] if is_sketch else [c, "-std=c99"]
    argv = [*own, *flags, "-I.", include, "-Wall", "-Wextra", "-Werror", "-c", main]
    subprocess.run(argv, cwd=folder, check=True)
    sources = sorted((package / "src").rglob("*.c"))
    subprocess.run([c, "-std=c99", *STRICT, *flags, include, "-c", *sources], cwd=folder, check=True)
    linked: list[str | Path] = []
    if prefix:
        linked = [
            HERE / "print.c",
            "-nostartfiles",
            f"-T{HERE / 'bare.ld'}",
            "-Wl,--defsym=CODE=0,--defsym=RAM=0x20000000",
        ]
    argv = [
        c,
        *flags,
        *sorted(folder.glob("*.o")),
        *linked,
        "-lm",
        *["-lstdc++"] * (is_sketch and not prefix),
        "-o",
        "app",
    ]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / "app"


@pytest.mark.product(45)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("board", ["mps2_an385", "host"])
def test_a_package_takes_the_option(form: Format, option: str, board: str, tmp_path: Path) -> None:
    options = OPTIONS[option]
    app = built(form, options, board, tmp_path)
    printed = subprocess.run([app], check=True, capture_output=True, text=True).stdout
    assert numbers(form, printed, len(options)), printed


@pytest.mark.slow
@pytest.mark.parametrize("form", [form for form in FORMS if form != "cmake"])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("board", ["mps2_an386", "host"])
def test_a_package_with_the_option_runs_on_a_cortex_m4(form: Format, option: str, board: str, tmp_path: Path) -> None:
    machine = boards.get("mps2_an386").emulator
    assert machine is not None
    for program in ("arm-none-eabi-g++", machine.program):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    options = OPTIONS[option]
    (tmp_path / "stdio.h").write_text(STDIO)
    app = built(form, options, board, tmp_path, "arm-none-eabi-", CORTEX_M4)
    argv = emulator.command(machine, app, channel="uart")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        stops = threading.Timer(60, running.kill)
        stops.start()
        printed = bytearray()
        while (byte := running.stdout.read(1)) not in (b"", b"\x04"):
            printed += byte
        stops.cancel()
        running.kill()
    assert numbers(form, printed.decode(), len(options)), printed


def test_pools_need_a_board_or_sections() -> None:
    compiled = commands.compile(DIGITS, board="host", options=Options(pools=(Pool("dtcm", 8192),)))
    with pytest.raises(UsageError, match="whose boards do not all have dtcm") as refused:
        compiled.package("cmsis-pack")
    assert "--board" in refused.value.hint and "section=" in refused.value.hint


def test_the_readme_names_the_sections_to_place(tmp_path: Path) -> None:
    text = (write("cmsis-pack", OPTIONS["pools"], "mps2_an385", tmp_path) / "README.md").read_text()
    assert "| `.bss.fast` | `digits_int8_pool_fast`, " in text and "`.bss.slow`" in text
    text = (write("platformio-lib", OPTIONS["section"], "mps2_an385", tmp_path / "b") / "README.md").read_text()
    assert "| `.bss.dtcm` | the arena of digits_int8 |" in text
    text = (write("platformio-lib", OPTIONS["caller"], "mps2_an385", tmp_path / "c") / "README.md").read_text()
    assert "`DIGITS_INT8_ARENA_BYTES` bytes, aligned to `DIGITS_INT8_ARENA_ALIGNMENT`" in text
