"""Build an Arduino sketch with the installed tool: arduino-cli, PlatformIO, or CMake and the plain AVR core.

Tools: arduino-cli 0.13 or newer and the board's core (`arduino-cli core install`); or pio (pip install platformio) and
what the platform in platformio.ini requires; or those of cmake.py. Override: the template's option `builder`.
Products: `build/<kind>/<kind>.ino.elf`, `.hex`, `.bin`; PlatformIO's `firmware.elf` and the like are copied to them.
"""

import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool.base import distribution, files
from mtool.base.errors import BuildError, UsageError
from mtool.device.build import cmake, fit, toolchains
from mtool.device.build.size import measure
from mtool.device.build.toolchains import NotReady, Toolchain, ToolStatus
from mtool.manifest import Manifest, Project

log = logging.getLogger(__name__)

_AVR_CORE = "avr"
_PIO = ("pio", "run", "--environment")
_TIMEOUT_S = 1800.0
_NO_CORE = re.compile(r"platform not installed|platform .* is not found in any known index|unknown FQBN", re.IGNORECASE)
_NO_PACKAGE = re.compile(
    r"InternetConnection|HTTPClientError|UnknownPackage|Could not find the package|ConnectionError"
    r"|not connected to the Internet|Could not install package|Could not connect",
    re.IGNORECASE,
)
_WITHOUT_A_NETWORK = (
    "sudo apt-get install cmake ninja-build gcc-avr avr-libc arduino-core-avr, and --option builder=cmake"
)


