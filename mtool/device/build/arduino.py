"""Build an Arduino sketch with what is there: arduino-cli, PlatformIO, or CMake and the plain AVR core.

Tools: see arduino_cli.py, platformio.py and cmake.py. Override: the template's option `builder`.
Products: `build/<kind>/<kind>.ino.elf`.
"""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool.base.errors import BuildError, UsageError
from mtool.device.build import arduino_cli, cmake, fit, platformio, toolchains
from mtool.device.build.size import measure
from mtool.device.build.toolchains import Found, NotReady, Toolchain
from mtool.manifest import Manifest, Project

log = logging.getLogger(__name__)

_AVR_CORE = "avr"
_TITLES = {"arduino-cli": "arduino-cli", "platformio": "PlatformIO", "cmake": "CMake and Debian's Arduino core"}
_WITHOUT_A_NETWORK = (
    "sudo apt-get install cmake ninja-build gcc-avr avr-libc arduino-core-avr, and --option builder=cmake"
)


@dataclass(frozen=True, slots=True)
class Tool:
    """One way to build a sketch: its program, how to install it, and the functions of its file."""

    program: str
    install: str
    build: Callable[[Path, Manifest, Sequence[str]], None]
    commands: Callable[[Project, Sequence[str]], list[list[str]]]


TOOLS: Mapping[str, Tool] = {
    "arduino-cli": Tool(arduino_cli.PROGRAM, arduino_cli.INSTALL, arduino_cli.build, arduino_cli.commands),
    "platformio": Tool(platformio.PROGRAM, platformio.INSTALL, platformio.build, platformio.commands),
    "cmake": Tool("cmake", "sudo apt-get install cmake ninja-build", cmake.build, cmake.commands),
}


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a sketch.

    Where nothing else was asked for, a tool that can't get the board's core (there is no network) leaves the build to
    the next that is installed.

    Raises:
        BuildError: a tool is missing, or it failed.
        FitError: the firmware is larger than a memory of the board.
    """
    assert manifest.project is not None
    _build(folder, manifest, kinds)
    for kind in kinds:
        elf = folder / manifest.project.firmware[kind]
        # The linker knows the family's largest chip, not the board's.
        if manifest.project.board.memories and elf.is_file():
            fit.check(measure(elf, manifest), manifest)


def _build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    assert manifest.project is not None
    first = tool_of(manifest.project)
    try:
        TOOLS[first].build(folder, manifest, kinds)
    except NotReady as lacking:
        others = _possible(manifest.project) if manifest.project.options.get("builder", "auto") == "auto" else []
        installed = [name for name in others if name != first and shutil.which(TOOLS[name].program)]
        for name in installed:
            log.warning("%s; built with %s in its place", lacking.what, _TITLES[name])
            try:
                TOOLS[name].build(folder, manifest, kinds)
            except BuildError as failed:
                log.warning("%s: %s", name, failed.what)
                continue
            return
        hint = lacking.hint + (f"; or without a network: {_WITHOUT_A_NETWORK}" if "cmake" in others else "")
        raise BuildError(lacking.what, details=lacking.details, hint=hint) from None


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return what a build in an empty folder runs."""
    return TOOLS[tool_of(project)].commands(project, kinds)


def compiler(folder: Path, project: Project) -> Found:
    """Return what builds the sketch: the tool and its version.

    Raises:
        BuildError: it is missing; the hint installs it.
    """
    name = tool_of(project)
    tool = TOOLS[name]
    if name == "cmake":
        toolchains.require("cmake")
        return toolchains.require(project.board.toolchain)
    return toolchains.check(_installed(Toolchain(tool.program, "Arduino sketches", (tool.program,), tool.install)))


def tool_of(project: Project) -> str:
    """Return which of TOOLS builds the sketch: what the option says, else the first that is installed.

    Raises:
        UsageError: the board can't be built with what the option says.
    """
    possible = _possible(project)
    chosen = project.options.get("builder", "auto")
    if chosen != "auto":
        if chosen not in possible:
            raise UsageError(
                f"{project.board.name} can't be built with {chosen}", details=[f"it can with: {', '.join(possible)}"]
            )
        return chosen
    return next((name for name in possible if shutil.which(TOOLS[name].program)), possible[0])


def _possible(project: Project) -> list[str]:
    """Return which of TOOLS can build for the board, the best first."""
    possible = ["arduino-cli"]
    possible += ["platformio"] if "platformio" in project.board.port else []
    possible += ["cmake"] if project.board.port.get("core") == _AVR_CORE else []
    return possible


def _installed(toolchain: Toolchain) -> Toolchain:
    if shutil.which(toolchain.name) is None:
        raise BuildError(
            f"{toolchain.name} is not installed", details=["it builds Arduino sketches"], hint=toolchain.install
        )
    return toolchain
