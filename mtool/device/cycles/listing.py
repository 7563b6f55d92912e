"""The instructions of a firmware, from the toolchain's own disassembler."""

import bisect
import re
from pathlib import Path

from mtool.base import proc
from mtool.base.errors import BuildError
from mtool.device.cycles import riscv, thumb
from mtool.device.cycles.instruction import Instruction

_TIMEOUT_S = 120.0
_LABEL = re.compile(r"([0-9a-f]+) <(.+)>:$")
_LINE = re.compile(r"\s*([0-9a-f]+):\t([0-9a-f]{4}(?: [0-9a-f]{4}|[0-9a-f]{4})?)\s+([a-z]\S*)\s*(.*)$")
_NOTE = re.compile(r"\s*(?:[@;]|# | <)")


class Listing:
    """The code of a firmware.

    Args:
        elf: the firmware.
        toolchain: the compiler that made it, whose disassembler is used.
        helium: the core has MVE, whose instructions the disassembler else takes for a coprocessor's.

    Raises:
        BuildError: there is no such disassembler, or it can't read the firmware.
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
            elif found := _LINE.match(line):
                operands = _NOTE.split(found[4])[0]
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

    def has(self, name: str) -> bool:
        """Tell whether the firmware has a function of that name."""
        return any(label == name for _, label in self._labels)

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
            self._decoded[address] = self._decode(address, *self._text[address])
        return self._decoded[address]
