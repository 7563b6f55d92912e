"""Build a Zephyr application with west: one build folder for each firmware kind.

Tools: west, cmake, ninja, dtc, a Zephyr tree, and a toolchain that Zephyr knows.
Overrides: ZEPHYR_BASE names the tree; without it, the project must be in a west workspace. ZEPHYR_TOOLCHAIN_VARIANT
names the toolchain; without it and without a Zephyr SDK, Zephyr uses the board's own compiler (boards.yaml).
Products: `build/<kind>/zephyr/zephyr.elf`, `.bin`, `.hex`; native_sim's program is `zephyr.exe`.
"""

import os
import re
import shutil
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mtool.base import proc
from mtool.base.errors import UsageError
from mtool.boards import zephyr
from mtool.boards.zephyr.failures import explain
from mtool.device.build import cmake, toolchains
from mtool.device.build.toolchains import Toolchain, ToolStatus
from mtool.manifest import Manifest, Project

_TIMEOUT_S = 1800.0
_TEMPLATE = "zephyr"
_BYTES_OF_32_BITS = 4


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a project of the builder "west".

    Raises:
        BuildError: west or Zephyr is missing; or CMake, the compiler or the linker failed.
        FitError: the linker says that a memory overflows.
        UsageError: Zephyr has no name for the board, or CMake can't handle the folder's path.
    """
    project = manifest.in_project
    cmake.check_path(folder)
    proc.find(program(), hint=toolchains.load_all()["west"].install)
    env = environment(folder, project)
    for kind in kinds:
        place = folder / "build" / kind
        configured = _is_configured(place, folder, env)
        if not configured:  # west only wipes what CMake's cache names; Kconfig would reuse its last answers
            (place / "zephyr" / ".config").unlink(missing_ok=True)
        argv = command(project, kind, configured=configured)
        done = proc.run(argv, what="build of the firmware", timeout_s=_TIMEOUT_S, cwd=folder, env=env, check=False)
        if done.returncode != 0:
            # A failed check may be cached, such as a missing C library: without this file it is configured again.
            (place / "build.ninja").unlink(missing_ok=True)
            tree, modules = zephyr.base(place), zephyr.modules_in(place)
            error = explain(done.output, tree, board_name(project), modules, project.board.toolchain)
            raise error or cmake.failure(done, manifest)


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return the commands of a build in an empty folder: west for each kind."""
    return [command(project, kind, configured=False) for kind in kinds]


def command(project: Project, kind: str, *, configured: bool) -> list[str]:
    """Return west's argv for a firmware kind, to be run in the project's folder.

    Args:
        project: the project.
        kind: a key of `project.firmware`.
        configured: its build folder exists, so CMake runs again only if its files changed.

    Raises:
        UsageError: boards.yaml has no Zephyr name for the board.
    """
    board = board_name(project)
    argv = [program(), "build", "-d", f"build/{kind}"]
    if configured:
        return argv
    argv += ["-p", "always", "-b", board]
    further = [f"-D{name}={';'.join(map(str, paths))}" for name, paths in zephyr.roots().items()]
    # prj.conf is the host-driven kind's; another has prj_<kind>.conf.
    further += [] if kind == "host_driven" else [f"-DFILE_SUFFIX={kind}"]
    return [*argv, "--", *further] if further else argv


def board_name(project: Project) -> str:
    """Return Zephyr's name of a project's board.

    Raises:
        UsageError: its entry has no Zephyr name.
    """
    board = project.board.templates.get(project.template, project.board.templates.get(_TEMPLATE))
    if board is None:
        what = f"unknown Zephyr name for {project.board.name}"
        hint = "add it to the board's entry in boards.yaml: templates: {zephyr: NAME}"
        raise UsageError(what, details=[f"its templates: {', '.join(project.board.templates)}"], hint=hint)
    if struct.calcsize("P") == _BYTES_OF_32_BITS:  # this computer's own programs are 32-bit
        return str(project.board.port.get("zephyr_32", board))
    return board


def program() -> str:
    """Return west: on PATH, or beside this Python interpreter."""
    beside = Path(sys.executable).parent / "west"
    return str(beside) if shutil.which("west") is None and beside.is_file() else "west"


def environment(folder: Path, project: Project) -> dict[str, str]:
    """Return this process's environment with the variables that Zephyr's CMake code needs.

    Raises:
        BuildError: there is no Zephyr tree, or the board's compiler is missing.
    """
    env = {**os.environ, "ZEPHYR_BASE": str(zephyr.base(folder))}
    named = "ZEPHYR_TOOLCHAIN_VARIANT" in env or zephyr.has_sdk()
    if not named and project.board.toolchain in zephyr.VARIANTS:
        toolchains.require(project.board.toolchain)
    return {**env, **zephyr.variant_of(project.board.toolchain)}


def compiler(folder: Path, project: Project) -> ToolStatus:
    """Return the project's tools: Zephyr, its version and the chosen toolchain.

    Raises:
        BuildError: there is no Zephyr tree, or no toolchain for Zephyr.
    """
    env = environment(folder, project)
    version = zephyr.version(Path(env["ZEPHYR_BASE"]))
    variant = env.get("ZEPHYR_TOOLCHAIN_VARIANT", "the Zephyr SDK")
    program: tuple[str, ...] = ()
    if variant == zephyr.VARIANTS.get(project.board.toolchain, ("", "", ""))[0]:
        required = toolchains.require(project.board.toolchain)
        variant, program = f"{required.toolchain.name} {required.version}", required.files
    further = "".join(f", {name} {';'.join(map(str, paths))}" for name, paths in zephyr.roots().items())
    return ToolStatus(Toolchain("Zephyr", "", (), ""), f"{version} with {variant}{further}", (), program)


def _is_configured(build_folder: Path, folder: Path, env: Mapping[str, str]) -> bool:
    """Return whether CMake's cache is for this folder and this Zephyr: CMake can change neither in place."""
    cache = build_folder / "CMakeCache.txt"
    if not cache.is_file() or not (build_folder / "build.ninja").is_file():
        return False
    text = cache.read_text(errors="replace")
    variant = env.get("ZEPHYR_TOOLCHAIN_VARIANT", "")
    return (
        f"APPLICATION_SOURCE_DIR:PATH={folder.resolve()}\n" in text
        and f"={env['ZEPHYR_BASE']}\n" in text
        and _cached(text, "ZEPHYR_TOOLCHAIN_VARIANT") in ("", variant or "zephyr")
        and all(_cached(text, name) in ("", ";".join(map(str, paths))) for name, paths in zephyr.roots().items())
    )


def _cached(text: str, name: str) -> str:
    """Return a variable's value in CMake's cache; "": it is not set."""
    match = re.search(rf"^{name}:\w+=(.*)$", text, re.MULTILINE)
    return match[1] if match else ""
