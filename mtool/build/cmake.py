"""Build a project with CMake and Ninja: configure once, then build one target for each firmware kind.

Tools: cmake, ninja, and the compiler of the project's toolchain.cmake. Overrides: none.
Products: the files of the template's `firmware`, below `build/`.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from mtool import proc
from mtool.build import fit
from mtool.errors import BuildError
from mtool.manifest import Manifest

_CONFIGURE_TIMEOUT_S = 120.0
_BUILD_TIMEOUT_S = 900.0


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a project of the builder "cmake".

    Raises:
        BuildError: CMake, the compiler or the linker failed.
        FitError: the linker says that a memory overflows.
    """
    if not _is_configured(folder):
        shutil.rmtree(folder / "build", ignore_errors=True)
        proc.run(
            ["cmake", "-G", "Ninja", "-S", ".", "-B", "build"],
            what="configuration of the build",
            timeout_s=_CONFIGURE_TIMEOUT_S,
            cwd=folder,
        )
    argv = ["cmake", "--build", "build", "--target", *kinds]
    done = proc.run(argv, what="build of the firmware", timeout_s=_BUILD_TIMEOUT_S, cwd=folder, check=False)
    if done.returncode != 0:
        overflow = fit.explain(done.output, manifest)
        if overflow is not None:
            raise overflow
        lines = [line for line in done.output.splitlines() if not re.match(r"\[\d+/\d+\] ", line)]  # Ninja's progress
        raise BuildError(
            f"build of the firmware failed with exit code {done.returncode}",
            details=["$ " + " ".join(argv), *lines[-proc.LAST_LINES :]],
        )


def _is_configured(folder: Path) -> bool:
    """Return whether CMake's cache is of this folder and of this compiler: it can't change either in place."""
    cache = folder / "build" / "CMakeCache.txt"
    toolchain = folder / "toolchain.cmake"
    if not cache.is_file() or not (folder / "build" / "build.ninja").is_file():
        return False
    if toolchain.is_file() and toolchain.stat().st_mtime_ns > cache.stat().st_mtime_ns:
        return False
    return f"CMAKE_HOME_DIRECTORY:INTERNAL={folder.resolve().as_posix()}\n" in cache.read_text(errors="replace")
