"""The code that an inference executes, and how often: counted in QEMU by a small plugin."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy.typing import ArrayLike

from mtool.base import proc
from mtool.base.errors import BuildError, CommunicationError
from mtool.device.build import toolchains
from mtool.device.cycles.instruction import Instruction
from mtool.device.cycles.listing import Listing
from mtool.device.session.opening import open

PLUGIN = Path(__file__).with_name("blocks.c")
_BUILD_TIMEOUT_S = 60.0
_CFLAGS = ("-std=gnu99", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")


@dataclass(frozen=True, slots=True)
class Block:
    """Code that ran from its first instruction to its last.

    Attributes:
        call: which call of the functions that were counted it ran in, from 1; 0: in such a function itself.
        body: its instructions.
        count: how often it ran.
        jumps: how often something else came after it than the instruction that follows it in memory.
        unaligned: accesses that those to unaligned addresses are made of, beyond one each.
        reads: of each flash, beyond what its caches had: of code after a jump, of code that follows, of data.
    """

    call: int
    body: tuple[Instruction, ...]
    count: int
    jumps: int
    unaligned: int = 0
    reads: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Executed:
    """The executed code: the functions that were counted, those that they called, in order, and the blocks."""

    functions: tuple[str, ...]
    calls: tuple[str, ...]
    blocks: tuple[Block, ...]


def execute(
    folder: Path,
    listing: Listing,
    functions: Sequence[str],
    inputs: Mapping[str, ArrayLike],
    flashes: Sequence[str] = (),
    *,
    through: Sequence[str] = (),
    model: str = "",
) -> Executed:
    """Run one inference in the board's emulator and return what ran in it.

    Args:
        folder: a project that is built.
        listing: the code of its firmware.
        functions: what to count: from the entry of one of them until it returns. The first one begins an inference.
        inputs: an array for each input of the model.
        flashes: what the plugin has to know of each flash whose reads are counted; see flash.py.
        through: functions that count as those that call them, where the firmware has them: what they call is told.
        model: the name of one of the project's models; empty: the only one.

    Raises:
        BuildError: there is no compiler for this computer, or the emulator can't count.
        MtoolError: as `session.open` and `Device.run` do.
    """
    with tempfile.TemporaryDirectory(prefix="mtool-cycles-") as temporary:
        out = Path(temporary) / "blocks.txt"
        plugin = build_plugin(Path(temporary))
        try:
            arguments = emulator_arguments(plugin, listing, functions, out, flashes, through)
            device = open(folder, emulator_arguments=arguments, model=model)
        except CommunicationError as failed:
            raise BuildError(
                "the emulator does not start with the plugin that counts instructions",
                details=[failed.what, *failed.details],
                hint="it has to be a QEMU with TCG plugins (Debian's is), version 4.2 or newer",
            ) from None
        with device:
            device.run(inputs, in_steps=False)
        return read(out, listing, functions)


def build_plugin(folder: Path) -> Path:
    """Build the plugin for this computer's QEMU in a folder and return its path.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    toolchains.require("cc")
    plugin = folder / "blocks.so"
    argv = [*toolchains.compiler_here("cc"), *_CFLAGS, str(PLUGIN), "-o", str(plugin)]
    proc.run(argv, what="build of the emulator's plugin", timeout_s=_BUILD_TIMEOUT_S)
    return plugin


def emulator_arguments(
    plugin: Path,
    listing: Listing,
    functions: Sequence[str],
    out: Path,
    flashes: Sequence[str] = (),
    through: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the arguments with which QEMU counts what runs from the entry of some functions until they return.

    Args:
        plugin: the plugin, built.
        listing: the code of the firmware.
        functions: what to count.
        out: the file that the counts go to when QEMU ends.
        flashes, through: as `execute` has them.

    Raises:
        BuildError: there is no such function, or it does not return.
    """
    counted: list[str] = []
    for function in functions:
        body = listing.function(function)
        start, size = _extent(body)
        ends = [f"end={instruction.address:x}" for instruction in body if instruction.returns]
        if not ends:
            raise BuildError(f"no return is found in {function}", details=["counting stops at a function's return"])
        counted += [f"begin={start:x}", f"size={size:x}", *ends]
    for function in filter(listing.has, through):
        start, size = _extent(listing.function(function))
        counted.append(f"through={start:x}:{size:x}")
    return ("-plugin", ",".join([str(plugin), *counted, *flashes, f"out={out}"]))


def _extent(body: Sequence[Instruction]) -> tuple[int, int]:
    """Return the address and the bytes of a function."""
    return body[0].address, body[-1].address + body[-1].bytes - body[0].address


def read(out: Path, listing: Listing, functions: Sequence[str]) -> Executed:
    """Return what QEMU has counted.

    Raises:
        BuildError: it counted nothing, or a function did not run from its entry to a return, the first one once.
    """
    if not out.is_file():
        raise BuildError("the emulator counted nothing", details=[f"it left no {out.name}"])
    calls, blocks = [], []
    runs: list[tuple[int, int]] = []
    for kind, *fields in map(str.split, out.read_text().splitlines()):
        if kind == "runs":
            runs.append((int(fields[0]), int(fields[1])))
        elif kind == "call":
            calls.append(listing.function_at(int(fields[1], 16)))
        else:
            call, first, last, *counts = fields
            body = listing.between(int(first, 16), int(last, 16) + 1)
            count, after_2, after_4, unaligned, *reads = map(int, counts)
            jumps = count - (after_2 if body[-1].bytes == 2 else after_4)
            of_flashes = tuple(zip(*[iter(reads)] * 3, strict=True))
            blocks.append(Block(int(call), tuple(body), count, jumps, unaligned, of_flashes))
    for function, (started, ended) in zip(functions, runs, strict=True):
        if started != ended or not started or (started > 1 and function == functions[0]):
            raise BuildError(
                f"{function} can't be followed", details=[f"it was entered {started} times and returned {ended} times"]
            )
    return Executed(tuple(functions), tuple(calls), tuple(blocks))
