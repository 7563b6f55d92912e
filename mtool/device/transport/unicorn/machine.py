"""A core with a board's memories and a few registers, through which its firmware communicates with this process.

The registers are those of the template unicorn's `src/platform.h`.
"""

import os
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import unicorn
from elftools.elf.elffile import ELFFile
from unicorn import arm_const as arm
from unicorn import riscv_const as riscv

from mtool.boards import Memory

Registers = Mapping[str, int]


class Refusal(Enum):
    """What a core refused."""

    READ = "read"
    WRITE = "write"
    FETCH = "fetch"
    INSTRUCTION = "instruction"


@dataclass(frozen=True, slots=True)
class Core:
    """One of unicorn's cores.

    Attributes:
        arch, mode, model: unicorn's numbers.
        registers: unicorn's numbers of "pc", "lr", "sp" and "status", the last if there is one.
        is_thumb: bit 0 of a jump's target selects Thumb instructions.
        count: returns the number of instructions in a block of bytes.
        fault: takes a refusal, the accessed address and the registers; returns the exception's number and the
            registers that the firmware's guard reports (crt/PROTOCOL.md), without the stack's lowest address.
    """

    arch: int
    mode: int
    model: int
    registers: Registers
    is_thumb: bool
    count: Callable[[bytes], int]
    fault: Callable[[Refusal, int, Registers], tuple[int, list[int]]]


def count_thumb(code: bytes) -> int:
    """Return the number of instructions: first bits 11101, 11110 or 11111 mean four bytes, others two."""
    return _count(code, lambda at: code[at + 1] >= 0xE8)


def count_riscv(code: bytes) -> int:
    """Return the number of instructions: those whose first two bits are 11 have four bytes, others are compressed."""
    return _count(code, lambda at: code[at] & 3 == 3)


def _count(code: bytes, is_long: Callable[[int], bool]) -> int:
    at = count = 0
    while at < len(code):
        at += 4 if is_long(at) else 2
        count += 1
    return count


# Armv7-M ARM, B1.5.2 and B3.2.15: the exception's number, the bit of CFSR.
_ARM = {
    Refusal.READ: (5, 1 << 9 | 1 << 15),  # BusFault: PRECISERR, BFARVALID
    Refusal.WRITE: (4, 1 << 1 | 1 << 7),  # MemManage: DACCVIOL, MMARVALID
    Refusal.FETCH: (5, 1 << 8),  # BusFault: IBUSERR
    Refusal.INSTRUCTION: (6, 1 << 16),  # UsageFault: UNDEFINSTR
}
# RISC-V Privileged Architecture 1.12, table 3.6.
_RISCV = {Refusal.READ: 5, Refusal.WRITE: 7, Refusal.FETCH: 1, Refusal.INSTRUCTION: 2}


def _fault_arm(refusal: Refusal, address: int, now: Registers) -> tuple[int, list[int]]:
    number, status = _ARM[refusal]
    mmfar, bfar = (address if status & bit else 0 for bit in (1 << 7, 1 << 15))
    return number, [now["pc"], now["lr"], now["status"], now["sp"], status, 0, mmfar, bfar]


def _fault_riscv(refusal: Refusal, address: int, now: Registers) -> tuple[int, list[int]]:
    cause = _RISCV[refusal]
    return cause, [now["pc"], now["lr"], 0, now["sp"], cause, 0 if refusal is Refusal.INSTRUCTION else address]


_ARM_REGISTERS = {
    "pc": arm.UC_ARM_REG_PC,
    "lr": arm.UC_ARM_REG_LR,
    "sp": arm.UC_ARM_REG_SP,
    "status": arm.UC_ARM_REG_CPSR,
}
_RISCV_REGISTERS = {"pc": riscv.UC_RISCV_REG_PC, "lr": riscv.UC_RISCV_REG_RA, "sp": riscv.UC_RISCV_REG_SP}


_CORTEX_M = (unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)  # not MCLASS, with which unicorn uses an M33 for any model
_RV32 = (unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32, riscv.UC_CPU_RISCV32_ANY)
CORES = {
    f"cortex-m{number}": Core(
        *_CORTEX_M, getattr(arm, f"UC_CPU_ARM_CORTEX_M{number}"), _ARM_REGISTERS, True, count_thumb, _fault_arm
    )
    for number in (0, 3, 4, 7, 33)
} | {"rv32imc": Core(*_RV32, _RISCV_REGISTERS, False, count_riscv, _fault_riscv)}
"""By the core's name in boards.yaml."""

