"""A model of a chip's registers, on which drivers of crt/ports run in unicorn: what each access finds and needs."""

import functools
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tests.crt.firmware import CRT, STRICT

PAGE = 0x1000
CODE, RAM, STACK_TOP, STOP = 0x00100000, 0x20000000, 0x20010000, 0x001FF000
_LONGEST = 1_000_000  # instructions of a call

Bits = tuple[str, int, int]
"""A register's name, a mask, and the value of the bits below it."""


@dataclass(frozen=True)
class Ready:
    """Once `when` holds, `then` becomes true, at the `after`-th read of its register; not before."""

    when: Bits
    then: Bits
    after: int = 3


@dataclass(frozen=True)
class Needs:
    """A write that makes `when` true needs all of `first` to hold before it."""

    when: Bits
    first: Sequence[Bits]


@dataclass(frozen=True)
class Flash:
    """The flash's memory: erased bytes, that are written in `unit` bytes (aligned) while `programs` holds.

    `erases` returns the address and the size of what the controller's registers erase now, or None.
    """

    start: int
    count: int
    unit: int
    programs: Bits
    erases: Callable[["Chip"], tuple[int, int] | None]


@dataclass
class Chip:
    """Registers by name, with their values after a reset, and their rules.

    Attributes:
        registers: their addresses.
        reset: the values that are not zero.
        rules: Ready and Needs.
        ones_clear: for registers whose written ones clear bits: which.
        unlock: the register for the keys, the keys in order, and the lock that they open: while it is closed, its
            register can't be written. A wrong key would close it until the next reset.
        reads: what reading a register gives, where it is more than its value.
        writes: what writing one does in addition.
        flash: the flash's memory.
    """

    registers: Mapping[str, int]
    reset: Mapping[str, int] = field(default_factory=dict)
    rules: Sequence[Ready | Needs] = ()
    ones_clear: Mapping[str, int] = field(default_factory=dict)
    unlock: tuple[str, tuple[int, ...], Bits] | None = None
    reads: Mapping[str, Callable[["Chip"], int]] = field(default_factory=dict)
    writes: Mapping[str, Callable[["Chip", int], None]] = field(default_factory=dict)
    flash: Flash | None = None

    def __post_init__(self) -> None:
        self.values = {name: self.reset.get(name, 0) for name in self.registers}
        self.log: list[tuple[str, str, int]] = []
        self.wrong: list[str] = []
        self._names = {address: name for name, address in self.registers.items()}
        self._waits: dict[Ready, int] = {}
        self._keys: list[int] = []
        self.memory = bytearray(b"\xff" * self.flash.count) if self.flash else bytearray()
        self._word: dict[int, int] = {}

    def holds(self, bits: Bits) -> bool:
        name, mask, value = bits
        return self.values[name] & mask == value

    def read(self, address: int, size: int) -> int:
        """Return what the core reads."""
        if self.flash and 0 <= address - self.flash.start < self.flash.count:
            at = address - self.flash.start
            return int.from_bytes(self.memory[at : at + size], "little")
        name = self._named(address)
        for rule in self.rules:
            if isinstance(rule, Ready) and rule.then[0] == name and rule in self._waits:
                self._waits[rule] -= 1
                if self._waits[rule] <= 0:
                    del self._waits[rule]
                    self.values[name] = self.values[name] & ~rule.then[1] | rule.then[2]
        value = self.reads[name](self) if name in self.reads else self.values[name]
        self.log.append(("read", name, value))
        return value

    def write(self, address: int, size: int, value: int) -> None:
        """Take what the core writes."""
        if self.flash and 0 <= address - self.flash.start < self.flash.count:
            self._program(address, size, value)
            return
        name = self._named(address)
        if size != 4:
            self.wrong.append(f"{name} was written by {size} bytes")
        self.log.append(("write", name, value))
        if self.unlock and name == self.unlock[0]:
            self._key(value)
            return
        if self.unlock and name == self.unlock[2][0] and self.holds(self.unlock[2]):
            if value & self.unlock[2][1] != self.unlock[2][1]:
                self.wrong.append(f"{name} was written while it was locked")
            return
        before = [self.holds(rule.when) for rule in self.rules]
        old = self.values[name]
        clears = self.ones_clear.get(name, 0)
        new = (old & clears & ~value) | (value & ~clears)
        for rule in self.rules:
            if (
                isinstance(rule, Needs)
                and rule.when[0] == name
                and new & rule.when[1] == rule.when[2] != old & rule.when[1]
            ):
                self.wrong += [
                    f"{rule.when} was written before {one} held" for one in rule.first if not self.holds(one)
                ]
        self.values[name] = new
        for rule, held in zip(self.rules, before, strict=True):
            if isinstance(rule, Ready) and not held and self.holds(rule.when):
                self._waits[rule] = rule.after
        if name in self.writes:
            self.writes[name](self, value)
        erased = self.flash.erases(self) if self.flash else None
        if self.flash and erased:
            begin = erased[0] - self.flash.start
            assert 0 <= begin < self.flash.count, f"0x{erased[0]:08x} was erased"
            self.memory[begin : begin + erased[1]] = b"\xff" * erased[1]

    def _named(self, address: int) -> str:
        assert address in self._names, f"0x{address:08x} is not a register of the model"
        return self._names[address]

    def _key(self, value: int) -> None:
        assert self.unlock is not None
        name, keys, lock = self.unlock
        self._keys.append(value)
        if tuple(self._keys) != keys[: len(self._keys)]:
            self.wrong.append(f"{name}: wrong key 0x{value:08x}")
        if tuple(self._keys) == keys:
            self.values[lock[0]] &= ~lock[1]
            self._keys.clear()

    def _program(self, address: int, size: int, value: int) -> None:
        assert self.flash is not None
        if not self.holds(self.flash.programs):
            self.wrong.append(f"0x{address:08x} was written while {self.flash.programs} did not hold")
        for offset in range(size):
            self._word[address + offset] = value >> 8 * offset & 0xFF
        if len(self._word) == self.flash.unit:
            begin = min(self._word)
            if begin % self.flash.unit or max(self._word) != begin + self.flash.unit - 1:
                self.wrong.append(f"0x{begin:08x} is not the start of a unit of {self.flash.unit} bytes")
            for at, byte in self._word.items():
                if self.memory[at - self.flash.start] != 0xFF:
                    self.wrong.append(f"0x{at:08x} was not erased")
                self.memory[at - self.flash.start] = byte
            self._word.clear()

    @property
    def is_busy(self) -> bool:
        """Whether something that was started is not ready."""
        return bool(self._waits)

    def check(self) -> None:
        """Check that no access was wrong, and no unit of flash is incomplete."""
        assert self.wrong == [] and self._word == {}

    def written(self, name: str) -> list[int]:
        """Return the values written to a register, in order."""
        return [value for what, found, value in self.log if what == "write" and found == name]


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mtool-ports-")


