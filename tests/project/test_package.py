"""Each package works unchanged in its ecosystem, as far as that can be tried here."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import packages
import pytest
import yaml
from onnx import helper, numpy_helper

from mtool import commands, project
from mtool.base import filetree, resources
from mtool.base.option_values import Format
from mtool.commands import Options
from mtool.compiler.codegen import Conventions, conventions
from tests.arduino import simavr

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
KWS = Path(__file__).parents[3] / "shared" / "models" / "kws" / "kws_int8_qdq.onnx"
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-ffp-contract=off"]


CONVENTIONS = [conventions(), conventions("packed", "packed"), conventions("step"), conventions(executor="graph")]

each_convention = pytest.mark.parametrize("chosen", CONVENTIONS, ids=["c", "packed", "step", "graph"])


def write(form: Format, folder: Path, *, model: Path = DIGITS, board: str = "host", **options: object) -> Path:
    compiled = commands.compile(model, board=board, options=Options(**options))  # type: ignore[arg-type]
    return packages.write(compiled, folder, form=form)


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@pytest.mark.parametrize("form", project.FORMATS)
@pytest.mark.product(2)
def test_a_package_is_the_same_each_time(form: Format, tmp_path: Path) -> None:
    board = "mps2_an385"  # for one core: what it is made for many of is tried in test_portable.py
    folder = write(form, tmp_path / "a", board=board)
    first = filetree.from_folder(folder)
    assert first.files == filetree.from_folder(write(form, tmp_path / "b", board=board)).files
    assert not [path for path in first if "{{" in path or "_rpc" in path]
    archived = (".tar", ".pack")
    assert not [path for path in first if not path.endswith(archived) and "{{" in first.text(path)]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    write(form, folder, board=board)
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_cmake_project_takes_the_package(tmp_path: Path) -> None:
    need("cmake", "ninja", "cc")
    write("cmake", tmp_path / "model")
    (tmp_path / "main.c").write_text(
        "#include <digits_int8.h>\n"
        "int main(void) { return (int)digits_int8_run(&digits_int8_arena_inputs, &digits_int8_arena_outputs); }\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C)\nadd_subdirectory(model)\n"
        "add_executable(app main.c)\ntarget_link_libraries(app digits_int8::digits_int8)\n"
    )
    for argv in (["cmake", "-G", "Ninja", "-B", "build"], ["cmake", "--build", "build"], ["build/app"]):
        subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    prefix = str(tmp_path / "installed")
    subprocess.run(["cmake", "--install", "build", "--prefix", prefix], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "installed/include/digits_int8.h").is_file()
    assert (tmp_path / "installed/lib/cmake/digits_int8/digits_int8-config.cmake").is_file()


@pytest.mark.slow
def test_a_cmake_project_takes_several_models(tmp_path: Path) -> None:
    need("cmake", "ninja", "cc")
    options = [Options(name="left"), Options(name="right")]
    models = commands.compile_models([DIGITS, DIGITS], board="host", options=options)
    packages.write(models[0], tmp_path / "model", form="cmake")
    (tmp_path / "main.c").write_text(
        "#include <left_right.h>\n"
        "int main(void) { return (int)(left_run(&left_arena_inputs, &left_arena_outputs)\n"
        "                              + right_run(&right_arena_inputs, &right_arena_outputs)); }\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C)\nadd_subdirectory(model)\n"
        "add_executable(app main.c)\ntarget_link_libraries(app left_right::left_right)\n"
    )
    for argv in (["cmake", "-G", "Ninja", "-B", "build"], ["cmake", "--build", "build"], ["build/app"]):
        subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.product(3)
@each_convention
@pytest.mark.parametrize("io", ["arena", "external"])
def test_an_arduino_sketch_takes_the_package(io: str, chosen: Conventions, tmp_path: Path) -> None:
    simavr.need_the_core()
    folder = write("arduino-lib", tmp_path / "digits_int8", board="arduino_mega2560", io=io, conventions=chosen)
    properties = dict(line.split("=", 1) for line in (folder / "library.properties").read_text().splitlines())
    assert properties["name"] == "digits_int8" and properties["includes"] == "digits_int8.h"
    core = simavr.CORE
    common = [
        "-mmcu=atmega2560",
        "-Os",
        f"-I{folder / 'src'}",
        f"-I{core / 'cores/arduino'}",
        f"-I{core / 'variants/mega'}",
    ]
    defines = ["-DF_CPU=16000000L", "-DARDUINO=10819", "-DARDUINO_ARCH_AVR", "-DDECIMAL_DIG=__DECIMAL_DIG__"]
    for source in sorted((folder / "src").glob("*.c")):
        subprocess.run(
            ["avr-gcc", "-std=gnu11", *common, *defines, "-Wall", "-Werror", "-c", source], cwd=tmp_path, check=True
        )
    sketch = folder / "examples/digits_int8_example/digits_int8_example.ino"
    argv = ["avr-g++", "-std=gnu++11", *common, *defines, "-x", "c++", "-include", "Arduino.h", "-c", sketch]
    subprocess.run(argv, cwd=tmp_path, check=True)


@pytest.mark.skipif(not KWS.is_file(), reason="the shared models are not beside the repository")
def test_keyword_spotting_compiles_for_an_arm_core_as_an_arduino_library(tmp_path: Path) -> None:
    need("arm-none-eabi-gcc")
    folder = write("arduino-lib", tmp_path / "kws", model=KWS, board="mps2_an386")
    cpu = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]  # as Arduino's mbed and nRF52 cores
    sources = sorted((folder / "src").glob("*.c"))
    subprocess.run(["arm-none-eabi-gcc", "-std=gnu11", *cpu, "-Os", "-Wall", "-c", *sources], cwd=tmp_path, check=True)


@pytest.mark.product(3)
@pytest.mark.parametrize(
    ("board", "flags"),
    [
        ("mps2_an385", ["-mcpu=cortex-m3", "-mthumb"]),
        ("mps2_an386", ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]),
        ("mps3_an547", ["-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"]),
    ],
)
def test_an_int8_model_needs_no_math_library(board: str, flags: list[str], tmp_path: Path) -> None:
    """Some C libraries, as Zephyr's minimal one, have a math.h without most of its functions."""
    need("arm-none-eabi-gcc")
    folder = write("c", tmp_path / "c", board=board)
    (tmp_path / "c/math.h").write_text("#error an int8 model includes math.h\n")
    argv = ["arm-none-eabi-gcc", "-std=c99", "-O2", *flags, f"-I{folder}", "-Werror=implicit-function-declaration"]
    subprocess.run([*argv, "-r", "-nostdlib", "-o", "all.o", *sorted(folder.glob("*.c"))], cwd=tmp_path, check=True)
    printed = subprocess.run(["arm-none-eabi-nm", "-u", "all.o"], cwd=tmp_path, check=True, capture_output=True)
    assert {*printed.stdout.decode().split()} - {"U"} <= {"memcpy", "memset"}