_PAGE = 0x1000
_MOST_BYTES = 1 << 24  # per command
_SLICE = 1_000_000  # instructions between two checks of the clock
_INSTRUCTIONS_PER_MS = 1_000_000
_WATCH_S_PER_MS = 0.05  # a session assumes 20 M instructions per second, and waits no longer if there are fewer
_EXCEPTION, _STACK, _WATCHDOG = 1, 2, 4  # crt/include/mtool.h
_PUSHED_BYTES = 256  # the most that one instruction stores below the stack pointer
_FAULT = 100  # exit status of a fault without a guard: this plus the exception's number
_NOWHERE = 0xFFFF_FFFE  # unicorn's stop address, which is never reached

# Registers, by their offset, and commands.
_ADDRESS, _COUNT, _COMMAND, _DONE, _TIME_LOW, _TIME_HIGH, _WATCH = range(0x00, 0x1C, 4)
_FAULT_WORDS, _FAULT_STACK, _FAULT_HANDLER = range(0x1C, 0x28, 4)
_READ, _WRITE, _RANDOM, _EXIT = 1, 2, 3, 4

_REFUSED = {
    getattr(unicorn, f"UC_ERR_{access.name}_{why}"): access
    for access in (Refusal.READ, Refusal.WRITE, Refusal.FETCH)
    for why in ("UNMAPPED", "PROT", "UNALIGNED")
}


class Counter:
    """The instructions that a machine has run, and an event at a certain number.

    A block is counted when it starts. It runs to its end or ends in a fault, after which nothing is measured: unicorn
    ends a block at each branch, and an instruction that is skipped by its condition counts like any other.

    Args:
        machine: the emulated core.
        count: returns the number of instructions in some bytes.
        on_event: called before the block that would exceed `event`; it sets the next one. True: stop the machine, and
            count that block when it continues.
    """

    def __init__(self, machine: unicorn.Uc, count: Callable[[bytes], int], on_event: Callable[[], bool]) -> None:
        self.total = 0
        self.event = 0
        counts: dict[int, int] = {}  # a block's instructions, by its address and size as one number

        def on_block(engine: unicorn.Uc, address: int, size: int, _: object) -> None:
            if self.total >= self.event and on_event():
                engine.emu_stop()
                return
            key = address << 16 | size
            if key not in counts:
                counts[key] = count(bytes(engine.mem_read(address, size)))
            self.total += counts[key]

        machine.hook_add(unicorn.UC_HOOK_BLOCK, on_block)


