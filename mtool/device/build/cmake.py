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
_COMPILER = "compiler.txt"  # in build/, written by mtool: the compiler that the build was configured for
_SYNTAX = '\n\r"\\;$['


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a project of the builder "cmake".

    Raises:
        UsageError: CMake can't handle the folder's path.
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
    """Refuse a folder whose path has characters that CMake reads as syntax, as it does not quote them everywhere.

    Raises:
        UsageError: the path has such characters.
    """
    path = str(folder.resolve())
    characters = [character for character in _SYNTAX if character in path]
    if characters:
        details = [f"the path {path} contains {', '.join(map(repr, characters))}, which CMake reads as syntax"]
        raise UsageError(f"CMake can't build in {folder}", details=details, hint="build elsewhere: --output-dir DIR")


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return the commands of a build in an empty folder: the configuration, then the targets."""
    return [
        ["cmake", "-G", "Ninja", "-S", ".", "-B", "build"],
        ["cmake", "--build", "build", "--target", *kinds],
    ]


def forget_configuration(build_folder: Path) -> None:
    """Do what `cmake --fresh` does, which needs CMake 3.24."""
    (build_folder / "CMakeCache.txt").unlink(missing_ok=True)
    shutil.rmtree(build_folder / "CMakeFiles", ignore_errors=True)


def _is_configured(folder: Path, compiler: str) -> bool:
    """Return whether CMake's cache is for this folder and compiler: CMake can change neither in place.

    Otherwise Ninja would keep the other compiler's objects: it only looks at the sources' times.
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


# Run a build with Ninja or another tool; explain its output when it fails.


_PROGRESS = re.compile(r"\[\d+/\d+\] ")
_MOST_WORDS = 40  # of a command that is shown in full


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
    """Run a build command.

    Args:
        argv: the command.
        manifest: the project's.
        cwd: its folder.
        timeout_s: how long it may take.
        env, has_scratch: as for `proc.run`.
        not_ready: the output of a tool that lacks what it needs for the board, and the error for that.

    Raises:
        NotReady: the output matches `not_ready`.
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
    """Return the error for a failed build: a memory that overflows, or else its last lines."""
    too_large = fit.explain(done.output, manifest)
    if too_large is not None:
        return too_large
    lines = [line for line in done.output.splitlines() if not _PROGRESS.match(line)]
    words = done.argv if len(done.argv) < _MOST_WORDS else [*done.argv[:3], "..."]
    what = f"build of the firmware failed with exit code {done.returncode}"
    return BuildError(what, details=["$ " + " ".join(words), *lines[-proc.LAST_LINES :]])
