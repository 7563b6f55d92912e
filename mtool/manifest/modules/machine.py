"""What a module's code needs of a core and its ABI, as one number: crt/include/mt_module.h has the same list."""

import re
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


_ARCHITECTURES = {
    "__ARM_ARCH_6M__": Architecture.ARMV6M,
    "__ARM_ARCH_7M__": Architecture.ARMV7M,
    "__ARM_ARCH_7EM__": Architecture.ARMV7EM,
    "__ARM_ARCH_8M_BASE__": Architecture.ARMV8M_BASE,
    "__ARM_ARCH_8M_MAIN__": Architecture.ARMV8M_MAIN,
    "__ARM_ARCH_8_1M_MAIN__": Architecture.ARMV81M_MAIN,
}
_DEFINE = re.compile(r"^#define (\w+) ?(.*)$", re.MULTILINE)


def of_macros(text: str) -> int:
    """Return the machine that a compiler's macros (`-dM -E`) tell of, as mt_module_machine does; 0: none of those."""
    macros = dict(_DEFINE.findall(text))

    def number(name: str) -> int:
        return int(macros.get(name, "0").rstrip("UL") or "1", 0)

    found = [one for name, one in _ARCHITECTURES.items() if name in macros]
    if "__riscv" in macros and number("__riscv_xlen") == 32:
        found = [Architecture.RV32]
    if not found:
        return Architecture.ANY
    arm_fp, mve, flen = number("__ARM_FP"), number("__ARM_FEATURE_MVE"), number("__riscv_flen")
    hard = {"__ARM_PCS_VFP", "__riscv_float_abi_single", "__riscv_float_abi_double"}
    told = {
        Needs.HARD_FLOAT: bool(hard & {*macros}),
        Needs.FPU: bool(arm_fp & 4) or flen > 0,
        Needs.DOUBLE: bool(arm_fp & 8) or flen >= 64,
        Needs.DSP: "__ARM_FEATURE_DSP" in macros,
        Needs.MVE: bool(mve & 1),
        Needs.MVE_FLOAT: bool(mve & 2),
        Needs.RV_M: "__riscv_mul" in macros,
        Needs.RV_C: "__riscv_compressed" in macros,
        Needs.RV_VECTOR: "__riscv_vector" in macros or "MT_RVV" in macros,
    }
    return found[0] | sum(need for need, is_so in told.items() if is_so)


def runs(core: int, machine: int) -> bool:
    """Whether firmware of a core and an ABI takes code for a machine; mt_module.c decides alike."""
    own, wanted = core & ARCHITECTURE_BITS, machine & ARCHITECTURE_BITS
    if wanted == Architecture.ANY:
        return machine == Architecture.ANY
    both_arm = max(own, wanted) < Architecture.RV32
    older = both_arm and wanted < own and (own != Architecture.ARMV8M_BASE or wanted == Architecture.ARMV6M)
    needs = machine & ~core & ~ARCHITECTURE_BITS
    return (wanted == own or older) and not (core ^ machine) & Needs.HARD_FLOAT and not needs
