"""Sizes of firmware in flash and RAM, read from its ELF file.

On a board with memories the whole image counts: startup, model, libraries. Where an operating
system places things (`memories` is empty), only the model's own symbols count, as the rest of the
program says nothing about a microcontroller.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from mtool.base.errors import BuildError
from mtool.boards import Board
from mtool.manifest import Manifest, arenas_of

STACK_SECTION = ".stack"
_NOT_IN_FILE = "SHT_NOBITS"
_APART = (".eeprom", ".fuse", ".lock", ".signature")  # separate memories of an AVR


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of firmware in bytes.

    Attributes:
        flash_code_bytes: everything in flash (code, vectors, read-only data, the load image of .data) except the
            model's constants.
        flash_const_bytes: the model's constants: weights, biases, scales, tables.
        ram_static_bytes: .data, .bss and code in RAM, without the arena and the stack.
        arena_bytes: the arena, all of its pools.
        stack_bytes: the memory reserved for the stack; 0 if an operating system does this.
        functions: bytes of code by function, largest first.
        memories: bytes in each memory of the board, by its name.
        hot_code_bytes: the part of `ram_static_bytes` for code in RAM.
        has_threads: stacks are kernel variables, included in `ram_static_bytes`.
    """

    flash_code_bytes: int
    flash_const_bytes: int
    ram_static_bytes: int
    arena_bytes: int
    stack_bytes: int
    functions: dict[str, int]
    memories: dict[str, int]
    has_threads: bool
    hot_code_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Piece:
    """A section that takes memory, or a function or object in one; `kind` is its ELF type."""

    name: str
    kind: str
    address: int
    bytes: int
    writable: bool


def measure(elf: Path, manifest: Manifest) -> Size:
    """Return the sizes of a model's firmware.

    Args:
        elf: the built file; the standalone kind for the model's own sizes.
        manifest: a model of the project; it names the constants and the arenas of all of the project's models.

    Raises:
        BuildError: the file is not an ELF file, or holds no symbols.
    """
    sections, symbols = _read(elf)
    board = manifest.project.board if manifest.project is not None else None
    hot = 0
    constants = {name for model in manifest.models for name in model.constants}
    arenas = {*arenas_of(manifest.models)}
    flash_const_bytes = sum(symbol.bytes for symbol in symbols if symbol.name in constants)
    arena_bytes = sum(symbol.bytes for symbol in symbols if symbol.name in arenas)
    functions = _functions(symbols)
    if board is not None and board.memories:
        stack_bytes = sum(section.bytes for section in sections if section.name == STACK_SECTION)
        flash_code_bytes = sum(part.bytes for part in sections if part.kind != _NOT_IN_FILE) - flash_const_bytes
        in_hot = (one.bytes for one in sections if _is_hot(board, memory_at(board, one.address)) and not one.writable)
        hot = sum(in_hot)
        ram_static_bytes = sum(part.bytes for part in sections if part.writable) + hot - arena_bytes - stack_bytes
    else:
        prefixes = (*(f"{model.model}_" for model in manifest.models), *arenas)
        model_symbols = [symbol for symbol in symbols if symbol.name.startswith(prefixes)]
        functions = {name: count for name, count in functions.items() if name.startswith(prefixes)}
        stack_bytes = 0
        flash_code_bytes = sum(functions.values())
        ram_static_bytes = sum(symbol.bytes for symbol in model_symbols if symbol.writable) - arena_bytes
    return Size(
        flash_code_bytes=flash_code_bytes,
        flash_const_bytes=flash_const_bytes,
        ram_static_bytes=ram_static_bytes,
        arena_bytes=arena_bytes,
        stack_bytes=stack_bytes,
        functions=dict(sorted(functions.items(), key=lambda item: (-item[1], item[0]))),
        memories={} if board is None else _by_memory(sections, board),
        has_threads=manifest.project is not None and manifest.project.builder == "west",
        hot_code_bytes=hot,
    )


def addresses(elf: Path) -> dict[str, int]:
    """Return the addresses of a firmware's functions and objects, by name.

    Raises:
        BuildError: as `measure`.
    """
    return {symbol.name: symbol.address for symbol in _read(elf)[1]}


def _by_memory(sections: Iterable[_Piece], board: Board) -> dict[str, int]:
    """Return the bytes in each memory. A section in none (an alias, a core's own) counts for the memory of its role."""
    sizes = dict.fromkeys(board.memories, 0)
    code, data = board.region_for("code"), board.region_for("data")
    if code is None or data is None:
        return sizes
    for section in sections:
        home = memory_at(board, section.address) or (data if section.writable else code)
        if section.name not in _APART:
            sizes[home] += section.bytes
            if (section.writable or _is_hot(board, home)) and section.kind != _NOT_IN_FILE and home != code:
                sizes[code] += section.bytes  # its load image
    return sizes


