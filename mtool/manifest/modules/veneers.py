"""The assembly of a native module: its entry point, and the jumps to the functions that it imports.

The code is never patched, and its address differs from device to device. Imports are found through a table in RAM,
whose address is in one register that the module's compiled code does not use, and that functions preserve:
s31 where there is an FPU, as SIMD kernels take every other one, else r9; s11 on RISC-V. The entry sets it, and restores
the firmware's own value.
"""

from collections.abc import Sequence

from mtool.base.frozen import frozen
from mtool.manifest.modules.format import ARCHITECTURE_BITS, Architecture, Needs

ENTRY = "mt_module_entry"
CALLED = "mt_module_call"
"""The C function that the entry calls: int32_t mt_module_call(void *arena, uint32_t number)."""


@frozen
class Base:
    """The register with the table's address: its name, and the options that reserve it."""

    register: str
    flags: tuple[str, ...]
    entry: tuple[str, ...]
    jump: tuple[str, ...]
    most: int
    """The number of imports that the jump's offset can reach."""


_FPU = Base(
    "s31",
    ("-ffixed-s31", "-DMT_KEPT_S31"),
    ("push {r4, lr}", "vmov r4, s31", "vmov s31, r2", f"bl {CALLED}", "vmov s31, r4", "pop {r4, pc}"),
    ("vmov ip, s31", "ldr.w pc, [ip, #{offset}]"),
    1024,
)
_CORE = Base(
    "r9",
    ("-ffixed-r9", "-DMT_KEPT_R9"),
    ("push.w {r9, lr}", "mov r9, r2", f"bl {CALLED}", "pop.w {r9, pc}"),
    ("ldr.w pc, [r9, #{offset}]",),
    1024,
)
_RISC_V = Base(
    "s11",
    ("-ffixed-s11",),
    ("addi sp, sp, -16", "sw ra, 12(sp)", "sw s11, 8(sp)", "mv s11, a2", f"call {CALLED}", "lw s11, 8(sp)",
     "lw ra, 12(sp)", "addi sp, sp, 16", "ret"),
    ("lw t1, {offset}(s11)", "jr t1"),
    512,
)  # fmt: skip
_THUMB2 = (Architecture.ARMV7M, Architecture.ARMV7EM, Architecture.ARMV8M_MAIN, Architecture.ARMV81M_MAIN)


def base_of(machine: int) -> Base | None:
    """Return the register for a machine; None: native modules do not support it."""
    architecture = machine & ARCHITECTURE_BITS
    if architecture in _THUMB2:
        return _FPU if machine & Needs.FPU else _CORE
    return _RISC_V if architecture == Architecture.RV32 else None


def assembly(base: Base, imports: Sequence[str]) -> str:
    """Return the assembly of a module that imports these functions, in the order of its table."""
    is_arm = base is not _RISC_V
    parts = [_function(ENTRY, base.entry, is_arm)]
    for number, name in enumerate(imports):
        parts.append(_function(name, [line.format(offset=4 * number) for line in base.jump], is_arm))
    syntax = "    .syntax unified\n    .thumb\n\n" if is_arm else ""
    return f"/* The entry, and the jumps to what is imported: {base.register} has the table. */\n{syntax}" + "\n".join(
        parts
    )


def _function(name: str, lines: Sequence[str], is_arm: bool) -> str:
    head = [
        f'    .section .text.{name},"ax",%progbits' if is_arm else f'    .section .text.{name},"ax",@progbits',
        "    .balign 4",
        *["    .thumb_func"] * is_arm,
        f"    .global {name}",
        f"    .hidden {name}",
        f"    .type {name}, {'%' if is_arm else '@'}function",
        f"{name}:",
    ]
    return "\n".join([*head, *(f"    {line}" for line in lines), f"    .size {name}, . - {name}", ""])
