"""The external compiler of a region: two files in, a model binary out, and its errors in the user's names."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtool.base import proc
from mtool.compiler.backends.interface import BackendError, Region
from mtool.compiler.backends.json.command import filled
from mtool.compiler.backends.json.schema import files_of, node_name

PLACES = frozenset({"nodes", "constants", "output", "report", "region", "mode"})
"""What a compiler's command may have in braces."""
_MOST_BYTES = 1 << 28
_NUMBERS = {"scratch_bytes": 2**31, "alignment": 1 << 12, "cycles": 2**53}


@dataclass(frozen=True, slots=True)
class Compiled:
    """What an external compiler made of a region.

    binary: the model binary.
    scratch_bytes, alignment, cycles: what its report says; 0: nothing.
    """

    binary: bytes
    scratch_bytes: int = 0
    alignment: int = 0
    cycles: int = 0


def compile_region(
    name: str, words: tuple[str, ...], region: Region, folder: Path, *, mode: str, timeout_s: float
) -> Compiled:
    """Let the external compiler make a region's binary in a folder.

    Raises:
        BackendError: it failed, took too long, or wrote no binary; what it printed is told in the user's names.
    """
    for path, data in files_of(region, mode).items():
        (folder / path).write_bytes(data)
    before = {path.name for path in folder.iterdir()}
    output, report = folder / f"{region.name}.bin", folder / f"{region.name}.report.json"
    values = {
        "nodes": (str(folder / f"{region.name}.nodes.json"),),
        "constants": (str(folder / f"{region.name}.constants.json"),),
        "output": (str(output),),
        "report": (str(report),),
        "region": (region.name,),
        "mode": (mode,),
    }
    argv = filled(words, values)
    what = f"the compiler of the backend {name}, for {region.name},"
    done = proc.run(argv, what=what, timeout_s=timeout_s, cwd=folder, error=BackendError, check=False)
    lines = done.output.rstrip().splitlines()[-proc.LAST_LINES :]
    if done.returncode:
        raise BackendError(
            f"{what} failed with exit code {done.returncode}",
            details=["$ " + " ".join(argv), *in_the_users_names(lines, region)],
            hint="--backend-fallback leaves such regions to C",
        )
    if output.is_symlink() or not output.is_file() or not 0 < output.stat().st_size <= _MOST_BYTES:
        new = sorted({path.name for path in folder.iterdir()} - before)
        raise BackendError(
            f"{what} ended well, but wrote no binary",
            details=[
                f"expected {output.name}, a file of 1 to {_MOST_BYTES:,} bytes, where {{output}} stands",
                f"found {', '.join(new) or 'no new file'} in its working folder",
                *in_the_users_names(lines, region),
            ],
        )
    return Compiled(output.read_bytes(), **_report(report, what))


def _report(path: Path, what: str) -> dict[str, int]:
    """Return what a compiler says about its binary, if it says anything."""
    if not path.is_file():
        return {}
    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as wrong:
        raise BackendError(f"{what} wrote a report that is no JSON", details=[str(wrong)]) from None
    if not isinstance(read, dict):
        raise BackendError(f"{what} wrote a report that is no JSON object")
    numbers = {key: read[key] for key in _NUMBERS if key in read}
    wrong_key = next(
        (key for key, one in numbers.items() if type(one) is not int or not 0 <= one < _NUMBERS[key]), None
    )
    if wrong_key is not None:
        raise BackendError(f"{what} reports {wrong_key} = {numbers[wrong_key]!r}", details=["expected a whole number"])
    alignment = numbers.get("alignment", 0)
    if alignment & (alignment - 1):
        raise BackendError(f"{what} reports alignment = {alignment}", details=["expected a power of two"])
    return numbers


def in_the_users_names(lines: Sequence[str], region: Region) -> list[str]:
    """Return lines with the user's own nodes behind those that they name by what the region's files call them."""
    known: dict[str, str] = {}
    for number, operation in enumerate(region.operations):
        own = f"{operation.kind} {', '.join(repr(one) for one in operation.origins) or repr(operation.name)}"
        known[node_name(region, number)] = f"{own} of the model"
        known.setdefault(operation.name, f"{own} of the model")
        for tensor in (*operation.variables, *operation.outputs):
            if tensor.value != tensor.tensor:
                known.setdefault(tensor.value, f"the tensor {tensor.tensor!r} of the model")
    names = sorted(known, key=len, reverse=True)
    pattern = re.compile(r"(?<![\w./])(" + "|".join(map(re.escape, names)) + r")(?![\w/])")
    return [pattern.sub(lambda found: f"{found[1]} ({known[found[1]]})", line) for line in lines]
