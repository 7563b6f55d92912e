"""A configure run of Zephyr for a board: an empty application, and the files that CMake leaves of it."""

import re
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtool.base import proc, resources
from mtool.base.errors import BuildError
from mtool.boards import zephyr
from mtool.boards.zephyr.failures import explain

_TIMEOUT_S = 600.0
_CMAKE = """cmake_minimum_required(VERSION 3.20)
find_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})
project(board LANGUAGES C)
target_sources(app PRIVATE main.c)
"""
_KCONFIG = """config MT_MODEL
	bool
	default y
	imply FPU

source "Kconfig.zephyr"
"""
_PROPERTY = re.compile(
    r'^set_target_properties\(devicetree_target PROPERTIES "([^"]*)" "?([^"\n]*?)"?\)$', re.MULTILINE
)
_OF_CPU = ("-mcpu=", "-march=", "-mthumb", "-mfpu=", "-mfloat-abi=", "-mabi=", "-m32", "-m64", "-mcmodel=")


@dataclass(frozen=True, slots=True)
class Configured:
    """What a configure run says of a board.

    kconfig: the symbols that are set, without CONFIG_; y, a number or a text.
    devicetree: the properties as Zephyr hands them to CMake: "DT_CHOSEN|zephyr,sram", "DT_REG|/memory@0|SIZE".
    runners: runners.yaml.
    flags: the compiler's flags for the core.
    emulator: the command that runs the firmware in QEMU; empty: Zephyr has none for the board.
    files: the files of the tree that it was made of.
    """

    kconfig: Mapping[str, str]
    devicetree: Mapping[str, str]
    runners: Mapping[str, Any]
    flags: tuple[str, ...]
    emulator: tuple[str, ...]
    files: tuple[Path, ...]

    def number(self, symbol: str) -> int:
        """Return a Kconfig symbol that is a number; 0, if it is not set."""
        return int(self.kconfig.get(symbol, "0") or "0", 0)

    def has(self, symbol: str) -> bool:
        """Return whether a Kconfig symbol is y."""
        return self.kconfig.get(symbol) == "y"


def configure(
    tree: Path, board: str, *, env: Mapping[str, str], roots: Mapping[str, list[Path]], compiler: str
) -> Configured:
    """Configure an empty application for a board, in a folder that is removed afterwards.

    Args:
        tree: the Zephyr tree.
        board: Zephyr's name of the board.
        env: the environment, with ZEPHYR_BASE and the toolchain's variables.
        roots: folders with further boards, by the name of CMake's variable.
        compiler: the compiler that the board wants; "": not known.

    Raises:
        BoardError: the tree has no such board, or it needs a qualifier.
        BuildError: CMake or Ninja is missing, or the run failed: a module of a vendor is missing, or a toolchain.
    """
    for program in ("cmake", "ninja"):
        proc.find(program, hint="sudo apt-get install cmake ninja-build")
    with tempfile.TemporaryDirectory(prefix="mtool-zephyr-") as top:
        source, build = Path(top) / "app", Path(top) / "build"
        source.mkdir()
        for name, text in (("CMakeLists.txt", _CMAKE), ("Kconfig", _KCONFIG), ("prj.conf", ""), ("main.c", _MAIN)):
            (source / name).write_text(text)
        argv = ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(build), f"-DBOARD={board}"]
        argv += [f"-D{name}={';'.join(map(str, paths))}" for name, paths in roots.items()]
        done = proc.run(argv, what="Zephyr's configure run", timeout_s=_TIMEOUT_S, env=env, cwd=source, check=False)
        if done.returncode != 0:
            last = ["$ " + shlex.join(done.argv), *done.output.splitlines()[-proc.LAST_LINES :]]
            known = explain(done.output, tree, board, zephyr.modules_in(build), compiler)
            raise known or BuildError(f"Zephyr can't be configured for {board}", details=last)
        return _read(build, inside=Path(top))


_MAIN = "int main(void)\n{\n    return 0;\n}\n"


def _read(build: Path, inside: Path) -> Configured:
    of_zephyr = build / "zephyr"
    kconfig = re.findall(r'^CONFIG_(\w+)="?(.*?)"?$', (of_zephyr / ".config").read_text(), re.MULTILINE)
    devicetree = _PROPERTY.findall((of_zephyr / "dts.cmake").read_text())
    runners = of_zephyr / "runners.yaml"
    read = resources.read_yaml(runners) if runners.is_file() else {}
    ninja = (build / "build.ninja").read_text()
    flags = re.search(r"^build [^\n]*app/[^\n]*main\.c[^\n]*\n(?: [^\n]*\n)*?  FLAGS = ([^\n]*)", ninja, re.MULTILINE)
    qemu = re.search(r"(\S*qemu-system-\w+ [^\n]*?-kernel) ", ninja)
    depended = (of_zephyr / "zephyr.dts.d").read_text().replace("\\\n", " ").split()[1:]
    sources = of_zephyr / "kconfig" / "sources.txt"
    listed = [*depended, *(sources.read_text().split() if sources.is_file() else ())]
    files = sorted({Path(each) for each in listed if not Path(each).is_relative_to(inside)})
    return Configured(
        dict(kconfig),
        dict(devicetree),
        read if isinstance(read, dict) else {},
        tuple(flag for flag in shlex.split(flags[1]) if flag.startswith(_OF_CPU)) if flags else (),
        tuple(shlex.split(qemu[1].replace("$ ", " "))) if qemu else (),
        tuple(files),
    )
