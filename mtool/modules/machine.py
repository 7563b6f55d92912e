"""What a module's code needs of a core and its ABI, as one number: crt/include/mt_module.h has the same list."""

from enum import IntEnum, IntFlag


class Architecture(IntEnum):
    """Bits 0 to 7. Of Arm's, a core runs those below its own too, but for MVE and what a flag says."""

    ANY = 0
    ARMV6M = 1
    ARMV7M = 2
    ARMV7EM = 3
    ARMV8M_BASE = 4
    ARMV8M_MAIN = 5
    ARMV81M_MAIN = 6
    RV32 = 16


class Needs(IntFlag):
    """Bits 8 to 31. HARD_FLOAT is the ABI, and has to be the firmware's; the others it may have besides."""

    HARD_FLOAT = 0x100
    FPU = 0x10000
    DOUBLE = 0x20000
    DSP = 0x40000
    MVE = 0x80000
    MVE_FLOAT = 0x100000
    RV_M = 0x200000
    RV_C = 0x400000
    RV_VECTOR = 0x800000


ARCHITECTURE_BITS = 0xFF


def describe(machine: int) -> str:
    """Return a machine as a person writes it: "ARMV7EM, HARD_FLOAT, FPU, DSP"."""
    known = {one.value: one.name for one in Architecture}
    number = machine & ARCHITECTURE_BITS
    flags = [one.name for one in Needs if machine & one and one.name]
    rest = machine & ~ARCHITECTURE_BITS & ~sum(Needs)
    return ", ".join([known.get(number, f"architecture {number}"), *flags, *([f"0x{rest:x}"] if rest else [])])
