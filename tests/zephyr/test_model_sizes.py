"""The sizes that `west build` prints: of a project, and of a package in an application."""

import json
import re
import subprocess
import sys
from pathlib import Path

import packages
import pytest

from mtool import commands
from mtool.base import resources
from mtool.device import build
from mtool.device.build import west
from tests.zephyr import test_zephyr

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
SCRIPT = resources.path("project_templates/shared/model_sizes.jinja")
BOARD = "mps2_an386"


def test_each_model_s_sizes_are_read_from_the_firmware(tmp_path: Path) -> None:
    lines = ["const char a_weights[300] = {1};", "char shared_arena[1000] = {1}; int main(void) { return 0; }"]
    (tmp_path / "two.c").write_text("\n".join(lines))
    subprocess.run(["cc", "-no-pie", "two.c", "-o", "two.elf"], cwd=tmp_path, check=True)
    (tmp_path / "two.map").write_text(
        "Memory Configuration\n\nName  Origin  Length  Attributes\n"
        "LOW              0x0000000000000000 0x00000000000000ff xr\n"
        "MEMORY           0x0000000000000100 0x0000000010000000 xrw\n"
        "*default*        0x0000000000000000 0xffffffffffffffff\n\nLinker script and memory map\n\nWRONG 0x0 0xffff\n"
    )
    models = [
        {"model": "a", "constants": ["a_weights", "a_gone"], "symbols": {"arena": "shared_arena"}, "arena_bytes": 900},
        {"model": "b", "constants": [], "symbols": {"arena": "shared_arena"}, "arena_bytes": 1000},
        {"model": "c", "constants": [], "symbols": {}, "arena_bytes": 50},
    ]
    (tmp_path / "mtool.json").write_text(json.dumps({"models": models}))
    argv = [sys.executable, str(SCRIPT), "two.elf", "two.map", "mtool.json"]
    printed = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == [
        "a: constants 300 B (0.0% of MEMORY); arena 1,000 B (0.0% of MEMORY), shared with b",
        "b: constants none; arena 1,000 B (0.0% of MEMORY), shared with a",
        "c: constants none; arena the caller's",
    ]


@pytest.mark.slow
class TestWest:
    pytestmark = test_zephyr.pytestmark

    def printed(self, *argv: str, cwd: Path) -> str:
        found = [west.program(), "build", *argv]
        out = subprocess.run(found, check=True, capture_output=True, text=True, cwd=cwd).stdout
        return next(line for line in out.splitlines() if line.startswith("digits_int8: "))

    def test_of_a_project(self, tmp_path: Path) -> None:
        board = test_zephyr.need(BOARD)
        model = commands.compile(DIGITS, board=board, options=test_zephyr.options())
        built = commands.build_model(model, tmp_path / "project", kinds=["host_driven"]).built
        size = build.measure(built.firmware["host_driven"], built.manifest)
        (tmp_path / "project/mtool.json").touch()
        printed = self.printed("-d", "build/host_driven", cwd=tmp_path / "project")
        assert printed == (
            f"digits_int8: constants {size.flash_const_bytes:,} B ({size.flash_const_bytes / (4 << 20):.1%} of FLASH); "
            f"arena {size.arena_bytes:,} B ({size.arena_bytes / (4 << 20):.1%} of RAM)"
        )

    @pytest.mark.parametrize("board", ["", BOARD])
    def test_of_a_package(self, board: str, tmp_path: Path) -> None:
        zephyrs_name = test_zephyr.need(BOARD).templates["zephyr"]
        model = commands.compile(DIGITS, board=board or "host")
        folder = packages.write(model, tmp_path / "module", form="zephyr-module")
        printed = self.printed("-b", zephyrs_name, "-d", "out", str(folder / "samples/run"), cwd=tmp_path)
        assert re.fullmatch(
            r"digits_int8: constants [\d,]+ B \(1..% of FLASH\); arena 3,[\d,]+ B \(0.1% of RAM\)", printed
        )
