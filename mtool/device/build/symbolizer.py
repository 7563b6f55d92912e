"""The symbolizer: function, file and line of an address in firmware, read from its ELF file."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Symbol

from mtool.base.proc import Closing

_THUMB = 1  # bit 0 of an Arm function's address


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """An address in a function: its offset in bytes; the file's name and the line, if known."""

    function: str
    offset: int
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function}+{self.offset:#x}" + (f"  {self.file}:{self.line}" if self.file else "")


def symbols(elf: ELFFile) -> Iterator[Symbol]:
    """Yield all symbols of an ELF file."""
    for table in elf.iter_sections("SHT_SYMTAB"):
        yield from table.iter_symbols()


class Symboliser(Closing):
    """The addresses of firmware; use it in a `with` statement.

    Args:
        elf: the firmware with its symbols.

    Raises:
        OSError: the file can't be read.
        ELFError: it is not an ELF file.
    """

    def __init__(self, elf: Path) -> None:
        self._file = elf.open("rb")
        try:
            self._elf = ELFFile(self._file)
        except ELFError:
            self._file.close()
            raise

    def of(self, address: int) -> SourceLocation | None:
        """Return the location of `address`, or None if it is not in a function with a size."""
        is_arm = self._elf.get_machine_arch() == "ARM"
        for symbol in self._of_kind("STT_FUNC"):
            start = symbol["st_value"] & ~_THUMB if is_arm else symbol["st_value"]
            if start <= address < start + symbol["st_size"]:
                return SourceLocation(symbol.name, address - start, *self._line(address))
        return None

    def address(self, name: str) -> int | None:
        """Return the address of a symbol, or None if the name is unknown."""
        return next((int(symbol["st_value"]) for symbol in symbols(self._elf) if symbol.name == name), None)

    def end_of_object(self, address: int) -> int | None:
        """Return the end of the object that contains `address`, or None if there is none."""
        for symbol in self._of_kind("STT_OBJECT"):
            if symbol["st_value"] <= address < symbol["st_value"] + symbol["st_size"]:
                return int(symbol["st_value"] + symbol["st_size"])
        return None

    def image_start(self) -> int:
        """Return the lowest address at which the file is loaded."""
        segments = [segment for segment in self._elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
        return min((int(segment["p_vaddr"]) for segment in segments), default=0)

    def compiler_of(self, *files: str) -> str:
        """Return the compiler's version and options for the first of these files, by their names; "": unknown."""
        with contextlib.suppress(DWARFError, ELFError):
            for unit in self._elf.get_dwarf_info().iter_CUs() if self._elf.has_dwarf_info() else ():
                attributes = unit.get_top_DIE().attributes
                if {"DW_AT_name", "DW_AT_producer"} <= {*attributes}:
                    name = attributes["DW_AT_name"].value.decode(errors="replace")
                    if PurePosixPath(name).name in files:
                        return str(attributes["DW_AT_producer"].value.decode(errors="replace"))
        return ""

    def _of_kind(self, kind: str) -> Iterator[Symbol]:
        return (symbol for symbol in symbols(self._elf) if symbol["st_info"]["type"] == kind)

    def _line(self, address: int) -> tuple[str, int]:
        """Return the file's name and the line of an address; ("", 0): unknown."""
        if not self._elf.has_dwarf_info():
            return "", 0
        try:
            dwarf = self._elf.get_dwarf_info()
            ranges = dwarf.get_aranges()
            offset = ranges.cu_offset_at_addr(address) if ranges is not None else None
            units = dwarf.iter_CUs() if offset is None else [dwarf.get_CU_at(offset)]
            for unit in units:
                program = dwarf.line_program_for_CU(unit)
                if program is not None and (place := _in_program(program, address)) is not None:
                    return place
        except (DWARFError, ELFError):
            pass  # an unknown debug format: show the function alone
        return "", 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _in_program(program: Any, address: int) -> tuple[str, int] | None:
    """Return the file and line of the last row at or before `address`, in a sequence that continues after it."""
    before = None
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if before is not None and before.address <= address < state.address:
            index = before.file - (0 if program["version"] >= 5 else 1)
            name = program["file_entry"][index].name.decode(errors="replace")
            return PurePosixPath(name).name, int(before.line)
        before = None if state.end_sequence else state
    return None
