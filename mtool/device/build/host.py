"""Build a program for this computer: one call of the C compiler, with the arguments in `<kind>.args`.

Files with their own optimisation level are compiled first, with the arguments in `level.args`.

Tools: the board's compiler (boards.yaml, `toolchain`); gcc, clang or the package ziglang can replace
a missing `cc`. Overrides: none; the file is the template's.
Products: `build/<kind>`.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from mtool.base import proc
from mtool.device.build import toolchains
from mtool.manifest import Manifest, Project

_TIMEOUT_S = 600.0


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a project of the builder "host".

    Raises:
        BuildError: the compiler failed.
    """
    compiler = toolchains.compiler_here(manifest.in_project.board.toolchain)
    for kind in kinds:
        (folder / manifest.in_project.firmware[kind]).parent.mkdir(parents=True, exist_ok=True)
    levels = ["operators"] * len(manifest.in_project.levels)
    names = [*levels, *(f"{kind} firmware" for kind in kinds)]
    for name, argv in zip(names, commands(manifest.in_project, kinds), strict=True):
        what = f"build of the {name}"
        proc.run([*compiler, *argv[1:]], what=what, timeout_s=_TIMEOUT_S, cwd=folder, has_scratch=True)
    for kind in kinds:
        firmware = folder / manifest.in_project.firmware[kind]
        if not firmware.exists() and (suffixed := firmware.with_name(firmware.name + ".exe")).exists():
            suffixed.replace(firmware)  # Windows starts it by its path, whatever its suffix


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return the commands of a build."""
    return calls([project.board.toolchain], project, kinds)


def calls(
    compiler: Sequence[str], project: Project, kinds: Sequence[str], further: Sequence[str] = ()
) -> list[list[str]]:
    """Return a compiler call for each file with its own level, and for each kind, with further arguments."""
    objects = [
        [*compiler, "@level.args", level, "-c", path, "-o", f"build/{PurePosixPath(path).name}.o"]
        for path, level in project.levels.items()
    ]
    return [*objects, *([*compiler, f"@{kind}.args", *further, "-o", project.firmware[kind]] for kind in kinds)]
