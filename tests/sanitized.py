"""How C is compiled to run on the host under the address and undefined-behaviour sanitizers.

By clang where it is installed, and not optimised: gcc takes four times as long for the same checks. What gcc warns of
as well is asked of it without code (`-fsyntax-only`), which takes next to nothing.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

COMPILER = "clang" if shutil.which("clang") else "gcc"
FLAGS = (
    "-O0",
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize=float-cast-overflow",  # gcc's "undefined" is without it
    "-fno-sanitize-recover=all",
)


def build(sources: Sequence[str | Path], program: Path, flags: Sequence[str]) -> Path:
    """Build a program, with no warning of either compiler where `flags` make them errors."""
    subprocess.run(["gcc", "-fsyntax-only", *flags, *sources], check=True)
    subprocess.run([COMPILER, *flags, *FLAGS, *sources, "-o", program, "-lm"], check=True)
    return program
