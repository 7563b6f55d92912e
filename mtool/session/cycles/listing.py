"""The instructions of a firmware, from the toolchain's own disassembler."""

import bisect
import re
from dataclasses import dataclass
from pathlib import Path

from mtool import proc
from mtool.errors import BuildError
from mtool.session.cycles.cores import group_of, groups

_TIMEOUT_S = 120.0
_CONDITIONS = ("eq", "ne", "cs", "hs", "cc", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al")
_ALIASES = {"sb": "r9", "sl": "r10", "fp": "r11", "ip": "r12", "r13": "sp", "r14": "lr", "r15": "pc"}
_LABEL = re.compile(r"([0-9a-f]+) <(.+)>:$")
_LINE = re.compile(r"\s*([0-9a-f]+):\t([0-9a-f]{4}(?: [0-9a-f]{4})?)\s+([a-z]\S*)\s*(.*)$")
_OPERAND = re.compile(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+")
_REGISTERS = re.compile(r"\b([rsd])(\d+)-[rsd](\d+)\b|\b(r\d+|s\d+|d\d+|sp|lr|pc|ip|fp|sl|sb)\b")
_SHIFT = re.compile(r"(lsl|lsr|asr|ror|rrx)\b")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, as far as its time depends on it.

    Attributes:
        address: of its first byte.
        bytes: 2 or 4.
        mnemonic: without condition, "s" and data type; one that is not known stays as the disassembler wrote it.
        group: see `instructions.yaml`.
        operands: as the disassembler wrote them.
        reads: registers that it needs, but for `early` and `late`; a double-precision one counts as two.
        early: registers of its address, or of a shifted operand.
        late: its accumulator, or what it stores.
        writes: registers that it changes, but for the base of an address.
        base: the base of the address, if that is changed too; else empty.
        words: 32-bit words that it loads or stores.
        indexed: the address has a register as its offset.
        double: it works in double precision.
    """

    address: int
    bytes: int
    mnemonic: str
    group: str
    operands: str
    reads: frozenset[str]
    early: frozenset[str]
    late: frozenset[str]
    writes: frozenset[str]
    base: frozenset[str]
    words: int
    indexed: bool
    double: bool

    @property
    def kind(self) -> str:
        """Return what the instruction mix counts it as."""
        return groups()[self.group].kind if self.group else "other"

    @property
    def returns(self) -> bool:
        """Return whether it leaves a function for its caller."""
        return "pc" in self.writes or (self.mnemonic == "bx" and self.operands == "lr")


class Listing:
    """The code of a firmware.

    Args:
        elf: the firmware.
        toolchain: the compiler that made it, whose disassembler is used.

    Raises:
        BuildError: there is no such disassembler, or it can't read the firmware.
    """

    def __init__(self, elf: Path, toolchain: str) -> None:
        disassembler = toolchain.removesuffix("gcc") + "objdump"
        argv = [disassembler, "-d", str(elf)]
        self._text: dict[int, tuple[int, str, str]] = {}
        self._labels: list[tuple[int, str]] = []
        self._decoded: dict[int, Instruction] = {}
        for line in proc.run(argv, what="disassembly of the firmware", timeout_s=_TIMEOUT_S).output.splitlines():
            if label := _LABEL.match(line):
                self._labels.append((int(label[1], 16), label[2]))
            elif found := _LINE.match(line):
                operands = re.split(r"\s*(?:[@;]| <)", found[4])[0]
                self._text[int(found[1], 16)] = (len(found[2].replace(" ", "")) // 2, found[3], operands.strip())
        self._labels.sort()
        self._addresses = sorted(self._text)

    def function(self, name: str) -> list[Instruction]:
        """Return the instructions of a function.

        Raises:
            BuildError: the firmware has none of that name.
        """
        starts = [address for address, label in self._labels if label == name]
        if not starts:
            raise BuildError(f"the firmware has no function {name}", hint="build it again: mtool build")
        index = bisect.bisect_right(self._labels, (starts[0], chr(0x10FFFF)))
        end = self._labels[index][0] if index < len(self._labels) else self._addresses[-1] + 1
        return self.between(starts[0], end)

    def function_at(self, address: int) -> str:
        """Return the function that an address lies in, without GCC's ".constprop.0"; empty before the first."""
        index = bisect.bisect_right(self._labels, (address, chr(0x10FFFF)))
        return self._labels[index - 1][1].partition(".")[0] if index else ""

    def between(self, start: int, end: int) -> list[Instruction]:
        """Return the instructions from an address up to another one."""
        first = bisect.bisect_left(self._addresses, start)
        return [self._at(address) for address in self._addresses[first : bisect.bisect_left(self._addresses, end)]]

    def _at(self, address: int) -> Instruction:
        if address not in self._decoded:
            self._decoded[address] = decode(address, *self._text[address])
        return self._decoded[address]


def decode(address: int, size: int, written: str, operands: str) -> Instruction:
    """Return an instruction of 2 or 4 bytes from what the disassembler wrote: "ldr.w" and "r3, [r2, #4]!"."""
    mnemonic = _mnemonic(written)
    parts = [part.strip() for part in _OPERAND.findall(operands)]
    group = group_of().get(mnemonic, "")
    if mnemonic == "vmov" and len(parts) >= 3:
        group = "float_move_pair"
    described = groups().get(group)
    results = described.results if described else 1
    if group == "float_move_pair":
        results = 1 if parts[0].startswith("d") else 2
    is_memory = [part.startswith("[") for part in parts]
    memory = parts[is_memory.index(True)] if any(is_memory) else ""
    listed = next((part for part in parts if part.startswith("{")), "")
    shifted = next((index for index, part in enumerate(parts) if _SHIFT.match(part)), 0)
    if memory:
        base = memory
        writes_back = memory.endswith("!") or not is_memory[-1]
    else:  # of several registers: {r4, lr} stands alone after push and pop
        base = "" if not listed else parts[0] if len(parts) > 1 else "sp"
        writes_back = base.endswith("!") or (bool(listed) and len(parts) == 1)
    results_at = {parts.index(listed)} if results == "list" else set(range(results))
    writes = _set([part for index, part in enumerate(parts) if index in results_at])
    early = _set([base]) if base else _set(parts[shifted - 1 : shifted])
    reads = _set([part for index, part in enumerate(parts) if index not in results_at and part != base]) - early
    late: frozenset[str] = frozenset()
    if described and described.kind == "store":
        late, reads = reads, frozenset()
    elif described and described.accumulates:
        late = writes
    elif group == "multiply_accumulate" and len(parts) == 4:
        late = _set(parts[3:])
        reads = _set(parts[1:3])
    elif results == 1 and len(parts) == 2 and group in ("arithmetic", "shift", "multiply"):
        reads |= writes
    moved = listed or (parts[0] if memory and group.startswith("float") else "")
    return Instruction(
        address=address,
        bytes=size,
        mnemonic=mnemonic,
        group=group,
        operands=operands,
        reads=reads,
        early=early,
        late=late,
        writes=writes,
        base=_set([re.split(r"[,\]]", base)[0]]) if writes_back else frozenset(),
        words=len(_set([moved])) if moved else 2 if group.endswith("_double") else 1,
        indexed=len(_set([memory])) == 2,
        double="f64" in written,
    )


def _mnemonic(written: str) -> str:
    """Return a mnemonic as `instructions.yaml` has it: "vcvt" for "vcvtne.f32.s32", "add" for "addsne.w"."""
    known = group_of()
    whole = written.split(".")[0]
    unconditional = whole[:-2] if whole[-2:] in _CONDITIONS else whole
    for candidate in (whole, unconditional, whole.removesuffix("s"), unconditional.removesuffix("s")):
        if candidate in known:
            return candidate
    return written


def _set(texts: list[str]) -> frozenset[str]:
    """Return the registers that stand in texts; d1 is s2 and s3."""
    found: set[str] = set()
    for match in _REGISTERS.finditer(" ".join(texts)):
        letter, low, high, single = match.groups()
        names = [f"{letter}{n}" for n in range(int(low), int(high) + 1)] if letter else [single]
        for name in names:
            if name[0] == "d":
                found |= {f"s{2 * int(name[1:])}", f"s{2 * int(name[1:]) + 1}"}
            else:
                found.add(_ALIASES.get(name, name))
    return frozenset(found)