def _by_arduino_cli(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build each kind in its own folder.

    Raises:
        NotReady: the board's core is missing.
        MtoolError: as `build`.
    """
    for argv in _arduino_cli_commands(manifest.in_project, kinds):
        core = ":".join(argv[argv.index("--fqbn") + 1].split(":")[:2])
        hint = f"arduino-cli core update-index, then: arduino-cli core install {core}"
        lacking = NotReady(f"the Arduino core {core} is not installed", hint=hint)
        cmake.run(argv, manifest, cwd=folder, timeout_s=_TIMEOUT_S, not_ready=(_NO_CORE, lacking))
    if manifest.in_project.program and "standalone" in kinds:
        # The products of a user's own sketch get the standalone firmware's names.
        elf, sketch = folder / manifest.in_project.firmware["standalone"], Path(manifest.in_project.program).name
        for file in elf.parent.glob(f"{sketch}.ino.*"):
            files.write(elf.with_name(elf.name.partition(".")[0] + file.name.removeprefix(sketch)), file.read_bytes())


def _arduino_cli_commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    # Without contraction, a float result is the same on every machine.
    exact = ["--build-property", "compiler.c.extra_flags=-ffp-contract=off"]
    fqbn = project.board.templates[project.template]
    begin = ["arduino-cli", "compile", "--fqbn", fqbn, "--libraries", "libraries", "--build-path"]
    sketches = {kind: project.program if kind == "standalone" and project.program else kind for kind in kinds}
    return [[*begin, f"build/{kind}", *exact, sketch] for kind, sketch in sketches.items()]


def _by_platformio(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build each kind in its own environment.

    Raises:
        NotReady: a required package is missing and can't be downloaded.
        MtoolError: as `build`.
    """
    hint = "check the network: PlatformIO downloads them once from its registry"
    lacking = NotReady("PlatformIO can't download the board's packages", hint=hint)
    for kind in kinds:
        cmake.run([*_PIO, kind], manifest, cwd=folder, timeout_s=_TIMEOUT_S, not_ready=(_NO_PACKAGE, lacking))
        elf = folder / manifest.in_project.firmware[kind]
        for suffix in (".elf", ".hex", ".bin", ".uf2"):
            file = elf.with_name(f"firmware{suffix}")
            if file.is_file():
                files.write(elf.with_suffix(suffix), file.read_bytes())


@dataclass(frozen=True, slots=True)
class Tool:
    """One way to build a sketch: its program, its title, how to install it, its build function and its commands."""

    program: str
    title: str
    install: str
    build: Callable[[Path, Manifest, Sequence[str]], None]
    commands: Callable[[Project, Sequence[str]], list[list[str]]]


TOOLS: Mapping[str, Tool] = {
    "arduino-cli": Tool(
        "arduino-cli",
        "arduino-cli",
        "arduino-cli comes from arduino.github.io/arduino-cli",
        _by_arduino_cli,
        _arduino_cli_commands,
    ),
    "platformio": Tool(
        "pio",
        "PlatformIO",
        distribution.install("platformio"),
        _by_platformio,
        lambda project, kinds: [[*_PIO, kind] for kind in kinds],
    ),
    "cmake": Tool(
        "cmake",
        "CMake and Debian's Arduino core",
        "sudo apt-get install cmake ninja-build",
        cmake.build,
        cmake.commands,
    ),
}


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a sketch.

    If no builder was chosen and a tool can't get the board's core (for example without a network), the next installed
    tool builds the sketch.

    Raises:
        BuildError: a tool is missing, or it failed.
        FitError: the firmware is larger than a memory of the board.
    """
    project = manifest.in_project
    first = tool_of(project)
    try:
        TOOLS[first].build(folder, manifest, kinds)
    except NotReady as lacking:
        others = _possible(project) if project.options.get("builder", "auto") == "auto" else []
        if not any(_builds_too(TOOLS[name], folder, manifest, kinds, lacking) for name in others if name != first):
            hint = lacking.hint + (f"; without a network: {_WITHOUT_A_NETWORK}" if "cmake" in others else "")
            raise BuildError(lacking.what, details=lacking.details, hint=hint) from None
    for kind in kinds:
        elf = folder / project.firmware[kind]
        # The linker knows the family's largest chip, not the board's.
        if project.board.memories and elf.is_file():
            fit.check(measure(elf, manifest), manifest)


def _builds_too(tool: Tool, folder: Path, manifest: Manifest, kinds: Sequence[str], lacking: NotReady) -> bool:
    """Return whether a tool is installed and builds the sketch in place of one that is not ready."""
    if shutil.which(tool.program) is None:
        return False
    log.warning("%s; building with %s instead", lacking.what, tool.title)
    try:
        tool.build(folder, manifest, kinds)
    except BuildError as failed:
        log.warning("%s: %s", tool.title, failed.what)
        return False
    return True


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return the commands of a build in an empty folder."""
    return TOOLS[tool_of(project)].commands(project, kinds)


def compiler(folder: Path, project: Project) -> ToolStatus:
    """Return the tool that builds the sketch, and its version.

    Raises:
        BuildError: it is missing; the hint says how to install it.
    """
    name = tool_of(project)
    tool = TOOLS[name]
    if name == "cmake":
        toolchains.require("cmake")
        return toolchains.require(project.board.toolchain)
    if shutil.which(tool.program) is None:
        raise BuildError(
            f"{tool.program} is not installed", details=["needed for: Arduino sketches"], hint=tool.install
        )
    return toolchains.check(Toolchain(tool.program, "Arduino sketches", (tool.program,), tool.install))


def tool_of(project: Project) -> str:
    """Return the tool that builds the sketch: the option's, else the first of TOOLS that is installed.

    Raises:
        UsageError: the board can't be built with the chosen tool.
    """
    possible = _possible(project)
    tool = project.options.get("builder", "auto")
    if tool != "auto":
        if tool not in possible:
            raise UsageError(
                f"{project.board.name} can't be built with {tool}", details=[f"use one of: {', '.join(possible)}"]
            )
        return tool
    return next((name for name in possible if shutil.which(TOOLS[name].program)), possible[0])


def _possible(project: Project) -> list[str]:
    """Return those of TOOLS that can build for the board, the preferred one first."""
    possible = ["arduino-cli"]
    possible += ["platformio"] if "platformio" in project.board.port else []
    possible += ["cmake"] if project.board.port.get("core") == _AVR_CORE else []
    return possible
