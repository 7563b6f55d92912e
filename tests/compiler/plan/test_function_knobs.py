"""Operators with their own build options, another optimization level or weights in RAM, with each builder."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import packages
import pytest

import mtool
from mtool import boards, commands, manifest
from mtool.base import resources
from mtool.base.errors import UsageError
from mtool.base.option_values import Format
from mtool.commands import Deployment, Options
from mtool.compiler.plan import Choice
from mtool.device.build import size

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
SCHEDULES = {
    "conv_0": Choice("c99_patch", {"opt": "O3"}),
    "conv_2": Choice("c99_patch", {"opt": "Os", "weights": "ram"}),
}
LEVELS = {**SCHEDULES, "conv_2": Choice("c99_patch", {"opt": "Os"})}
OPTIONS = Options(schedules=SCHEDULES)

needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)


def test_each_level_has_a_file_and_the_rest_stays() -> None:
    plain = mtool.compile(DIGITS, board="host", options=Options(schedules={"conv_0": Choice("c99_patch")}))
    leveled = mtool.compile(DIGITS, board="host", options=OPTIONS)
    added = {*leveled.files} - {*plain.files}
    assert added == {"digits_int8_O3.c", "digits_int8_Os.c"}
    defined = "MT_ALONE void digits_int8_conv_0("
    assert defined in plain.files.text("digits_int8.c") and defined in leveled.files.text("digits_int8_O3.c")
    assert defined not in leveled.files.text("digits_int8.c") + leveled.files.text("digits_int8_Os.c")
    assert '#pragma GCC optimize ("O3")' in leveled.files.text("digits_int8_O3.c")
    reported = {one.name: one.schedule for one in leveled.manifest.operators}
    assert reported["conv_0"] == "c99_patch:opt=O3"
    auto = mtool.compile(DIGITS, board="host", options=Options(schedules={"conv_0": Choice("c99_patch", {"opt": ""})}))
    assert auto.files == plain.files


def test_an_unknown_level_is_reported() -> None:
    with pytest.raises(UsageError, match="knob opt of c99_patch can't be O9") as caught:
        mtool.compile(DIGITS, board="host", options=Options(schedules={"conv_0": Choice("c99_patch", {"opt": "O9"})}))
    assert "allowed values: auto, O2, O3, Os" in caught.value.details


@pytest.mark.slow
@needs_arm
def test_the_board_computes_the_same_with_the_requested_settings(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "p")
    mtool.verify(DIGITS, board="mps2_an386", options=OPTIONS, deployment=deployment).check()
    entries = json.loads((tmp_path / "p" / "build" / "compile_commands.json").read_text())
    for level in ("O3", "Os"):
        (argv,) = (one["command"].split() for one in entries if one["file"].endswith(f"_{level}.c"))
        assert [word for word in argv if word.startswith("-O")] == ["-O2", f"-{level}"]
    named = subprocess.run(
        ["arm-none-eabi-nm", tmp_path / "p" / "build" / "host_driven.elf"], check=True, capture_output=True, text=True
    )
    kinds = {line.split()[2]: line.split()[1] for line in named.stdout.splitlines()}
    assert (kinds["digits_int8_conv_0_weights"], kinds["digits_int8_conv_2_weights"]) == ("R", "D")


@pytest.mark.slow
@needs_arm
def test_code_runs_in_ram_with_the_same_results(tmp_path: Path) -> None:
    """It is half a gigabyte away from the rest, so that calls in both directions need the linker's veneers."""
    known = boards.get("mps2_an386")
    roles = {"block_ram": (), "psram": ("hot_code",)}
    memories = {
        name: one.model_copy(update={"holds": roles.get(name, one.holds), "pool": None})
        for name, one in known.memories.items()
    }
    board = known.model_copy(update={"memories": memories})
    hot = {
        "conv_2": "dsp_winograd:code=ram",
        "conv_3": "c99_patch:code=ram,opt=Os",
        "dense_5": "c99_rows:code=ram,opt=O3",
    }
    deployment = Deployment(tmp_path / "p")
    mtool.verify(DIGITS, board=board, options=Options(schedules=hot), deployment=deployment).check()
    elf = tmp_path / "p" / "build" / "host_driven.elf"
    found = size.addresses(elf)
    inside = [name for name, address in found.items() if address >> 24 == 0x21]
    assert {"digits_int8_conv_2", "digits_int8_dense_5"} < {*inside}
    assert any(name.startswith("mt_dsp_winograd") for name in inside)
    measured = size.measure(elf, manifest.load(tmp_path / "p"))
    assert measured.memories["psram"] == measured.hot_code_bytes > 2000
    assert measured.ram_static_bytes > measured.hot_code_bytes
    listed = subprocess.run(["arm-none-eabi-nm", elf], check=True, capture_output=True, text=True).stdout
    veneers = {line.split()[-1] for line in listed.splitlines() if line.endswith("_veneer")}
    assert "__digits_int8_conv_2_veneer" in veneers and any(not one.startswith("__digits") for one in veneers)


