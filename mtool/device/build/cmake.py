"""Build a project with CMake and Ninja: configure once, then build one target for each firmware kind.

Tools: cmake, ninja, and the compiler of the project's toolchain.cmake. Overrides: none.
Products: the files of the template's `firmware`, below `build/`.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from mtool.base import files, proc
from mtool.base.errors import BuildError, MtoolError, UsageError
from mtool.device.build import fit, toolchains
from mtool.device.build.toolchains import NotReady
from mtool.manifest import Manifest, Project

_CONFIGURE_TIMEOUT_S = 120.0
_BUILD_TIMEOUT_S = 900.0
_COMPILER = "compiler.txt"  # in build/: what it was configured for, by mtool
_SYNTAX = '\n\r"\\;$['


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a project of the builder "cmake".

    Raises:
        UsageError: the folder's path is none that CMake can take.
        BuildError: CMake, the compiler or the linker failed.
        FitError: the linker says that a memory overflows.
    """
    check_path(folder)
    configure, argv = commands(manifest.in_project, kinds)
    compiler = toolchains.require(manifest.in_project.board.toolchain).identity
    if not _is_configured(folder, compiler):
        forget_configuration(folder / "build")
        what = "configuration of the build"
        proc.run(configure, what=what, timeout_s=_CONFIGURE_TIMEOUT_S, cwd=folder, has_scratch=True)
        files.write(folder / "build" / _COMPILER, compiler.encode("utf-8", "surrogatepass"))
    run(argv, manifest, cwd=folder, timeout_s=_BUILD_TIMEOUT_S, has_scratch=True)


def check_path(folder: Path) -> None:
    """Refuse a folder in whose path CMake, which quotes none of them everywhere, reads a character as syntax.

    Raises:
        UsageError: it is such a folder.
    """
    path = str(folder.resolve())
    found = [character for character in _SYNTAX if character in path]
    if found:
        details = [f"the path {path} has {', '.join(map(repr, found))}, which CMake reads as syntax"]
        raise UsageError(f"CMake can't build in {folder}", details=details, hint="build elsewhere: --output-dir DIR")


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return what a build in an empty folder runs: the configuration, then the targets."""
    return [
        ["cmake", "-G", "Ninja", "-S", ".", "-B", "build"],
        ["cmake", "--build", "build", "--target", *kinds],
    ]


def forget_configuration(build_folder: Path) -> None:
    """Remove what `cmake --fresh` would, which needs CMake 3.24."""
    (build_folder / "CMakeCache.txt").unlink(missing_ok=True)
    shutil.rmtree(build_folder / "CMakeFiles", ignore_errors=True)


def _is_configured(folder: Path, compiler: str) -> bool:
    """Return whether CMake's cache is of this folder and of this compiler: it can't change either in place.

    Objects of another compiler are not made again otherwise: Ninja looks at the sources' times alone.
    """
    cache, made_with = folder / "build" / "CMakeCache.txt", folder / "build" / _COMPILER
    if made_with.is_file() and made_with.read_bytes() != compiler.encode("utf-8", "surrogatepass"):
        return False
    toolchain = folder / "toolchain.cmake"
    if not cache.is_file() or not (folder / "build" / "build.ninja").is_file():
        return False
    if toolchain.is_file() and toolchain.stat().st_mtime_ns > cache.stat().st_mtime_ns:
        return False
    return f"CMAKE_HOME_DIRECTORY:INTERNAL={folder.resolve().as_posix()}\n" in cache.read_text(errors="replace")


# Run a build that Ninja, or another tool, does; explain what it prints when it fails.


_PROGRESS = re.compile(r"\[\d+/\d+\] ")
_MOST_WORDS = 40  # of a command that is shown whole


def run(
    argv: Sequence[str],
    manifest: Manifest,
    *,
    cwd: Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    has_scratch: bool = False,
    not_ready: tuple[re.Pattern[str], NotReady] | None = None,
) -> None:
    """Run a command of a build.

    Args:
        argv: the command.
        manifest: the project's.
        cwd: its folder.
        timeout_s: how long it may take.
        env, has_scratch: as of `proc.run`.
        not_ready: what a tool prints that lacks what it builds a board with, and the error of that.

    Raises:
        NotReady: it has printed that.
        BuildError: the compiler or the linker failed.
        FitError: the linker says that a memory overflows.
    """
    what = "build of the firmware"
    done = proc.run(argv, what=what, timeout_s=timeout_s, cwd=cwd, env=env, check=False, has_scratch=has_scratch)
    if done.returncode == 0:
        return
    if not_ready is not None and not_ready[0].search(done.output):
        last = done.output.strip().splitlines()[-3:]
        raise NotReady(not_ready[1].what, details=["$ " + " ".join(argv), *last], hint=not_ready[1].hint)
    raise failure(done, manifest)


def failure(done: proc.Completed, manifest: Manifest) -> MtoolError:
    """Return the error that a failed build stands for: a memory that overflows, or else its last lines."""
    too_large = fit.explain(done.output, manifest)
    if too_large is not None:
        return too_large
    lines = [line for line in done.output.splitlines() if not _PROGRESS.match(line)]
    words = done.argv if len(done.argv) < _MOST_WORDS else [*done.argv[:3], "..."]
    what = f"build of the firmware failed with exit code {done.returncode}"
    return BuildError(what, details=["$ " + " ".join(words), *lines[-proc.LAST_LINES :]])
