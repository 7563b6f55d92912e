"""Compile and link a model to the image of a native module: position-independent code and constants.

Tools: the GCC of the board. Products: none; the image is returned.

Code addresses its constants relative to the program counter, as both are one piece. It is linked twice, for two
addresses: if the bytes differ, they contain an address, and the image is refused.
"""

import io
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from mtool.base import proc
from mtool.base.errors import BuildError, UsageError
from mtool.base.filetree import FileTree, write
from mtool.boards import Board
from mtool.device.build import symbolizer, toolchains
from mtool.device.build.stack import CallGraph
from mtool.manifest.modules import format as machines
from mtool.manifest.modules.exports import EXPORTS
from mtool.manifest.modules.veneers import ENTRY, Base, assembly, base_of

_TIMEOUT_S = 900.0
_ADDRESSES = (0x10000000, 0x30004000)
_LEAST_ALIGNMENT = 16
_GCC = re.compile(r"(arm-none-eabi|riscv\d+-unknown-elf)-gcc")
_UNDEFINED = re.compile(r"undefined reference to `([^']+)'")
_COMMON = (
    "-std=c99", "-fpic", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections", "-ffreestanding",
    "-fbuiltin", "-fno-common", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-stack-protector",
    "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
_ARM = ("-mpic-data-is-text-relative", "-mno-single-pic-base")
_RISC_V = ("-mcmodel=medany", "-msmall-data-limit=0")
_HIDDEN = "mt_module_hidden.h"
_SCRIPT = """\
ENTRY({entry})
SECTIONS
{{
  .text {base:#x} : {{ KEEP(*(.text.{entry})) *(.text .text.*) . = ALIGN(4); }}
  .rodata : {{ *(.rodata .rodata.* .srodata .srodata.*) . = ALIGN(4); }}
  .data : {{ *(.data .data.* .sdata .sdata.* .init_array .fini_array) }}
  .bss : {{ *(.bss .bss.* .sbss .sbss.* COMMON) }}
  .got : {{ *(.got .got.plt .igot .igot.plt) }}
  /DISCARD/ : {{ *(.comment .note* .eh_frame* .ARM.exidx* .ARM.extab* .gnu.attributes .debug* .stack_sizes) }}
}}
"""


@dataclass(frozen=True, slots=True)
class Image:
    """A native module's code and constants.

    Attributes:
        data: code, then constants.
        code_bytes: the size of the code.
        entry: the entry point, an offset.
        alignment: of its address.
        linked: the compiler's library functions that are part of it.
        imports: names of the firmware's functions that it calls, in the order of its table.
        machine: its requirements on a core (mtool.manifest.modules.format).
        stack_bytes: the stack of its code, without imports; 0: unknown.
    """

    data: bytes
    code_bytes: int
    entry: int
    alignment: int
    linked: tuple[str, ...]
    imports: tuple[str, ...] = ()
    machine: int = 0
    stack_bytes: int = 0


def link(files: FileTree, board: Board, levels: Mapping[str, str], level: str) -> Image:
    """Compile C files and link them to an image.

    Args:
        files: the model's C and headers, and `mt_module_call` of mtool.manifest.modules.entry.
        board: the board, for its compiler and options.
        levels: the compiler's optimisation option for files that have their own.
        level: the option for the others.

    Raises:
        UsageError: native modules do not support the board.
        BuildError: the compiler is missing or fails, or the code can't be a module: it has variables or addresses, or
            calls functions that firmware does not export.
    """
    check_board(board)
    with tempfile.TemporaryDirectory(prefix="mtool-module-") as place:
        folder = Path(place)
        build = _Build(folder, board)
        base = base_of(build.machine)
        if base is None:
            what = f"native modules do not support {board.name}"
            details = [f"its core is {machines.describe(build.machine)}"]
            raise UsageError(what, details=details, hint="they need an Arm core, Cortex-M3 or later, or 32-bit RISC-V")
        write(files, folder / "src", edits="force")
        return build.image(files, base, levels, level)


def check_board(board: Board) -> None:
    """Refuse a board that native modules do not support.

    Raises:
        UsageError: its compiler is not GCC for Arm or RISC-V.
        BuildError: the compiler is not installed.
    """
    if _GCC.fullmatch(board.toolchain) is None:
        details = [f"they need GCC for Arm or RISC-V; the board's toolchain is {board.toolchain or 'none'}"]
        raise UsageError(f"native modules do not support {board.name}", details=details)
    toolchains.require(board.toolchain)


class _Build:
    """One build in a folder."""

    def __init__(self, folder: Path, board: Board) -> None:
        self.folder = folder
        self.compiler = [board.toolchain, *board.cflags]
        self.is_arm = board.toolchain.startswith("arm")
        self.machine = self._machine()

    def image(self, files: FileTree, base: Base, levels: Mapping[str, str], level: str) -> Image:
        (self.folder / _HIDDEN).write_text("#pragma GCC visibility push(hidden)\n")
        flags = [*_COMMON, *(_ARM if self.is_arm else _RISC_V), *base.flags, "-include", str(self.folder / _HIDDEN)]
        sources = [path for path in files if path.endswith(".c")]
        objects = []
        for number, path in enumerate(sources):
            file_flags = ["-g0", "-w", *flags, levels.get(path, level), "-Isrc"]
            objects.append(self._compile(file_flags, f"src/{path}", number))
        imports = sorted(self._undefined(objects) & set(EXPORTS))
        if len(imports) > base.most:
            details = [f"found {len(imports)}, expected at most {base.most}"]
            raise BuildError("the module imports too many functions", details=details)
        (self.folder / "entry.S").write_text(assembly(base, imports))
        objects.append(self._compile([], "entry.S", len(objects)))
        image, other = (self._linked(objects, address) for address in _ADDRESSES)
        if other != image:
            raise self._addresses(objects)
        bound = CallGraph(self.folder / "module.elf").bound(ENTRY, dict.fromkeys(imports, ()))
        return replace(image, imports=tuple(imports), machine=self.machine, stack_bytes=bound.bytes or 0)

    def _run(self, arguments: Sequence[str], *, check: bool = True) -> proc.Completed:
        argv, what = [*self.compiler, *arguments], "build of the module"
        return proc.run(argv, what=what, timeout_s=_TIMEOUT_S, cwd=self.folder, check=check, has_scratch=True)

    def _machine(self) -> int:
        (self.folder / "empty.c").write_text("")
        return machines.of_macros(self._run(["-dM", "-E", "empty.c"]).output)

    def _compile(self, flags: Sequence[str], source: str, number: int) -> str:
        target = f"{number}-{PurePosixPath(source).stem}.o"
        done = self._run([*flags, "-c", source, "-o", target], check=False)
        if done.returncode != 0:
            is_ours = "impossible constraints" in done.output
            what = f"{PurePosixPath(source).name} can't be compiled as a module"
            hint = "a schedule needs every register; choose another with --schedule" if is_ours else ""
            raise BuildError(what, details=done.output.rstrip().splitlines()[-proc.LAST_LINES :], hint=hint)
        return target

    def _undefined(self, objects: Sequence[str]) -> set[str]:
        undefined: set[str] = set()
        defined: set[str] = set()
        for name in objects:
            for symbol in symbolizer.symbols(ELFFile(io.BytesIO((self.folder / name).read_bytes()))):
                if symbol.name and symbol["st_info"]["bind"] != "STB_LOCAL":
                    (undefined if symbol["st_shndx"] == "SHN_UNDEF" else defined).add(symbol.name)
        return undefined - defined

    def _linked(self, objects: Sequence[str], address: int) -> Image:
        (self.folder / "module.ld").write_text(_SCRIPT.format(entry=ENTRY, base=address))
        options = ["-nostdlib", "-nostartfiles", "-static", "-Wl,--gc-sections,--build-id=none", "-Tmodule.ld"]
        done = self._run([*options, *objects, "-lgcc", "-o", "module.elf"], check=False)
        if done.returncode != 0:
            missing = sorted({*_UNDEFINED.findall(done.output)} - {"_GLOBAL_OFFSET_TABLE_"})
            if missing:
                what = f"the model calls functions that firmware does not export: {', '.join(missing)}"
                raise BuildError(what, details=[f"modules may call: {', '.join(sorted(EXPORTS))}"])
            raise BuildError("can't link the module", details=done.output.rstrip().splitlines()[-proc.LAST_LINES :])
        return _parts((self.folder / "module.elf").read_bytes(), address)

    def _addresses(self, objects: Sequence[str]) -> BuildError:
        """Return the error that names the sections with addresses."""
        wrong = []
        for name in objects:
            elf = ELFFile(io.BytesIO((self.folder / name).read_bytes()))
            for section in elf.iter_sections():
                if isinstance(section, RelocationSection):
                    of = elf.get_section(section["sh_info"])
                    kinds = {relocation["r_info_type"] for relocation in section.iter_relocations()}
                    if kinds & {1, 2} and of["sh_flags"] & SH_FLAGS.SHF_ALLOC:  # R_RISCV_32, R_ARM_ABS32
                        wrong.append(of.name)
        what = "the code contains absolute addresses, but a module must run at any address"
        return BuildError(what, details=[f"in {', '.join(sorted(set(wrong)))}"] if wrong else [])


def _parts(data: bytes, address: int) -> Image:
    """Return the image of a linked file, in offsets from its start.

    Raises:
        BuildError: it has variables, or tables of addresses.
    """
    elf = ELFFile(io.BytesIO(data))
    loaded = [part for part in elf.iter_sections() if part["sh_flags"] & SH_FLAGS.SHF_ALLOC and part["sh_size"]]
    wrong = [section for section in loaded if section.name not in (".text", ".rodata")]
    symbols = [symbol for symbol in symbolizer.symbols(elf) if symbol.name]
    if wrong:
        inside = {elf.get_section_index(section.name) for section in wrong}
        names = sorted(symbol.name for symbol in symbols if symbol["st_shndx"] in inside and symbol["st_size"])
        what = "the model has variables or tables of addresses, which a module can't contain"
        raise BuildError(what, details=[f"in {', '.join(one.name for one in wrong)}: {', '.join(names) or 'no names'}"])
    text, *rest = sorted(loaded, key=lambda section: section["sh_addr"])
    image = bytearray(text.data())
    code_bytes = len(image)
    for section in rest:
        image += bytes(section["sh_addr"] - address - len(image)) + section.data()
    image += bytes(-len(image) % 4)
    entry = next(symbol["st_value"] for symbol in symbols if symbol.name == ENTRY) & ~1
    linked = sorted(
        item.name
        for item in symbols
        if item.name.startswith("__") and item["st_info"]["type"] == "STT_FUNC" and item["st_shndx"] != "SHN_UNDEF"
    )
    alignment = max([_LEAST_ALIGNMENT, *(section["sh_addralign"] for section in loaded)])
    return Image(bytes(image), code_bytes, entry - address, alignment, tuple(linked))
