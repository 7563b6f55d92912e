"""The code that an inference executes, with counts from a small QEMU plugin."""

import bisect
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy.typing import ArrayLike

from mtool.base import proc
from mtool.base.errors import BuildError, CommunicationError
from mtool.device.build import toolchains
from mtool.device.cycles import riscv, thumb
from mtool.device.cycles.cores import Instruction
from mtool.device.session.opening import open

# The instructions of firmware, from the toolchain's disassembler.


_TIMEOUT_S = 120.0
_LABEL = re.compile(r"([0-9a-f]+) <(.+)>:$")
_LINE = re.compile(r"\s*([0-9a-f]+):\t([0-9a-f]{4}(?: [0-9a-f]{4}|[0-9a-f]{4})?)\s+([a-z]\S*)\s*(.*)$")
_NOTE = re.compile(r"\s*(?:[@;]|# | <)")


class Listing:
    """The code of firmware.

    Args:
        elf: the firmware.
        toolchain: the compiler that built it, for its disassembler.
        helium: the core has MVE; otherwise the disassembler would decode its instructions as a coprocessor's.

    Raises:
        BuildError: the disassembler is missing or can't read the firmware.
    """

    def __init__(self, elf: Path, toolchain: str, *, helium: bool = False) -> None:
        self._decode = riscv.decode if "riscv" in Path(toolchain).name else thumb.decode
        disassembler = toolchain.removesuffix("gcc") + "objdump"
        argv = [disassembler, "-d", *(["-marmv8.1-m.main"] if helium else []), str(elf)]
        self._text: dict[int, tuple[int, str, str]] = {}
        self._labels: list[tuple[int, str]] = []
        self._decoded: dict[int, Instruction] = {}
        for line in proc.run(argv, what="disassembly of the firmware", timeout_s=_TIMEOUT_S).output.splitlines():
            if label := _LABEL.match(line):
                self._labels.append((int(label[1], 16), label[2]))
            elif match := _LINE.match(line):
                operands = _NOTE.split(match[4])[0]
                self._text[int(match[1], 16)] = (len(match[2].replace(" ", "")) // 2, match[3], operands.strip())
        self._labels.sort()
        self._addresses = sorted(self._text)

    def function(self, name: str) -> list[Instruction]:
        """Return the instructions of a function.

        Raises:
            BuildError: the firmware has no such function.
        """
        starts = [address for address, label in self._labels if label == name]
        if not starts:
            raise BuildError(f"the firmware has no function {name}", hint="build it again: mtool build")
        index = bisect.bisect_right(self._labels, (starts[0], chr(0x10FFFF)))
        end = self._labels[index][0] if index < len(self._labels) else self._addresses[-1] + 1
        return self.between(starts[0], end)

    def has(self, name: str) -> bool:
        """Return whether the firmware has a function of that name."""
        return any(label == name for _, label in self._labels)

    def function_at(self, address: int) -> str:
        """Return the function that contains an address, without GCC's ".constprop.0"; empty before the first."""
        index = bisect.bisect_right(self._labels, (address, chr(0x10FFFF)))
        return self._labels[index - 1][1].partition(".")[0] if index else ""

    def between(self, start: int, end: int) -> list[Instruction]:
        """Return the instructions from an address up to another one."""
        first = bisect.bisect_left(self._addresses, start)
        return [self._at(address) for address in self._addresses[first : bisect.bisect_left(self._addresses, end)]]

    def _at(self, address: int) -> Instruction:
        if address not in self._decoded:
            self._decoded[address] = self._decode(address, *self._text[address])
        return self._decoded[address]


PLUGIN = Path(__file__).with_name("blocks.c")
_BUILD_TIMEOUT_S = 60.0
_CFLAGS = ("-std=gnu99", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")


@dataclass(frozen=True, slots=True)
class Block:
    """Code that ran from its first instruction to its last.

    Attributes:
        call: the number of the counted functions' call in which it ran, from 1; 0: in such a function itself.
        body: its instructions.
        count: how often it ran.
        jumps: how often the next executed instruction was not the next one in memory.
        unaligned: additional accesses from splitting unaligned ones.
        reads: of each flash, those that missed its caches: of code after a jump, of code that follows, of data.
    """

    call: int
    body: tuple[Instruction, ...]
    count: int
    jumps: int
    unaligned: int = 0
    reads: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Executed:
    """The executed code: the counted functions, the functions that they called, in order, and the blocks."""

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
    """Run one inference in the board's emulator and return the executed code.

    Args:
        folder: a built project.
        listing: the code of its firmware.
        functions: what to count, from the entry of each until it returns. The first one starts an inference.
        inputs: an array for each input of the model.
        flashes: the plugin's arguments for each flash whose reads are counted; see `estimate.flash_arguments`.
        through: functions that count as part of their callers, if the firmware has them: their calls are reported.
        model: one of the project's models; empty: the only one.

    Raises:
        BuildError: there is no compiler for this computer, or the emulator can't count.
        MtoolError: as for `session.open` and `Device.run`.
    """
    with tempfile.TemporaryDirectory(prefix="mtool-cycles-") as temporary:
        out = Path(temporary) / "blocks.txt"
        plugin = build_plugin(Path(temporary))
        try:
            arguments = emulator_arguments(plugin, listing, functions, out, flashes, through)
            device = open(folder, emulator_arguments=arguments, model=model)
        except CommunicationError as failed:
            raise BuildError(
                "the emulator did not start with the plugin that counts instructions",
                details=[failed.what, *failed.details],
                hint="use QEMU 4.2 or newer with TCG plugins, such as Debian's",
            ) from None
        with device:
            device.run(inputs, in_steps=False)
        return read(out, listing, functions)


def build_plugin(folder: Path) -> Path:
    """Build the plugin for this computer's QEMU in a folder and return its path.

    Raises:
        BuildError: there is no compiler, or it failed.
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
        plugin: the built plugin.
        listing: the code of the firmware.
        functions: what to count.
        out: the file to which QEMU writes the counts when it ends.
        flashes, through: as for `execute`.

    Raises:
        BuildError: there is no such function, or it does not return.
    """
    counted: list[str] = []
    for function in functions:
        body = listing.function(function)
        start, size = _extent(body)
        ends = [f"end={instruction.address:x}" for instruction in body if instruction.returns]
        if not ends:
            raise BuildError(f"found no return instruction in {function}", details=["counting ends at its return"])
        counted += [f"begin={start:x}", f"size={size:x}", *ends]
    for function in filter(listing.has, through):
        start, size = _extent(listing.function(function))
        counted.append(f"through={start:x}:{size:x}")
    return ("-plugin", ",".join([str(plugin), *counted, *flashes, f"out={out}"]))


def _extent(body: Sequence[Instruction]) -> tuple[int, int]:
    """Return the address and the bytes of a function."""
    return body[0].address, body[-1].address + body[-1].bytes - body[0].address


def read(out: Path, listing: Listing, functions: Sequence[str]) -> Executed:
    """Return QEMU's counts.

    Raises:
        BuildError: it counted nothing, or a function did not run from its entry to a return, the first one once.
    """
    if not out.is_file():
        raise BuildError("the emulator counted nothing", details=[f"it wrote no {out.name}"])
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
            raise BuildError(f"can't count {function}", details=[f"number of entries: {started}, returns: {ended}"])
    return Executed(tuple(functions), tuple(calls), tuple(blocks))
