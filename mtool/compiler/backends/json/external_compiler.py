"""The external compiler of a region: two JSON files in, a model binary out, and its errors in the user's names.

docs/backends-json.md describes the files.
"""

import base64
import dataclasses
import enum
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mtool.base import command_line, proc
from mtool.base.frozen import frozen
from mtool.compiler.backends.interface import Activation, BackendError, Operand, Operation, Region
from mtool.version import __version__

_PLACE = re.compile(r"\{(\w+)\}")


def words_of(text: str, option: str, here: Path | None, places: frozenset[str]) -> tuple[str, ...]:
    """Return the words of a command; paths of existing files become absolute, because it runs in another folder.

    Args:
        text: the command, quoted as for a POSIX shell.
        option: "compiler" or "simulator".
        here: the folder that {here} stands for; None: {here} is not allowed.
        places: the other allowed placeholders.

    Raises:
        UsageError: as `mtool.base.command_line.words_of`.
    """
    allowed = {*places, *([] if here is None else ["here"])}
    words = command_line.words_of(text, sorted(allowed), what=f"the command {option}=")
    if here is not None:
        words = [word.replace("{here}", str(here)) for word in words]
    return tuple(_absolute(word, is_program=not number) for number, word in enumerate(words))


def filled(words: tuple[str, ...], values: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return words with their placeholders filled; a word that is one placeholder of several values becomes several."""
    argv: list[str] = []
    for word in words:
        alone = _PLACE.fullmatch(word)
        if alone and alone[1] in values:
            argv += values[alone[1]]
        else:
            argv.append(_PLACE.sub(lambda place: " ".join(values.get(place[1], (place[0],))), word))
    return argv


def _absolute(word: str, *, is_program: bool) -> str:
    path = Path(word)
    is_path = "/" in word or not is_program
    return str(path.resolve()) if is_path and not path.is_absolute() and path.is_file() else word


VERSION_OF_SCHEMA = 1
"""Changes if a reader of the old files would misread the new ones; new keys alone do not change it."""
_IMAGES = {3: "NWC", 4: "NHWC", 5: "NDHWC"}
_IMAGES_FIRST = {3: "NCW", 4: "NCHW", 5: "NCDHW"}
_FILTERS = {3: "OIW", 4: "OIHW", 5: "OIDHW"}


def files_of(region: Region, mode: str) -> dict[str, bytes]:
    """Return `<region>.nodes.json` and `<region>.constants.json`.

    Args:
        region: the region, as the device has it.
        mode: the mode that the files name.
    """
    writer, context = _Writer(region), region.context
    head = {
        "schema": {"name": "mtool-region", "version": VERSION_OF_SCHEMA},
        "producer": f"mtool {__version__}",
        "model": region.model,
        "region": region.name,
    }
    inputs = [writer.tensor(operand) for operand in region.inputs]
    nodes = [writer.node(number, operation) for number, operation in enumerate(region.operations)]
    files = {
        "nodes": {
            **head,
            "mode": mode,
            "board": context.board,
            "rounding": context.rounding,
            "tolerance": context.tolerance,
            "inputs": inputs,
            "outputs": [writer.tensor(operand) for operand in region.outputs],
            "tensors": writer.tensors,
            "nodes": nodes,
        },
        "constants": {**head, "constants": writer.data},
    }
    return {
        f"{region.name}.{name}.json": (json.dumps(table, indent=1, allow_nan=False) + "\n").encode()
        for name, table in files.items()
    }


def node_name(region: Region, number: int) -> str:
    """Return the name of an operation in the files, by its number in the region."""
    return f"{region.name}_n{number}"


class _Writer:
    def __init__(self, region: Region) -> None:
        self.region = region
        self.numbers: dict[tuple[str, bool], int] = {}
        self.tensors: list[dict[str, Any]] = []
        self.data: dict[str, dict[str, Any]] = {}

    def node(self, number: int, operation: Operation) -> dict[str, Any]:
        layouts = [_layout(operation, place, operand) for place, operand in enumerate(operation.inputs)]
        result = _image(operation.layout, len(operation.output.shape))
        return {
            "name": node_name(self.region, number),
            "op": operation.kind,
            "operation": operation.name,
            "origins": list(operation.origins),
            "inputs": [
                None if operand is None else self.tensor(operand, layout)
                for operand, layout in zip(operation.inputs, layouts, strict=True)
            ],
            "outputs": [self.tensor(operand, result) for operand in operation.outputs],
            "layout": operation.layout,
            "activation": _activation(operation.activation),
            "attributes": {field.name: _plain(getattr(operation.attrs, field.name))
                           for field in dataclasses.fields(operation.attrs)},
            "macs": operation.macs,
        }  # fmt: skip

    def tensor(self, operand: Operand, layout: str = "") -> int:
        """Return the number of a tensor; the operators that depend on the layout report it."""
        key = operand.value, operand.is_constant
        if key not in self.numbers:
            self.numbers[key] = len(self.tensors)
            self.tensors.append(
                {
                    "name": operand.value,
                    "tensor": operand.tensor,
                    "dtype": operand.dtype.label,
                    "shape": list(operand.shape),
                    "layout": "",
                    "quantisation": _grid(operand),
                    "constant": self.constant(operand) if operand.is_constant else None,
                }
            )
        number = self.numbers[key]
        self.tensors[number]["layout"] = self.tensors[number]["layout"] or layout
        return number

    def constant(self, operand: Operand) -> str:
        name, data = f"c{len(self.data)}", operand.elements
        self.data[name] = {
            "tensor": operand.tensor,
            "dtype": operand.dtype.label,
            "shape": list(operand.shape),
            "encoding": "base64",
            "data": base64.b64encode(data.astype(data.dtype.newbyteorder("<")).tobytes()).decode("ascii"),
        }
        return name


def _grid(operand: Operand) -> dict[str, Any] | None:
    quant = operand.quant
    if quant is None:
        return None
    return {"scale": list(quant.scale), "zero_point": list(quant.zero_point), "axis": quant.axis}


def _activation(activation: Activation | None) -> dict[str, Any] | None:
    return None if activation is None else {"low": _plain(activation.low), "high": _plain(activation.high)}


def _image(layout: str, rank: int) -> str:
    return {"NHWC": _IMAGES, "NCHW": _IMAGES_FIRST}.get(layout, {}).get(rank, "")


def _layout(operation: Operation, place: int, operand: Operand | None) -> str:
    if operand is None:
        return ""
    rank = len(operand.shape)
    if place == 0:
        return _image(operation.layout, rank)
    if place != 1 or not operation.layout:
        return ""
    filters = _FILTERS.get(rank, "")
    return {"Conv": filters, "ConvTranspose": filters.replace("OI", "IO")}.get(operation.kind, "")


def _plain(value: Any) -> Any:
    """Return an attribute as JSON; a value that JSON can't express becomes text."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return str(value)


PLACES = frozenset({"nodes", "constants", "output", "report", "region", "mode"})
"""The placeholders of a compiler's command."""
_MOST_BYTES = 1 << 28
_NUMBERS = {"scratch_bytes": 2**31, "alignment": 1 << 12, "cycles": 2**53}


@frozen
class Compiled:
    """A region as compiled by an external compiler.

    binary: the model binary.
    scratch_bytes, alignment, cycles: from its report; 0: not given.
    """

    binary: bytes
    scratch_bytes: int = 0
    alignment: int = 0
    cycles: int = 0


def compile_region(
    name: str, words: tuple[str, ...], region: Region, folder: Path, *, mode: str, timeout_s: float
) -> Compiled:
    """Run the external compiler on a region in a folder.

    Raises:
        BackendError: it failed, took too long, or wrote no binary; its output is quoted with the user's names.
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
    subject = f"the compiler of the backend {name}, for {region.name},"
    done = proc.run(argv, what=subject, timeout_s=timeout_s, cwd=folder, error=BackendError, check=False)
    lines = done.output.rstrip().splitlines()[-proc.LAST_LINES :]
    if done.returncode:
        raise BackendError(
            f"{subject} failed with exit code {done.returncode}",
            details=["$ " + " ".join(argv), *with_user_names(lines, region)],
            hint="--backend-fallback leaves such regions to C",
        )
    if output.is_symlink() or not output.is_file() or not 0 < output.stat().st_size <= _MOST_BYTES:
        new = sorted({path.name for path in folder.iterdir()} - before)
        expected = f"expected {output.name}, a file of 1 to {_MOST_BYTES:,} bytes, written to {{output}}"
        details = [expected, f"found {', '.join(new) or 'no new file'} in its working folder"]
        details += with_user_names(lines, region)
        raise BackendError(f"{subject} exited with 0, but wrote no binary", details=details)
    return Compiled(output.read_bytes(), **_report(report, subject))


def _report(path: Path, name: str) -> dict[str, int]:
    """Return the numbers in a compiler's report, if it wrote one."""
    if not path.is_file():
        return {}
    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as wrong:
        raise BackendError(f"{name} wrote a report that is not valid JSON", details=[str(wrong)]) from None
    if not isinstance(read, dict):
        raise BackendError(f"{name} wrote a report that is not a JSON object")
    numbers = {key: read[key] for key in _NUMBERS if key in read}
    wrong_key = next(
        (key for key, value in numbers.items() if type(value) is not int or not 0 <= value < _NUMBERS[key]), None
    )
    if wrong_key is not None:
        raise BackendError(f"{name} reports {wrong_key} = {numbers[wrong_key]!r}", details=["expected a whole number"])
    alignment = numbers.get("alignment", 0)
    if alignment & (alignment - 1):
        raise BackendError(f"{name} reports alignment = {alignment}", details=["expected a power of two"])
    return numbers


def with_user_names(lines: Sequence[str], region: Region) -> list[str]:
    """Return lines with the user's node names added after the names from the region's files."""
    labels: dict[str, str] = {}
    for number, operation in enumerate(region.operations):
        label = f"{operation.kind} {', '.join(map(repr, operation.origins)) or repr(operation.name)}"
        labels[node_name(region, number)] = f"{label} of the model"
        labels.setdefault(operation.name, f"{label} of the model")
        for tensor in (*operation.variables, *operation.outputs):
            if tensor.value != tensor.tensor:
                labels.setdefault(tensor.value, f"the tensor {tensor.tensor!r} of the model")
    names = sorted(labels, key=len, reverse=True)
    pattern = re.compile(r"(?<![\w./])(" + "|".join(map(re.escape, names)) + r")(?![\w/])")
    return [pattern.sub(lambda match: f"{match[1]} ({labels[match[1]]})", line) for line in lines]
