"""Build an Arduino sketch with PlatformIO: one environment for each firmware kind.

Tools: pio (pip install platformio), and the packages that the platform of platformio.ini wants. Overrides: none.
Products: `build/<kind>/firmware.elf` and `.hex`, which are copied to `<kind>.ino.elf` and `.hex`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from mtool.base import distribution, files, proc
from mtool.device.build import ninja
from mtool.device.build.toolchains import NotReady
from mtool.manifest import Manifest, Project

PROGRAM = "pio"
INSTALL = distribution.install("platformio")

_TIMEOUT_S = 1800.0
_NO_PACKAGE = re.compile(
    r"InternetConnection|HTTPClientError|UnknownPackage|Could not find the package|ConnectionError"
    r"|not connected to the Internet|Could not install package|Could not connect",
    re.IGNORECASE,
)


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a sketch.

    Raises:
        NotReady: a package that it needs is not there, and can't be had.
        BuildError: the compiler or the linker failed.
        FitError: the linker says that a memory overflows.
    """
    assert manifest.project is not None
    for kind, argv in zip(kinds, commands(manifest.project, kinds), strict=True):
        done = proc.run(argv, what="build of the firmware", timeout_s=_TIMEOUT_S, cwd=folder, check=False)
        if done.returncode != 0 and _NO_PACKAGE.search(done.output):
            raise NotReady(
                "PlatformIO can't get the packages of the board",
                details=["$ " + " ".join(argv), *done.output.strip().splitlines()[-3:]],
                hint="it gets them from its registry once: is there a network?",
            )
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