@pytest.mark.parametrize(
    ("template", "path", "line"),
    [
        ("baremetal", "src/linker.ld", "*/model/digits_int8_hot.c.o*(.text .text.*)"),
        ("baremetal", "src/startup.c", "load = mt_hot_code_load;"),
        ("zephyr", "CMakeLists.txt", "  model/digits_int8_hot.c\n  LOCATION MTHOTCODE_TEXT)"),
        ("zephyr", "app.overlay", "mt_hot_code: memory@1000000 {"),
        ("zephyr", "prj_standalone.conf", "CONFIG_CODE_DATA_RELOCATION=y"),
    ],
)
def test_templates_place_code_in_ram(template: str, path: str, line: str) -> None:
    for schedule, is_hot in (("c99_patch:code=ram", True), ("c99_patch", False)):
        options = Options(schedules={"conv_2": schedule}, template=template)
        tree, _ = mtool.compile(DIGITS, board="mps2_an386", options=options).render_project()
        assert (path in tree and line in tree.text(path)) == is_hot


def test_a_single_file_has_code_for_ram_too() -> None:
    options = Options(schedules={"conv_2": "c99_patch:code=ram,opt=O3"}, single_file=True)
    text = mtool.compile(DIGITS, board="mps2_an386", options=options).package("c").text("digits_int8.c")
    assert "digits_int8_conv_2(" in text and text.count("#pragma GCC pop_options") == 1


def test_constants_in_ram_are_variables() -> None:
    compiled = mtool.compile(DIGITS, board="mps2_an386", options=OPTIONS)
    header = compiled.files.text("digits_int8_weights.h")
    assert re.search(r"extern int8_t digits_int8_conv_2_weights", header)
    assert re.search(r"extern const int8_t digits_int8_conv_0_weights", header)


def test_an_avr_has_its_constants_in_flash() -> None:
    with pytest.raises(UsageError, match="can't be placed in RAM"):
        mtool.compile(DIGITS, board="arduino_mega2560", options=Options(schedules={"conv_2": SCHEDULES["conv_2"]}))


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.slow
def test_this_computer_compiles_them_apart(tmp_path: Path) -> None:
    compiled = mtool.compile(DIGITS, board="host", options=OPTIONS)
    lines, _ = commands.build_plan(compiled, tmp_path / "p")
    assert "cc @level.args -O3 -c model/digits_int8_O3.c -o build/digits_int8_O3.c.o" in lines
    mtool.verify(DIGITS, board="host", options=OPTIONS, deployment=Deployment(tmp_path / "p")).check()


@pytest.mark.parametrize(
    ("board", "template", "path", "line"),
    [
        ("mps2_an386", "zephyr", "CMakeLists.txt", "model/digits_int8_O3.c PROPERTIES COMPILE_OPTIONS -O3"),
        ("arduino_mega2560", "arduino", "CMakeLists.txt", "src/digits_int8_O3.c PROPERTIES COMPILE_OPTIONS -O3"),
        ("arduino_mega2560", "arduino", "libraries/mtool_model/src/digits_int8_O3.c", '#pragma GCC optimize ("O3")'),
    ],
)
def test_every_builder_gets_the_level(board: str, template: str, path: str, line: str) -> None:
    options = Options(schedules=LEVELS, template=template, weights="text")
    tree, described = mtool.compile(DIGITS, board=board, options=options).render_project()
    assert line in tree.text(path)
    assert described.project is not None and {*described.project.levels.values()} == {"-O3", "-Os"}


@pytest.mark.parametrize(
    ("form", "name"), [("cmake", "digits_int8_Os.c"), ("zephyr-module", "plain/digits_int8_Os_plain.c")]
)
def test_packages_also_have_the_level(form: Format, name: str) -> None:
    compiled = mtool.compile(DIGITS, board="host", options=OPTIONS)
    assert f"src/{name} PROPERTIES COMPILE_OPTIONS" in compiled.package(form).text("CMakeLists.txt")


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
def test_clang_takes_the_files_without_a_warning(tmp_path: Path) -> None:
    compiled = mtool.compile(DIGITS, board="host", options=OPTIONS)
    folder = packages.write(compiled, tmp_path / "c")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only"]
    subprocess.run(["clang", *flags, "digits_int8_O3.c", "digits_int8_Os.c"], cwd=folder, check=True)
