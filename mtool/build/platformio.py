"""Build an Arduino sketch with PlatformIO: one environment for each firmware kind.

Tools: pio (pip install platformio), and the packages that the platform of platformio.ini wants. Overrides: none.
Products: `build/<kind>/firmware.elf` and `.hex`, which are copied to `<kind>.ino.elf` and `.hex`.
"""

from collections.abc import Sequence
from pathlib import Path

from mtool import distribution, files, proc
from mtool.build import ninja
from mtool.manifest import Manifest, Project

PROGRAM = "pio"
INSTALL = distribution.install("platformio")

_TIMEOUT_S = 1800.0


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a sketch.

    Raises:
        BuildError: a package can't be had, or the compiler or the linker failed.
        FitError: the linker says that a memory overflows.
    """
    assert manifest.project is not None
    for kind, argv in zip(kinds, commands(manifest.project, kinds), strict=True):
        done = proc.run(argv, what="build of the firmware", timeout_s=_TIMEOUT_S, cwd=folder, check=False)
        if done.returncode != 0:
            raise ninja.failure(done, manifest)
        elf = folder / manifest.project.firmware[kind]
        for suffix in (".elf", ".hex", ".bin", ".uf2"):
            made = elf.with_name(f"firmware{suffix}")
            if made.is_file():
                files.write(elf.with_suffix(suffix), made.read_bytes())


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return what a build runs: one environment for each kind."""
    return [[PROGRAM, "run", "--environment", kind] for kind in kinds]