def _is_hot(board: Board, memory: str | None) -> bool:
    return memory is not None and "hot_code" in board.memories[memory].holds


def memory_at(board: Board, address: int) -> str | None:
    """Return the name of the memory that contains an address; None: there is none."""
    inside = (name for name, memory in board.memories.items() if memory.base <= address < memory.base + memory.size)
    return next(inside, None)


def _functions(symbols: Iterable[_Piece]) -> dict[str, int]:
    """Return the bytes of each function. One with several entry points (libgcc's float routines) counts once."""
    functions = {}
    end = 0
    code = (symbol for symbol in symbols if symbol.kind == "STT_FUNC" and symbol.bytes > 0)
    for symbol in sorted(code, key=lambda symbol: (symbol.address, -symbol.bytes, symbol.name)):
        if symbol.address >= end:
            functions[symbol.name] = symbol.bytes
            end = symbol.address + symbol.bytes
    return functions


def _read(elf: Path) -> tuple[list[_Piece], list[_Piece]]:
    """Return the sections that take memory, and the functions and objects in them, each address once."""
    try:
        with elf.open("rb") as file:
            parsed = ELFFile(file)
            written = [bool(section["sh_flags"] & SH_FLAGS.SHF_WRITE) for section in parsed.iter_sections()]
            table = parsed.get_section_by_name(".symtab")
            if not isinstance(table, SymbolTableSection):
                raise BuildError(f"{elf} has no symbols", hint="build it again, and do not strip it")
            sections = []
            for part, is_written in zip(parsed.iter_sections(), written, strict=True):
                if part["sh_flags"] & SH_FLAGS.SHF_ALLOC:
                    writable = is_written or part.name == STACK_SECTION  # lld marks it read-only
                    sections.append(_Piece(part.name, part["sh_type"], part["sh_addr"], part["sh_size"], writable))
            symbols = {}
            for symbol in table.iter_symbols():
                kind, index = symbol["st_info"]["type"], symbol["st_shndx"]
                if kind in ("STT_FUNC", "STT_OBJECT") and isinstance(index, int):
                    at = (kind, symbol["st_value"], symbol["st_size"])
                    symbols[at] = _Piece(symbol.name, *at, written[index])
            return sections, list(symbols.values())
    except FileNotFoundError:
        raise BuildError(f"{elf} does not exist", hint="build it first") from None
    except ELFError:
        raise BuildError(f"{elf} is not an ELF file", details=["sizes can only be read from ELF files"]) from None


# Check where firmware has buffers that belong in named memories: a template may not support them.


def check(elf: Path, manifest: Manifest) -> None:
    """Check that buffers of backends and pools of the arena or constants are in the memories that they belong in.

    Raises:
        BuildError: one is in another memory.
    """
    project, models = manifest.project, manifest.models
    pools = [pool for model in models for pool in model.pools]
    expected = [(f"{manifest.model}_{name}", name, "a backend's buffers") for name in manifest.device_buffers]
    expected += [(pool.symbol, pool.memory, "the model's buffers") for pool in pools if pool.memory]
    hot = project.board.region_for("hot_code") if project is not None else None
    expected += [(name, hot or "", "hot code") for model in models for name in model.hot_functions]
    in_sections = [(pool.symbol, pool.section) for pool in pools if pool.section and pool.bytes]
    constants = [(symbol, pool.name) for model in models for pool in model.constant_pools for symbol in pool.constants]
    if not (expected or in_sections or constants) or project is None or not project.board.memories:
        return
    symbol_addresses, board = addresses(elf), project.board

    def check_place(symbol: str, name: str, who: str, section: str) -> None:
        address = symbol_addresses.get(symbol)
        if address is not None and memory_at(board, address) != name:
            begin = f"{name} of {board.name} starts at 0x{board.memories[name].base:08x}"
            what = f"the template {project.template} does not place {who} in {name}"
            hint = f"its linker script must place the section {section} there; or use another template"
            raise BuildError(what, details=[f"{symbol} is at 0x{address:08x}", begin], hint=hint)

    for symbol, section in in_sections:
        address = symbol_addresses.get(symbol)
        name = None if address is None else memory_at(board, address)
        if name is not None and not board.memories[name].is_written:
            held = f"{board.name} has {' and '.join(board.memories[name].holds)} in {name}"
            what = f"the section {section} is in {name}, but a pool must be writable"
            hint = "the linker script must place it in RAM; names of sections without contents begin with .bss"
            raise BuildError(what, details=[f"{symbol} is at 0x{address:08x}", held], hint=hint)
    for symbol, name in constants:
        if name in board.memories:
            check_place(symbol, name, "the model's constants", f".rodata.mt_in.{name}.*, or that of --pool,")
    for symbol, name, who in expected:
        section = ".text of <model>_hot.c" if who == "hot code" else f".bss.mt_memory.{name}"
        check_place(symbol, name, who, section)
