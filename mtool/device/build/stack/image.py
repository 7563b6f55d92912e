"""The code and data of a linked file."""

import bisect

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from mtool.device.build.symbolizer import symbols

ARM, AVR, RISCV = "ARM", "Atmel AVR 8-bit", "RISC-V"
"""Machines, as pyelftools names them."""
_AVR_OF_22_BITS = (6, 106, 107)  # in e_flags: their program counter has 22 bits
_TABLE_JUMP = "__tablejump"
_MARKS = ("$d", "$t", "$a", "$x")  # symbols where data or code begins


class Image:
    """The code and data of a linked file.

    Attributes:
        machine: its name.
        functions: the name of each function, and the address after it, by its address.
        names: the addresses of functions.
        objects: the name, the address and the bytes of each constant and variable with contents.
        table_jumps: the addresses of code that jumps to where the caller's table leads (AVR's library).
        labels: the names of other addresses in code.
        link: the bytes that a call pushes.
        pointer_bytes: the size of a pointer.
        thumb: 1 if a function's pointer is one more than its address.
    """

    def __init__(self, elf: ELFFile) -> None:
        self.machine = elf.get_machine_arch()
        is_avr = self.machine == AVR
        self.link = (3 if elf["e_flags"] & 0x7F in _AVR_OF_22_BITS else 2) if is_avr else 0
        self.pointer_bytes = 2 if is_avr else elf.elfclass // 8
        self.thumb = int(self.machine == ARM)
        self._sections: list[tuple[int, bytes]] = []
        is_code = {}
        for number, section in enumerate(elf.iter_sections()):
            if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section["sh_type"] == "SHT_PROGBITS":
                is_code[number] = bool(section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)
                self._sections.append((section["sh_addr"], section.data()))
        self.names: dict[str, int] = {}
        self.labels: dict[int, str] = {}
        self.objects: list[tuple[str, int, int]] = []
        sizes: dict[int, tuple[str, int]] = {}
        marks: dict[int, bool] = {}
        for symbol in symbols(elf):
            kind, at, size, name = symbol["st_info"]["type"], symbol["st_value"], symbol["st_size"], symbol.name
            start = at & ~self.thumb
            if kind == "STT_OBJECT" and symbol["st_shndx"] in is_code:
                self.objects.append((name, at, size))
            elif not is_code.get(symbol["st_shndx"], False):
                continue
            elif name.startswith(_MARKS):
                marks[at] = name.startswith("$d")
            elif kind == "STT_FUNC":
                self.names.setdefault(name, start)
                if size >= sizes.get(start, ("", -1))[1]:
                    sizes[start] = name, size
            elif kind == "STT_NOTYPE" and name:
                self.labels[start] = name
        named = [*self.names.items(), *((name, at) for at, name in self.labels.items())]
        self.table_jumps = {at for name, at in named if name.startswith(_TABLE_JUMP)}
        self._marks = sorted(marks.items())
        self._starts = sorted(sizes)
        self.functions = {
            start: (name, start + size if size else self.next_function(start)) for start, (name, size) in sizes.items()
        }
        self._words: list[int] = []

    def value(self, at: int, count: int) -> int:
        """Return the number of `count` bytes at an address; 0 outside of the file."""
        for start, data in self._sections:
            if start <= at < start + len(data):
                return int.from_bytes(data[at - start : at - start + count], "little")
        return 0

    def has(self, at: int) -> bool:
        """Return whether an address is in the file."""
        return any(start <= at < start + len(data) for start, data in self._sections)

    def after_data(self, at: int) -> int:
        """Return an address, or if it is marked as data in code, the end of that."""
        index = bisect.bisect_right(self._marks, (at, True))
        if not index or not self._marks[index - 1][1]:
            return at
        return next((start for start, is_data in self._marks[index:] if not is_data), self.next_function(at))

    def next_function(self, at: int) -> int:
        """Return the address of the next function, or of the section's end."""
        index = bisect.bisect_right(self._starts, at)
        if index < len(self._starts):
            return self._starts[index]
        return next((start + len(data) for start, data in self._sections if start <= at < start + len(data)), at)

    def function_with(self, at: int) -> int | None:
        """Return the address of the function that contains an address."""
        index = bisect.bisect_right(self._starts, at)
        return next((start for start in self._starts[max(index - 1, 0) : index] if at < self.functions[start][1]), None)

    def has_table(self, at: int) -> bool:
        """Return whether a word of the file is an address inside of the function that contains an address."""
        size = self.pointer_bytes
        if not self._words:
            self._words = sorted(
                int.from_bytes(data[place : place + size], "little")
                for start, data in self._sections
                for place in range(-start % size, len(data) - size + 1, size)
            )
        function = self.function_with(at)
        if function is None:
            return False
        index = bisect.bisect_right(self._words, function + self.thumb)
        return index < len(self._words) and self._words[index] < self.functions[function][1]
