"""Build a Zephyr application with west: one build folder for each firmware kind.

Tools: west, cmake, ninja, dtc, a Zephyr tree, and a toolchain that Zephyr knows.
Overrides: ZEPHYR_BASE names the tree; without it, the project lies in a west workspace. ZEPHYR_TOOLCHAIN_VARIANT names
the toolchain; without it and without a Zephyr SDK, the board's own compiler (boards.yaml) is given to Zephyr.
Products: `build/<kind>/zephyr/zephyr.elf`, `.bin`, `.hex`; native_sim's program is `zephyr.exe`.
"""

import configparser
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mtool import proc
from mtool.build import cmake, ninja, toolchains
from mtool.build.toolchains import Found, Toolchain
from mtool.errors import BuildError, UsageError
from mtool.manifest import Manifest, Project

_TIMEOUT_S = 1800.0
_TEMPLATE = "zephyr"

# What Zephyr calls the compilers that it can take from the system, and the variable that says where one is installed:
# {prefix} is the compiler's path without its last word, {folder} the folder above its bin.
_VARIANTS: Mapping[str, tuple[str, str, str]] = {
    "arm-none-eabi-gcc": ("gnuarmemb", "GNUARMEMB_TOOLCHAIN_PATH", "{folder}"),
    "riscv64-unknown-elf-gcc": ("cross-compile", "CROSS_COMPILE", "{prefix}"),
    "cc": ("host", "", ""),
}


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a project of the builder "west".

    Raises:
        BuildError: there is no west or no Zephyr; or CMake, the compiler or the linker failed.
        FitError: the linker says that a memory overflows.
        UsageError: Zephyr has no name for the board, or CMake can't take the folder's path.
    """
    assert manifest.project is not None
    cmake.check_path(folder)
    proc.find(program(), hint=toolchains.ALL["west"].install)
    env = environment(folder, manifest.project)
    for kind in kinds:
        argv = command(manifest.project, kind, configured=_is_configured(folder / "build" / kind, folder, env))
        done = proc.run(argv, what="build of the firmware", timeout_s=_TIMEOUT_S, cwd=folder, env=env, check=False)
        if done.returncode != 0:
            raise ninja.failure(done, manifest)


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return what a build in an empty folder runs: west for each kind."""
    return [command(project, kind, configured=False) for kind in kinds]


def command(project: Project, kind: str, *, configured: bool) -> list[str]:
    """Return west's argv for a firmware kind, to be run in the project's folder.

    Args:
        project: the project.
        kind: a key of `project.firmware`.
        configured: its build folder is there, so that CMake runs again only if its files changed.

    Raises:
        UsageError: boards.yaml has no Zephyr name for the board.
    """
    board = project.board.templates.get(project.template, project.board.templates.get(_TEMPLATE))
    if board is None:
        raise UsageError(
            f"Zephyr's name of {project.board.name} is not known",
            details=[f"its templates: {', '.join(project.board.templates)}"],
            hint="add it to the board's entry in boards.yaml: templates: {zephyr: NAME}",
        )
    argv = [program(), "build", "-d", f"build/{kind}"]
    if configured:
        return argv
    argv += ["-p", "always", "-b", board]
    # prj.conf is the host-driven kind's; another has prj_<kind>.conf.
    return argv if kind == "host_driven" else [*argv, "--", f"-DFILE_SUFFIX={kind}"]


def program() -> str:
    """Return west: on PATH, or beside this Python's own interpreter."""
    beside = Path(sys.executable).parent / "west"
    return str(beside) if shutil.which("west") is None and beside.is_file() else "west"


def environment(folder: Path, project: Project) -> dict[str, str]:
    """Return this process's environment with what Zephyr's CMake code needs besides.

    Raises:
        BuildError: there is no Zephyr tree, or the board's compiler is missing.
    """
    env = {**os.environ, "ZEPHYR_BASE": str(base(folder))}
    named = "ZEPHYR_TOOLCHAIN_VARIANT" in env or "ZEPHYR_SDK_INSTALL_DIR" in env or _has_sdk()
    if not named and project.board.toolchain in _VARIANTS:
        toolchains.require(project.board.toolchain)
        variant, name, value = _VARIANTS[project.board.toolchain]
        env["ZEPHYR_TOOLCHAIN_VARIANT"] = variant
        if name:
            path = Path(proc.find(project.board.toolchain, hint=""))
            env[name] = value.format(prefix=str(path).removesuffix("gcc"), folder=path.resolve().parents[1])
    return env


def base(folder: Path) -> Path:
    """Return the Zephyr tree: what ZEPHYR_BASE names, else that of the west workspace around `folder`.

    Raises:
        BuildError: there is none, or it is not a Zephyr tree.
    """
    named = os.environ.get("ZEPHYR_BASE", "")
    found = Path(named) if named else _of_workspace(folder.resolve())
    if found is None or not (found / "VERSION").is_file():
        where = f"ZEPHYR_BASE names {named}, which has no VERSION" if named else ""
        raise BuildError(
            "there is no Zephyr tree",
            details=[where or f"ZEPHYR_BASE is not set, and {folder} lies in no west workspace"],
            hint="set ZEPHYR_BASE to the folder zephyr of your west workspace; make one with: west init && west update",
        )
    return found


def compiler(folder: Path, project: Project) -> Found:
    """Return what builds the project: Zephyr, its version and the toolchain that was chosen for it.

    Raises:
        BuildError: there is no Zephyr tree, or nothing that Zephyr could build with.
    """
    env = environment(folder, project)
    fields = dict(re.findall(r"^(\w+) *= *(\S*)", (Path(env["ZEPHYR_BASE"]) / "VERSION").read_text(), re.MULTILINE))
    version = ".".join(fields.get(key, "0") for key in ("VERSION_MAJOR", "VERSION_MINOR", "PATCHLEVEL"))
    chosen = env.get("ZEPHYR_TOOLCHAIN_VARIANT", "the Zephyr SDK")
    if chosen == _VARIANTS.get(project.board.toolchain, ("", "", ""))[0]:
        own = toolchains.require(project.board.toolchain)
        chosen = f"{own.toolchain.name} {own.version}"
    return Found(Toolchain("Zephyr", "", (), ""), f"{version} with {chosen}", ())


def _has_sdk() -> bool:
    """Return whether a Zephyr SDK has registered itself with CMake, which is where Zephyr looks for one."""
    return any((Path.home() / ".cmake" / "packages" / "Zephyr-sdk").glob("*"))


def _of_workspace(folder: Path) -> Path | None:
    for top in (folder, *folder.parents):
        config = top / ".west" / "config"
        if config.is_file():
            read = configparser.ConfigParser()
            read.read(config)
            return top / read.get("zephyr", "base", fallback="zephyr")
    return None


def _is_configured(build_folder: Path, folder: Path, env: Mapping[str, str]) -> bool:
    """Return whether CMake's cache is of this folder and this Zephyr: it can't change either in place."""
    cache = build_folder / "CMakeCache.txt"
    if not cache.is_file() or not (build_folder / "build.ninja").is_file():
        return False
    text = cache.read_text(errors="replace")
    return f"APPLICATION_SOURCE_DIR:PATH={folder.resolve()}\n" in text and f"={env['ZEPHYR_BASE']}\n" in text