class Machine:
    """A core that runs firmware.

    Args:
        elf: the firmware; its segments are loaded to their physical addresses.
        cpu: the core, a key of CORES.
        memories: the board's. A memory that only holds code or weights is read-only.
        registers: the address of the registers.
        slice_instructions: the number between two checks of the clock.

    Attributes:
        received: bytes for the firmware that it has not read yet.
        sent: bytes that the firmware has written.
        status: the firmware's exit status; None: it has not ended.
        is_waiting: whether the firmware is waiting for bytes.

    Raises:
        ELFError: it is not an ELF file.
        OSError: it can't be read.
        MemoryError: it is not inside the board's memories.
    """

    def __init__(
        self, elf: Path, *, cpu: str, memories: Mapping[str, Memory], registers: int, slice_instructions: int = _SLICE
    ) -> None:
        self._core = CORES[cpu]
        self._slice = slice_instructions
        self._stack_low = next((memory.base for memory in memories.values() if "stack" in memory.holds), 0)
        self._engine = unicorn.Uc(self._core.arch, self._core.mode)
        self._engine.ctl_set_cpu_model(self._core.model)
        for memory in memories.values():
            is_read_only = memory.holds and not {"arena", "data", "stack"} & set(memory.holds)
            access = unicorn.UC_PROT_EXEC if is_read_only else unicorn.UC_PROT_WRITE
            self._engine.mem_map(memory.base, -(-memory.size // _PAGE) * _PAGE, unicorn.UC_PROT_READ | access)
        self._engine.mmio_map(registers, _PAGE, self._load, None, self._store, None)
        self._engine.hook_add(unicorn.UC_HOOK_MEM_INVALID, self._note_access)
        self._counter = Counter(self._engine, self._core.count, self._on_event)
        self.received = bytearray()
        self.sent = bytearray()
        self.status: int | None = None
        self.is_waiting = False
        self._words: dict[int, int] = {}
        self._accessed = 0
        self._is_to_stop = False
        self._deadline = 0.0
        self._watch: tuple[int, float] | None = None  # the watchdog's instruction count and time
        self._pc = self._read_image(elf)
        if self._core.is_thumb:
            # A Cortex-M with an FPU may use it from the start.
            self._engine.reg_write(arm.UC_ARM_REG_C1_C0_2, 0xF << 20)
            self._engine.reg_write(arm.UC_ARM_REG_FPEXC, 1 << 30)

    @property
    def instructions(self) -> int:
        """The number of instructions run so far."""
        return self._counter.total

    def run(self, timeout_s: float) -> None:
        """Run until bytes were sent, the firmware waits for missing ones, it has ended, or the time is over."""
        self._deadline = time.monotonic() + timeout_s
        self._is_to_stop = self.is_waiting = False
        self._counter.event = self._counter.total + self._slice  # the least to run, however short the time
        while self.status is None and not self._is_to_stop:
            try:
                self._engine.emu_start(self._pc | self._core.is_thumb, _NOWHERE)
                self._pc = self._register("pc")
            except unicorn.UcError as refused:
                self._fault(_REFUSED.get(refused.errno, Refusal.INSTRUCTION))
            if self._is_late():
                self._watch = None
                self._enter_guard(_WATCHDOG, 0, [self._register("pc"), self._register("lr"), 0, self._register("sp")])
            if time.monotonic() >= self._deadline:
                break

    def _on_event(self) -> bool:
        """Return whether to stop now; if not, set the next event."""
        total = self._counter.total
        if self._is_to_stop or self._is_late() or time.monotonic() >= self._deadline:
            return True
        self._counter.event = total + self._slice
        return False

    def _is_late(self) -> bool:
        """Return whether the guard's time is over."""
        return self._watch is not None and (self._counter.total > self._watch[0] or time.monotonic() > self._watch[1])

    def _stop_soon(self) -> None:
        """Stop at the next block: stopping inside one would count its rest as another block."""
        self._is_to_stop = True
        self._counter.event = 0

    def _load(self, _: unicorn.Uc, offset: int, size: int, __: object) -> int:
        """Answer a read of a register."""
        if offset == _TIME_LOW:
            self._words[_TIME_HIGH] = self._counter.total >> 32
            return self._counter.total & 0xFFFF_FFFF
        return self._words.get(offset, 0)

    def _store(self, _: unicorn.Uc, offset: int, size: int, value: int, __: object) -> None:
        """Handle a write to a register."""
        self._words[offset] = value
        if offset == _COMMAND:
            self._words[_DONE] = self._command(value, self._words.get(_ADDRESS, 0), self._words.get(_COUNT, 0))
        elif offset == _WATCH:
            most = (self._counter.total + value * _INSTRUCTIONS_PER_MS, time.monotonic() + value * _WATCH_S_PER_MS)
            self._watch = most if value else None

    def _command(self, command: int, address: int, count: int) -> int:
        """Execute the firmware's command; return the number of bytes moved."""
        if command == _EXIT:
            self.status = count
            self._stop_soon()
            return 0
        if count > _MOST_BYTES:
            return 0
        data = os.urandom(count) if command == _RANDOM else bytes(self.received[:count]) if command == _READ else b""
        try:
            if command == _WRITE:
                self.sent += self._engine.mem_read(address, count)
                self._stop_soon()
                return count
            self._engine.mem_write(address, data)
        except unicorn.UcError:  # there is no such memory
            return 0
        if command == _READ:
            del self.received[: len(data)]
            if not data:
                self.is_waiting = True
                self._stop_soon()
        return len(data)

    def _fault(self, refusal: Refusal) -> None:
        """Continue in the guard after a refusal of the core."""
        now = {name: self._register(name) for name in self._core.registers}
        is_access = refusal in (Refusal.READ, Refusal.WRITE)
        address = self._accessed if is_access else now["pc"]
        is_stack = is_access and address < self._stack_low and address + _PUSHED_BYTES >= now["sp"]
        number, registers = self._core.fault(refusal, address, now)
        self._enter_guard(_STACK if is_stack else _EXCEPTION, number, registers)

    def _enter_guard(self, kind: int, number: int, registers: list[int]) -> None:
        """Let the firmware's guard report a fault; firmware without a guard ends, and so does a fault in the guard."""
        handler = self._words.pop(_FAULT_HANDLER, 0)
        if not handler:
            self.status = _FAULT + number
            return
        words = [kind, number, *registers]
        self._engine.mem_write(self._words[_FAULT_WORDS], struct.pack(f"<{len(words)}I", *words))
        self._engine.reg_write(self._core.registers["sp"], self._words[_FAULT_STACK])
        self._pc = handler

    def _note_access(self, _: unicorn.Uc, access: int, address: int, size: int, value: int, __: object) -> bool:
        self._accessed = address
        return False  # refuse it

    def _register(self, name: str) -> int:
        return int(self._engine.reg_read(self._core.registers[name]))

    def _read_image(self, elf: Path) -> int:
        """Load firmware and return its entry point."""
        with elf.open("rb") as file:
            image = ELFFile(file)
            for segment in image.iter_segments("PT_LOAD"):
                if segment["p_filesz"]:
                    try:
                        self._engine.mem_write(segment["p_paddr"], segment.data())
                    except unicorn.UcError:
                        raise MemoryError(f"there is no memory at 0x{segment['p_paddr']:08x}") from None
            return int(image["e_entry"])