@pytest.mark.product(3)
@each_convention
@pytest.mark.parametrize("io", ["arena", "external"])
def test_a_platformio_library_is_described_and_compiles(io: str, chosen: Conventions, tmp_path: Path) -> None:
    need("cc")
    folder = write("platformio-lib", tmp_path / "lib", board="mps2_an385", io=io, conventions=chosen)
    described = json.loads((folder / "library.json").read_text())
    assert described["name"] == "digits_int8" and (folder / "src" / described["headers"]).is_file()
    sources = [*sorted((folder / "src").rglob("*.c")), folder / "examples/digits_int8_example/main.c"]
    subprocess.run(["cc", *STRICT, f"-I{folder / 'src'}", *sources, "-lm", "-o", "app"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "app"], check=True)


def test_a_zephyr_module_is_described(tmp_path: Path) -> None:
    folder = write("zephyr-module", tmp_path / "module", board="mps2_an385")
    module = yaml.safe_load((folder / "zephyr/module.yml").read_text())
    assert module["name"] == "mtool_digits_int8" and module["samples"] == ["samples"]
    settings = {"module_ext_root": "zephyr/ext"}
    assert module["build"] == {"cmake": ".", "kconfig": "Kconfig", "settings": settings}
    assert (folder / "zephyr/ext/modules/modules.cmake").is_file()
    symbols = re.findall(r"^\s*(?:menu)?config (\w+)$", (folder / "Kconfig").read_text(), re.MULTILINE)
    assert symbols[0] == "MTOOL_DIGITS_INT8" and all(symbol.startswith(symbols[0]) for symbol in symbols)
    assert "select REQUIRES_FULL_LIBC" not in (folder / "Kconfig").read_text()  # only floats need it
    floats = write("zephyr-module", tmp_path / "floats", model=_float(tmp_path / "f.onnx"), board="mps2_an385")
    assert "select REQUIRES_FULL_LIBC" in (floats / "Kconfig").read_text()
    listed = re.findall(r"^ +(src/\S+)$", (folder / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert listed == [f"src/{path.name}" for path in sorted((folder / "src").glob("*.c"))]
    tests = yaml.safe_load((folder / "samples/run/sample.yaml").read_text())["tests"]
    assert [*tests] == ["sample.mtool.digits_int8.run"]
    (regex,) = tests["sample.mtool.digits_int8.run"]["harness_config"]["regex"]
    assert f'printk("{regex}\\n")' in (folder / "samples/run/src/main.c").read_text()


@pytest.mark.product(3)
@pytest.mark.parametrize(
    ("io", "chosen"),
    [("external", CONVENTIONS[0]), *(("arena", one) for one in CONVENTIONS[1:])],
    ids=["external-c", "packed", "step", "graph"],
)
def test_the_sample_of_a_zephyr_module_compiles(io: str, chosen: Conventions, tmp_path: Path) -> None:
    need("cc")
    folder = write("zephyr-module", tmp_path / "module", board="mps2_an385", io=io, conventions=chosen)
    (tmp_path / "zephyr/sys").mkdir(parents=True)
    (tmp_path / "zephyr/sys/printk.h").write_text("#include <stdio.h>\n#define printk printf\n")
    sources = [*sorted((folder / "src").glob("*.c")), folder / "samples/run/src/main.c"]
    argv = ["cc", *STRICT, f"-I{folder / 'include'}", f"-I{tmp_path}", *sources, "-lm", "-o", "app"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "app"], check=True, capture_output=True, text=True)
    assert "of 10 is the largest\n" in done.stdout and done.stdout.endswith("digits_int8: done\n")


@pytest.mark.slow
def test_a_zephyr_module_without_a_board_has_the_c_of_each_core(tmp_path: Path) -> None:
    need("arm-none-eabi-gcc")
    folder = write("zephyr-module", tmp_path / "module")
    sources = sorted((folder / "src").rglob("*.c"))
    listed = re.findall(r"^ +(src/\S+)$", (folder / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert sorted(listed) == [path.relative_to(folder).as_posix() for path in sources]
    hard = ["-mthumb", "-mfloat-abi=hard"]
    for core, flags in (
        ("PLAIN", ["-mcpu=cortex-m3", "-mthumb"]),
        ("DSP", ["-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", *hard]),
        ("DSP_NO_FPU", ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft"]),
        ("MVE", ["-mcpu=cortex-m55", *hard]),
    ):
        argv = ["arm-none-eabi-gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", *flags, f"-I{folder / 'include'}"]
        subprocess.run([*argv, "-fsyntax-only", *sources], check=True)
        header = folder / "include/digits_int8_core.h"
        reported = subprocess.run([*argv, "-dM", "-E", header], check=True, capture_output=True, text=True).stdout
        assert re.findall(r"DIGITS_INT8_CORE_(?!H)(\w+)", reported) == [core]


def _float(path: Path) -> Path:
    """Write a model of floats that needs the mathematics of a C library."""
    weights = numpy_helper.from_array(np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Softmax", ["y"], ["z"])]
    values = [helper.make_tensor_value_info(*one) for one in (("x", 1, [1, 8]), ("z", 1, [1, 4]))]
    graph = helper.make_graph(nodes, "f", values[:1], values[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.skipif("ZEPHYR_BASE" not in os.environ, reason="ZEPHYR_BASE is not set")
def test_zephyr_builds_with_the_module(tmp_path: Path) -> None:
    need("cmake", "ninja", "arm-none-eabi-gcc")
    audio = _float(tmp_path / "audio.onnx")
    folders = [
        write("zephyr-module", tmp_path / "digits", board="mps2_an385"),
        write("zephyr-module", tmp_path / "audio", model=audio, board="mps2_an385"),
    ]
    app = tmp_path / "app"
    app.mkdir()
    (app / "prj.conf").write_text("CONFIG_MTOOL_DIGITS_INT8=y\nCONFIG_MTOOL_AUDIO=y\nCONFIG_MTOOL_AUDIO_O3=y\n")
    (app / "main.c").write_text(
        "#include <audio.h>\n#include <digits_int8.h>\n"
        "int main(void) { return (int)(digits_int8_run(&digits_int8_arena_inputs, &digits_int8_arena_outputs) + "
        "audio_run(&audio_arena_inputs, &audio_arena_outputs)); }\n"
    )
    (app / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nfind_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})\n"
        "project(app)\ntarget_sources(app PRIVATE main.c)\n"
    )
    compiler = Path(shutil.which("arm-none-eabi-gcc") or "").resolve().parents[1]
    environment = {
        **os.environ,
        "ZEPHYR_TOOLCHAIN_VARIANT": os.environ.get("ZEPHYR_TOOLCHAIN_VARIANT", "gnuarmemb"),
        "GNUARMEMB_TOOLCHAIN_PATH": str(compiler),
    }
    configure = ["cmake", "-G", "Ninja", "-B", "build", "-DBOARD=mps2/an385", "."]
    configure.append(f"-DEXTRA_ZEPHYR_MODULES={';'.join(map(str, folders))}")
    for argv in (configure, ["cmake", "--build", "build"]):
        done = subprocess.run(argv, cwd=app, env=environment, check=True, capture_output=True, text=True)
    assert "warning:" not in done.stdout + done.stderr
    assert (app / "build/zephyr/zephyr.elf").is_file()


@pytest.mark.product(3)
@pytest.mark.parametrize("name", ["test", "m", "gpio"])
def test_cmake_takes_a_model_whose_name_is_a_target_or_a_library(name: str, tmp_path: Path) -> None:
    need("cmake", "ninja", "cc")
    (tmp_path / f"{name}.onnx").write_bytes(DIGITS.read_bytes())
    write("cmake", tmp_path / "model", model=tmp_path / f"{name}.onnx")
    (tmp_path / "main.c").write_text(
        f"#include <{name}.h>\n#include <math.h>\n"
        f"int main(void) {{ return (int){name}_run(&{name}_arena_inputs, &{name}_arena_outputs); }}\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C)\nenable_testing()\nadd_subdirectory(model)\n"
        f"add_executable(app main.c)\ntarget_link_libraries(app model_{name}::model_{name})\n"
    )
    for argv in (["cmake", "-G", "Ninja", "-B", "build"], ["cmake", "--build", "build"], ["build/app"]):
        subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
