"""Build a program for this computer: one call of the C compiler, with the arguments in `<kind>.args`.

Tools: the board's compiler (boards.yaml, `toolchain`), for which gcc, clang or the package ziglang may stand where
there is no `cc`. Overrides: none; the file is the template's.
Products: `build/<kind>`.
"""

from collections.abc import Sequence
from pathlib import Path

from mtool import proc
from mtool.build import toolchains
from mtool.manifest import Manifest, Project

_TIMEOUT_S = 600.0


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a project of the builder "host".

    Raises:
        BuildError: the compiler failed.
    """
    assert manifest.project is not None
    compiler = toolchains.compiler_here(manifest.project.board.toolchain)
    for kind, argv in zip(kinds, commands(manifest.project, kinds), strict=True):
        firmware = folder / manifest.project.firmware[kind]
        firmware.parent.mkdir(parents=True, exist_ok=True)
        proc.run([*compiler, *argv[1:]], what=f"build of the {kind} firmware", timeout_s=_TIMEOUT_S, cwd=folder)
        if not firmware.exists() and (suffixed := firmware.with_name(firmware.name + ".exe")).exists():
            suffixed.replace(firmware)  # Windows starts it by its path, whatever its name ends with


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return what a build runs: one call of the compiler for each kind."""
    return [[project.board.toolchain, f"@{kind}.args", "-o", project.firmware[kind]] for kind in kinds]
