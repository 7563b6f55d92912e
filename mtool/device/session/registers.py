"""The registers of a fault, decoded: what happened, where, at which address."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from mtool.device.rpc.fault import Fault, Machine

# Armv7-M ARM, B3.2.15 (CFSR); STKOF: Armv8-M ARM, D1.2.
CFSR = {
    0: ("IACCVIOL", "instruction fetch that is not allowed"),
    1: ("DACCVIOL", "data access that is not allowed"),
    3: ("MUNSTKERR", "the frame could not be read back from the stack"),
    4: ("MSTKERR", "the stack has no room for the exception's frame"),
    5: ("MLSPERR", "the FPU's registers could not be saved"),
    8: ("IBUSERR", "instruction fetch"),
    9: ("PRECISERR", "precise data access"),
    10: ("IMPRECISERR", "imprecise data access, some instructions before"),
    11: ("UNSTKERR", "the frame could not be read back from the stack"),
    12: ("STKERR", "the stack has no room for the exception's frame"),
    13: ("LSPERR", "the FPU's registers could not be saved"),
    16: ("UNDEFINSTR", "undefined instruction"),
    17: ("INVSTATE", "invalid state, such as a jump to an even address"),
    18: ("INVPC", "invalid return from an exception"),
    19: ("NOCP", "no such coprocessor, or the FPU is off"),
    20: ("STKOF", "the stack pointer went below its limit"),
    24: ("UNALIGNED", "unaligned access"),
    25: ("DIVBYZERO", "division by zero"),
}
_MMARVALID = 1 << 7
_BFARVALID = 1 << 15
HFSR = {1: ("VECTTBL", "the vector table can't be read"), 30: ("FORCED", ""), 31: ("DEBUGEVT", "a breakpoint")}

# IPSR: Armv7-M ARM, B1.5.2; 0: there was none, the firmware itself gave up.
EXCEPTIONS = {
    0: "failed assertion",
    2: "NMI",
    3: "HardFault",
    4: "MemManage",
    5: "BusFault",
    6: "UsageFault",
    7: "SecureFault",
    12: "DebugMonitor",
}

# mcause: RISC-V Privileged Architecture 1.12, table 3.6.
CAUSES = {
    0: "misaligned instruction",
    1: "instruction access fault",
    2: "illegal instruction",
    3: "breakpoint",
    4: "misaligned load",
    5: "load access fault",
    6: "misaligned store",
    7: "store access fault",
    8: "environment call",
    11: "environment call",
}
_INTERRUPT = 1 << 31
_WITH_ADDRESS = {1, 4, 5, 6, 7}


@dataclass(frozen=True, slots=True)
class Reading:
    """The meaning of the registers; 0 is "not known" for an address.

    Attributes:
        name: of the exception; "" if there was none.
        why: its cause and the address that was accessed; "" if nothing is known.
        pc, lr: addresses of the program, in a process from the start of its image.
        sp: the stack pointer.
        stack_low: the lowest address of the stack.
        digits: hexadecimal digits of an address.
    """

    name: str = ""
    why: str = ""
    pc: int = 0
    lr: int = 0
    sp: int = 0
    stack_low: int = 0
    digits: int = 8


def read(fault: Fault) -> Reading:
    """Return what the registers of a fault say; nothing, of a machine that is not known or one with too few."""
    known = {
        Machine.MT_MACHINE_CORTEX_M: (9, _cortex_m),
        Machine.MT_MACHINE_RISCV: (7, _riscv),
        Machine.MT_MACHINE_PROCESS: (5, _process),
    }
    for machine, (count, reader) in known.items():
        if fault.machine == machine and len(fault.registers) >= count:
            return reader(fault.registers)
    return Reading()


def _cortex_m(registers: Sequence[int]) -> Reading:
    pc, lr, _, sp, cfsr, hfsr, mmfar, bfar, low = registers[:9]
    kinds = ((0xFF, "MemManage"), (0xFF00, "BusFault"), (0xFFFF0000, "UsageFault"))
    name = "HardFault" if hfsr else next((kind for mask, kind in kinds if cfsr & mask), "")
    valid = ((_MMARVALID, "MMFAR", mmfar), (_BFARVALID, "BFAR", bfar))
    said = [f"{register} 0x{value:08x}" for bit, register, value in valid if cfsr & bit]
    for word, bits in ((cfsr, CFSR), (hfsr, HFSR)):
        said += [f"{meaning} ({bit})" for number, (bit, meaning) in bits.items() if word >> number & 1 and meaning]
    return Reading(name, ", ".join(said), pc, lr & ~1, sp, low)


def _riscv(registers: Sequence[int]) -> Reading:
    mepc, ra, _, sp, mcause, mtval, low = registers[:7]
    if mcause & _INTERRUPT or not mepc:
        return Reading(pc=mepc, lr=ra, sp=sp, stack_low=low)
    name = CAUSES.get(mcause, f"trap {mcause}")
    return Reading(name, f"mtval 0x{mtval:08x}" if mcause in _WITH_ADDRESS else "", mepc, ra, sp, low)


def _process(registers: Sequence[int]) -> Reading:
    number, pc_high, pc_low, high, low = registers[:5]
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    has_address = name in ("SIGSEGV", "SIGBUS")
    return Reading(name, f"address 0x{high << 32 | low:x}" if has_address else "", pc_high << 32 | pc_low, digits=0)
