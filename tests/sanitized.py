"""Compiling C for the host with the address and undefined-behaviour sanitizers.

By clang where it is installed, and not optimised: gcc takes four times as long for the same checks. What gcc warns of
as well is asked of it without code (`-fsyntax-only`), which takes next to nothing. Without debug information: the
undefined-behaviour sanitizer names lines without it, the address sanitizer functions.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import amount

from mtool.base import resources

CACHE = ("ccache",) if shutil.which("ccache") else ()
COMPILER = "clang" if shutil.which("clang") else "gcc"
# Comparisons that are always true or false: of a value with itself, with a number outside of its type, with its ends.
TAUTOLOGIES = ("-Wtautological-compare", "-Wtautological-constant-in-range-compare")
FLAGS = (
    "-O0",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    # Checks of addresses are calls, of which there is less code to make.
    *(("-mllvm", "-asan-instrumentation-with-call-threshold=0") if COMPILER == "clang" else ()),
)
# Shared libraries, for ctypes, are gcc's: it starts quicker. Gold links them in half of the time.
UNDEFINED = ("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all")
LEVEL = "-O1" if amount.IS_ALL else "-O0"
LINKER = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()


def library(folder: Path, name: str, flags: Sequence[str]) -> Path:
    """Build a model's C, which lies in a folder, as a library under the undefined-behaviour sanitizer."""
    one = folder / "library.c"  # one unit: the runtime's headers are read once
    one.write_text(f'#include "{name}.c"\n#include "{name}_weights.c"\n')
    made = folder / "model.so"
    include = f"-I{resources.path('crt') / 'include'}"
    options = [*flags, *UNDEFINED, LEVEL, "-shared", "-fPIC", include, *LINKER]
    subprocess.run(["gcc", *options, one, "-o", made, "-lm"], check=True)
    return made


def check_by_clang(sources: Sequence[str | Path], flags: Sequence[str]) -> None:
    """Compile C without code by clang, if it is installed; `flags` make warnings errors."""
    if shutil.which("clang"):
        subprocess.run(["clang", "-fsyntax-only", *flags, *TAUTOLOGIES, *sources], check=True)


def build(sources: Sequence[str | Path], program: Path, flags: Sequence[str]) -> Path:
    """Build a program, with no warning of either compiler where `flags` make them errors."""
    subprocess.run(["gcc", "-fsyntax-only", *flags, *sources], check=True)
    flags = [*flags, *(TAUTOLOGIES if COMPILER == "clang" else ())]
    with tempfile.TemporaryDirectory() as folder:
        objects = [f"{folder}/{number}.o" for number in range(len(sources))]
        for source, made in zip(sources, objects, strict=True):  # apart, as ccache takes them
            subprocess.run([*CACHE, COMPILER, *flags, *FLAGS, "-c", source, "-o", made], check=True)
        subprocess.run([COMPILER, *FLAGS, *objects, "-o", program, "-lm"], check=True)
    return program