@functools.cache
def compiled(driver: str, macros: tuple[tuple[str, str], ...], cpu: str, sources: tuple[Path | str, ...] = ()) -> Path:
    """Return a driver and other sources (and flags for them) as a program without a start, configured by macros."""
    folder = Path(tempfile.mkdtemp(dir=_folder().name))
    lines = [f"#define {name} {value}\n" for name, value in macros]
    (folder / "mt_board.h").write_text("".join(lines))
    elf = folder / "driver.elf"
    strict = [flag for flag in STRICT if flag != "-Wpedantic"]
    argv = [
        "arm-none-eabi-gcc",
        f"-mcpu={cpu}",
        "-mthumb",
        "-O2",
        *strict,
        f"-I{folder}",
        f"-I{CRT / 'ports'}",
        *map(str, sources),
    ]
    argv += [f"-Wl,-Ttext=0x{CODE:x}", f"-Wl,-Tdata=0x{RAM:x}", "-Wl,-e,0", "-nostartfiles", "-o", str(elf)]
    subprocess.run([*argv, str(CRT / "ports" / f"mt_{driver}.c")], check=True)
    return elf


class Core:
    """A core that calls a driver's functions on a chip."""

    def __init__(
        self,
        chip: Chip,
        driver: str,
        macros: Mapping[str, str],
        cpu: str = "cortex-m3",
        sources: tuple[Path | str, ...] = (),
    ) -> None:
        import unicorn

        self.chip = chip
        self.uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self.symbols: dict[str, int] = {}
        self.uc.mem_map(CODE, 0x100000)
        self.uc.mem_map(RAM, 0x10000)
        with compiled(driver, tuple(macros.items()), cpu, sources).open("rb") as file:
            elf = ELFFile(file)
            for segment in elf.iter_segments("PT_LOAD"):
                if segment["p_filesz"]:
                    self.uc.mem_write(segment["p_vaddr"], segment.data())
            table = elf.get_section_by_name(".symtab")
            assert isinstance(table, SymbolTableSection)
            self.symbols = {symbol.name: symbol["st_value"] for symbol in table.iter_symbols()}
        pages = defaultdict(list)
        for address in chip.registers.values():
            pages[address // PAGE * PAGE].append(address)
        ranges = [(page, PAGE) for page in pages]
        if chip.flash:
            ranges.append((chip.flash.start, chip.flash.count))
        for begin, count in ranges:
            self.map(begin, count)

    def map(self, begin: int, count: int) -> None:
        def read(_: object, offset: int, size: int, __: object) -> int:
            return self.chip.read(begin + offset, size)

        def write(_: object, offset: int, size: int, value: int, __: object) -> None:
            self.chip.write(begin + offset, size, value)

        self.uc.mmio_map(begin, count, read, None, write, None)

    def call(self, function: str, *arguments: int | bytes) -> int:
        """Call a function; bytes are an array that it may write to; return its result."""
        from unicorn import arm_const

        registers = (arm_const.UC_ARM_REG_R0, arm_const.UC_ARM_REG_R1, arm_const.UC_ARM_REG_R2)
        for register, argument in zip(registers, arguments, strict=False):
            if isinstance(argument, bytes):
                self.uc.mem_write(RAM + 0x8000, argument)
                argument = RAM + 0x8000
            self.uc.reg_write(register, argument)
        self.uc.reg_write(arm_const.UC_ARM_REG_SP, STACK_TOP)
        self.uc.reg_write(arm_const.UC_ARM_REG_LR, STOP | 1)
        self.uc.emu_start(self.symbols[function] | 1, STOP, count=_LONGEST)
        at = self.uc.reg_read(arm_const.UC_ARM_REG_PC)
        assert at & ~1 == STOP, f"{function} still runs after {_LONGEST} instructions, at 0x{at:08x}: it waits for ever"
        return int(self.uc.reg_read(arm_const.UC_ARM_REG_R0))

    def rom(self, functions: Mapping[str, Callable[["Core"], None]]) -> None:
        """Map a ROM as RP2040 has: functions by their two letters, each a call of this process."""
        from unicorn import UC_HOOK_CODE, arm_const

        self.uc.mem_map(0, PAGE)
        self.uc.mem_write(0x14, (0x100).to_bytes(2, "little") + b"\0\0" + (0x201).to_bytes(2, "little"))
        self.uc.mem_write(0x200, b"\x70\x47" * 0x80)  # bx lr
        places = {0x210 + 4 * number: name for number, name in enumerate(functions)}

        def act(_: object, address: int, __: int, ___: object) -> None:
            if address == 0x200:
                code = self.uc.reg_read(arm_const.UC_ARM_REG_R1).to_bytes(2, "little").decode()
                found = next(place for place, name in places.items() if name == code)
                self.uc.reg_write(arm_const.UC_ARM_REG_R0, found | 1)
            else:
                functions[places[address]](self)

        self.uc.hook_add(UC_HOOK_CODE, act, None, 0x200, 0x2FF)

    def argument(self, number: int) -> int:
        """Return an argument of the function that is called."""
        from unicorn import arm_const

        return int(self.uc.reg_read(arm_const.UC_ARM_REG_R0 + number))

    def memory(self, address: int, count: int) -> bytes:
        """Return what the core's memory holds."""
        return bytes(self.uc.mem_read(address, count))

    def caller(self) -> int:
        """Return the address that a function returns to."""
        from unicorn import arm_const

        return int(self.uc.reg_read(arm_const.UC_ARM_REG_LR))

    def array(self, count: int) -> bytes:
        """Return the array of the last call."""
        return bytes(self.uc.mem_read(RAM + 0x8000, count))
