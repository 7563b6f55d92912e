"""The cores that unicorn knows: how they are chosen, their registers, their instructions' lengths, their faults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

import unicorn
from unicorn import arm_const as arm
from unicorn import riscv_const as riscv

Registers = Mapping[str, int]


class Refusal(Enum):
    """What a core refuses."""

    READ = "read"
    WRITE = "write"
    FETCH = "fetch"
    INSTRUCTION = "instruction"


@dataclass(frozen=True, slots=True)
class Core:
    """A core of unicorn.

    Attributes:
        arch, mode, model: unicorn's numbers.
        registers: unicorn's number of "pc", "lr", "sp" and "status", the last if there is one.
        is_thumb: bit 0 of an address that is jumped to says that the instructions are Thumb's.
        count: returns how many instructions a block of bytes holds.
        fault: takes a refusal, the address that was accessed and the registers; returns the exception's number and the
            registers that the firmware's guard hands on (crt/PROTOCOL.md), without the stack's lowest address.
    """

    arch: int
    mode: int
    model: int
    registers: Registers
    is_thumb: bool
    count: Callable[[bytes], int]
    fault: Callable[[Refusal, int, Registers], tuple[int, list[int]]]


def count_thumb(code: bytes) -> int:
    """Return the number of instructions: what begins with the bits 11101, 11110 or 11111 has four bytes, else two."""
    return _count(code, lambda at: code[at + 1] >= 0xE8)


def count_riscv(code: bytes) -> int:
    """Return the number of instructions: one whose first two bits are 11 has four bytes, else it is compressed."""
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


def _cortex_m(model: int) -> Core:
    # Not UC_MODE_MCLASS, with which unicorn takes an M33 whatever the model is.
    return Core(
        unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB, model, _ARM_REGISTERS, True, count_thumb, _fault_arm
    )  # fmt: skip


CORES = {
    **{f"cortex-m{one}": _cortex_m(getattr(arm, f"UC_CPU_ARM_CORTEX_M{one}")) for one in (0, 3, 4, 7, 33)},
    "rv32imc": Core(
        unicorn.UC_ARCH_RISCV,
        unicorn.UC_MODE_RISCV32,
        riscv.UC_CPU_RISCV32_ANY,
        _RISCV_REGISTERS,
        False,
        count_riscv,
        _fault_riscv,
    ),
}
"""By the name of the core in boards.yaml."""


def enable_fpu(machine: "unicorn.Uc") -> None:
    """Let a Cortex-M that has an FPU use it from the start."""
    machine.reg_write(arm.UC_ARM_REG_C1_C0_2, 0xF << 20)
    machine.reg_write(arm.UC_ARM_REG_FPEXC, 1 << 30)
