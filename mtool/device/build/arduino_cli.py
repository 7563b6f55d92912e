"""Build an Arduino sketch with arduino-cli: one build folder for each firmware kind.

Tools: arduino-cli 0.13 or newer, and the board's core (`arduino-cli core install`). Overrides: none.
Products: `build/<kind>/<kind>.ino.elf`, `.hex`, `.bin`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from mtool.base import files, proc
from mtool.device.build import ninja
from mtool.device.build.toolchains import NotReady
from mtool.manifest import Manifest, Project

PROGRAM = "arduino-cli"
INSTALL = "arduino-cli comes from arduino.github.io/arduino-cli"

_TIMEOUT_S = 1800.0
_NO_CORE = re.compile(r"platform not installed|platform .* is not found in any known index|unknown FQBN", re.IGNORECASE)


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a sketch.

    Raises:
        NotReady: the board's core is missing.
        BuildError: the compiler or the linker failed.
        FitError: the linker says that a memory overflows.
    """
    assert manifest.project is not None
    for argv in commands(manifest.project, kinds):
        done = proc.run(argv, what="build of the firmware", timeout_s=_TIMEOUT_S, cwd=folder, check=False)
        if done.returncode != 0 and _NO_CORE.search(done.output):
            core = ":".join(argv[argv.index("--fqbn") + 1].split(":")[:2])
            raise NotReady(
                f"the Arduino core {core} is not installed",
                details=["$ " + " ".join(argv), *done.output.strip().splitlines()[-3:]],
                hint=f"{PROGRAM} core update-index, then: {PROGRAM} core install {core}",
            )
        if done.returncode != 0:
            raise ninja.failure(done, manifest)
    if manifest.project.program and "standalone" in kinds:
        _rename(folder / manifest.project.firmware["standalone"], Path(manifest.project.program).name)


def _rename(elf: Path, sketch: str) -> None:
    """Give the products of a user's own sketch the names of the standalone firmware."""
    for made in elf.parent.glob(f"{sketch}.ino.*"):
        files.write(elf.with_name(elf.name.partition(".")[0] + made.name.removeprefix(sketch)), made.read_bytes())


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return what a build runs: one call for each kind, each a sketch of its own."""
    fqbn = project.board.templates[project.template]
    # Without contraction a float result is the same on every machine.
    exact = ["--build-property", "compiler.c.extra_flags=-ffp-contract=off"]
    return [
        [
            PROGRAM,
            "compile",
            "--fqbn",
            fqbn,
            "--libraries",
            "libraries",
            "--build-path",
            f"build/{kind}",
            *exact,
            sketch,
        ]
        for kind in kinds
        for sketch in [project.program if kind == "standalone" and project.program else kind]
    ]
