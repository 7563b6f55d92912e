"""Vela, Arm's compiler for Ethos-U: runs it on a TFLite model and reads its output."""

import csv
import importlib.util
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from mtool.base import distribution, proc
from mtool.base.frozen import frozen
from mtool.compiler.backends.interface import BackendError, Operand, Operation, OperationsRefused
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.external import EthosU

CONFIGURATIONS = (
    *(f"ethos-u55-{macs}" for macs in (32, 64, 128, 256)),
    *(f"ethos-u65-{macs}" for macs in (256, 512)),
    *(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048)),
)
"""The configurations of the NPU, by their multipliers."""
INSTALL = distribution.install("ethos-u")
TIMEOUT_S = 1800.0
_REASON = re.compile(
    r"^Warning \(supported operators\) operator: (\w+), ofm: '(.*)'\n((?:(?!Warning|Traceback).+\n)+)", re.MULTILINE
)
_ON_THE_CPU = re.compile(r"^CPU operators = *([1-9]\d*)", re.MULTILINE)


@frozen
class Place:
    """Where a tensor lies: the number of its base address, the bytes from there on, and its size in bytes."""

    base: int
    offset: int
    bytes: int


@frozen
class Compiled:
    """Vela's output for a model that runs entirely on the NPU.

    commands: the driver's actions with the command stream, as the driver reads them.
    constants: weights, scales and tables, encoded.
    bases: the bytes behind each base address, by its number; `constant_base` is that of `constants`.
    inputs, outputs: where the model's tensors lie.
    cycles: Vela's estimate of an inference; 0: none.
    same: base addresses that are another's, by their numbers.
    """

    commands: Array
    constants: Array
    bases: tuple[int, ...]
    constant_base: int
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    cycles: float
    same: Mapping[int, int] = field(default_factory=dict)


def compiled(model: Path, options: Sequence[str], names: Sequence[str]) -> Compiled:
    """Compile a TFLite model by Vela; its files are next to the model.

    Args:
        model: the path of the model.
        options: of Vela's command line.
        names: the user's names of the model's operators, for messages.

    Raises:
        BackendError: Vela is not installed, or it fails.
        OperationsRefused: it leaves operators to the CPU; the reasons, by output tensor.
    """
    if importlib.util.find_spec("ethosu") is None or importlib.util.find_spec("ethosu.vela") is None:
        raise BackendError("Vela, the compiler for Ethos-U, is not installed", hint=INSTALL)
    folder = model.parent / "vela"
    argv = [sys.executable, "-P", "-m", "ethosu.vela", str(model), "--output-dir", str(folder)]
    argv += ["--output-format", "raw", "--show-cpu-operations", *options]
    done = proc.run(argv, what="Vela", timeout_s=TIMEOUT_S, cwd=model.parent, error=BackendError, check=False)
    path = folder / f"{model.stem}_vela.npz"
    if done.returncode or not path.is_file() or _ON_THE_CPU.search(done.output):
        raise _refused(model.stem, done.output, names)
    try:
        return _read(path, _cycles(folder, model.stem))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as failed:
        raise BackendError("Vela's output can't be read", details=[str(failed)]) from failed


def _refused(model: str, output: str, names: Sequence[str]) -> BackendError:
    """Return the error for a model that Vela does not compile for the NPU only."""
    refusals = [
        (kind, tensor, " ".join(why.split()).removeprefix("Reason: ").removeprefix("- "))
        for kind, tensor, why in _REASON.findall(output)
    ]
    reasons = [f"{kind} of {tensor}: {why}" for kind, tensor, why in refusals]
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "it says nothing")
    listed = [*names[:5], *([f"and {len(names) - 5} more"] if len(names) > 5 else [])]
    hint = "skip=TENSOR leaves the operator that computes TENSOR to C, --backend-fallback all of them"
    details = [*(reasons[:10] or [last]), f"the region has {', '.join(listed)}"]
    if not reasons:
        return BackendError(f"Vela does not compile {model}", details=details, hint=hint)
    why = {tensor: f"Vela leaves it to the CPU: {reason}" for _, tensor, reason in refusals}
    return OperationsRefused(f"Vela leaves operators of {model} to the CPU", why, details=details, hint=hint)


def _cycles(folder: Path, model: str) -> float:
    (summary,) = sorted(folder.glob(f"{model}_summary_*.csv"))
    with summary.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    return float(row["cycles_total"])


def _read(path: Path, cycles: float) -> Compiled:
    with np.load(path, allow_pickle=False) as file:
        constants, scratch = _bytes(file["weight_data"]), int(file["scratch_size"])
        sizes = {int(file["weight_region"]): constants.size, int(file["scratch_region"]): scratch}
        if int(file["scratch_fast_size"]):  # of 0 bytes it has the number 0
            fast = int(file["scratch_fast_region"])
            sizes[fast] = max(sizes.get(fast, 0), int(file["scratch_fast_size"]))
        places = [
            tuple(
                Place(int(base), int(offset), int(np.prod(shape)) * int(size))
                for base, offset, shape, size in zip(
                    file[f"{kind}_region"], file[f"{kind}_offset"], file[f"{kind}_shape"], file[f"{kind}_elem_size"],
                    strict=True,
                )
            )
            for kind in ("input", "output")
        ]  # fmt: skip
        commands, constant_base = _bytes(file["cmd_data"]), int(file["weight_region"])
        if len(file["variable_region"]):
            raise ValueError("it has variables")
    bases = [0] * (max(sizes) + 1)
    for base, size in sizes.items():
        bases[base] = size
    for place in (*places[0], *places[1]):
        if place.offset < 0 or place.base >= len(bases) or place.offset + place.bytes > bases[place.base]:
            raise ValueError(f"a tensor lies outside of its memory: {place}, sizes {bases}")
    return Compiled(commands, constants, tuple(bases), constant_base, places[0], places[1], cycles)


def _bytes(data: Array) -> Array:
    return np.frombuffer(data.tobytes(), np.uint8)


COMPILED = "EthosU"
"""The kind of the operation."""
_MAGIC = b"COP1"
_SCRATCH, _FAST = 1, 2  # numbers of base addresses, as ethosu.cc of TensorFlow Lite Micro has them


def precompiled(operation: Operation) -> Compiled:
    """Return the output that a precompiled model contains.

    Raises:
        BackendError: its command stream is not for the driver.
    """
    attrs = EthosU.of(operation)
    commands, constants = (np.asarray(operation.operand(number).data, np.uint8) for number in (0, 1))
    if commands[:4].tobytes() != _MAGIC or commands.size % 4:
        expected = f"expected a multiple of 4 bytes that begins with {_MAGIC!r}"
        message = f"the command stream of {operation.name} is not for the Ethos-U core driver"
        details = [expected, f"found {commands[:4].tobytes()!r}"]
        raise BackendError(message, details=details, hint="use the original model, not Vela's output")
    return Compiled(
        commands=commands,
        constants=constants,
        bases=(constants.size, attrs.scratch, attrs.fast or attrs.scratch),
        constant_base=0,
        inputs=_places_of(attrs.read, operation.variables),
        outputs=_places_of(attrs.written, operation.outputs),
        cycles=0.0,
        same={} if attrs.fast else {_FAST: _SCRATCH},
    )


def _places_of(offsets: Sequence[int], operands: Sequence[Operand]) -> tuple[Place, ...]:
    return tuple(Place(_SCRATCH, offset, operand.type.bytes) for offset, operand in zip(offsets, operands, strict=True))
