"""The programs that builds and emulators need, and the commands that install them (toolchains.yaml)."""

import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from mtool.base import distribution, proc, resources
from mtool.base.errors import BuildError

_VERSION_TIMEOUT_S = 20.0
_HOST = "cc"
_OTHERS = ("gcc", "clang")
_OF_GCC = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")
_OF_CMAKE = ("CFLAGS", "CXXFLAGS", "ASMFLAGS", "LDFLAGS")
_OF_OTHERS = ("LD_RUN_PATH", "CCC_OVERRIDE_OPTIONS", "SDKROOT", "NIX_CFLAGS_COMPILE", "NIX_LDFLAGS")
_ENVIRONMENT = (*_OF_GCC, *_OF_CMAKE, *_OF_OTHERS)


class NotReady(BuildError):
    """A tool is installed, but lacks what it needs for a board (a core, a platform) and can't download it."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A set of programs that are installed together.

    Attributes:
        name: its name in boards.yaml and messages; its first program.
        purpose: what it is needed for.
        programs: all of them are looked up on PATH.
        install: the command that installs it.
        needs: a file that the compiler must find ("picolibc.specs"), or "".
        is_package: it is a Python package of that name, in this Python environment.
        instead: a board that does not need the program, or "".
    """

    name: str
    purpose: str
    programs: tuple[str, ...]
    install: str
    needs: str = ""
    is_package: bool = False
    instead: str = ""


@dataclass(frozen=True, slots=True)
class ToolStatus:
    """An installed toolchain.

    Attributes:
        toolchain: the toolchain.
        version: "12.2.1"; "" if it is missing.
        missing: the programs that are missing.
        files: paths, sizes and times of its first program and its C library.
    """

    toolchain: Toolchain
    version: str
    missing: tuple[str, ...]
    files: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """A text that changes when the toolchain changes: its version, its place, its files or its environment.

        It includes the environment variables that compilers read.
        """
        variables = [f"{name}={os.environ[name]}" for name in _ENVIRONMENT if os.environ.get(name)]
        return "\n".join([f"{self.toolchain.name} {self.version}", *self.files, *variables])


@functools.cache
def load_all() -> dict[str, Toolchain]:
    """Return the toolchains of toolchains.yaml by name."""
    entries = resources.read_yaml(Path(__file__).with_suffix(".yaml"))
    result = {}
    for name, record in entries.items():
        extras = record.pop("extras", ())
        commands = [distribution.install(*extras)] * bool(extras) + [record.pop("install", "")]
        programs = tuple(record.pop("programs", (name,)))
        result[name] = Toolchain(name, record.pop("purpose"), programs, " && ".join(filter(None, commands)), **record)
    return result


def check(toolchain: Toolchain) -> ToolStatus:
    """Find what is installed of a toolchain. Runs its first program for the version, if it is a program."""
    if toolchain.is_package:
        if importlib.util.find_spec(toolchain.name) is None:
            return ToolStatus(toolchain, "", (toolchain.name,))
        return ToolStatus(toolchain, importlib.metadata.version(toolchain.name), ())
    if toolchain.name == _HOST and shutil.which(_HOST) is None and (other := compiler_here(_HOST)) != [_HOST]:
        return ToolStatus(toolchain, _version(output_of([*other, "--version"])), (), _file_states(other[0]))
    missing = [name for name in toolchain.programs if shutil.which(name) is None]
    program = toolchain.programs[0]
    if program in missing:
        return ToolStatus(toolchain, "", tuple(missing))
    library = output_of([program, f"-print-file-name={toolchain.needs}"]) if toolchain.needs else ""
    if toolchain.needs and not Path(library).is_absolute():  # GCC prints the bare name if the file is missing
        missing.append(toolchain.needs)
    version = _version(output_of([program, "--version"]))
    return ToolStatus(toolchain, version, tuple(missing), _file_states(program, library))


def require(name: str) -> ToolStatus:
    """Return a complete toolchain.

    Args:
        name: one of `load_all`, or any other program, such as a user's own compiler.

    Raises:
        BuildError: a part of it is missing; the hint is the command that installs it.
    """
    toolchain = load_all().get(name, Toolchain(name, "", (name,), f"install {name} and put it on PATH"))
    installed = check(toolchain)
    if installed.missing:
        raise BuildError(
            f"{' and '.join(installed.missing)} is not installed",
            details=[f"needed for: {toolchain.purpose}"] if toolchain.purpose else [],
            hint=toolchain.install
            + (f"; or use a board that needs only pip: --board {toolchain.instead}" if toolchain.instead else ""),
        )
    return installed


def compiler_here(name: str) -> list[str]:
    """Return the compiler's command on this computer: gcc, clang or ziglang's can replace a missing `cc`."""
    if name != _HOST or shutil.which(name) is not None:
        return [name]
    other = next((program for program in _OTHERS if shutil.which(program) is not None), "")
    if other:
        return [other]
    return [str(zig()), "cc", "-fno-sanitize=all"] if importlib.util.find_spec("ziglang") is not None else [name]


def zig() -> Path:
    """Return the zig program of the package ziglang.

    Raises:
        BuildError: it is not installed.
    """
    require("ziglang")
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / ("zig.exe" if sys.platform == "win32" else "zig")


def _version(text: str) -> str:
    """Return the version in the first line of `--version`, ignoring the packager's text in brackets."""
    first_line = re.sub(r"\([^)]*\)", "", text.partition("\n")[0])
    match = re.search(r"\d+(?:\.\d+)+", first_line)
    return match[0] if match else first_line.strip()


def _file_states(program: str, *libraries: str) -> tuple[str, ...]:
    """Return the paths of a program and its libraries, with the size and the time of each."""
    texts = []
    for path in filter(None, (shutil.which(program), *libraries)):
        with contextlib.suppress(OSError):
            status = Path(path).resolve().stat()
            texts.append(f"{Path(path).resolve()} {status.st_size} {status.st_mtime_ns}")
    return tuple(texts)


def output_of(argv: list[str]) -> str:
    """Return a program's output, without surrounding whitespace."""
    return proc.run(argv, what=" ".join(argv), timeout_s=_VERSION_TIMEOUT_S).output.strip()
