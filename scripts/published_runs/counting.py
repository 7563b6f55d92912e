"""Compile a submission's C for an emulated Cortex-M4 and count the instructions of one inference."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mtool import boards
from mtool.device.cycles import Clock, Estimate, cores, execution
from mtool.device.cycles.estimate import flash_arguments, summarise
from mtool.device.cycles.execution import Listing

TOOLCHAIN = "arm-none-eabi-gcc"
CORE = "-mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard -ffunction-sections -fdata-sections -w"
COUNTED = "mps2_an386"
_TIMEOUT_S = 900
_MACHINE = "-M mps2-an386 -nic none -display none -monitor none -serial null"
_SEMIHOSTING = ["-semihosting-config", "enable=on,target=native"]
_LINK = "--specs=nosys.specs -nostartfiles -Wl,--gc-sections"
# What calls the model: `one_inference`, of which each source of C has its own, is counted.
_RESET = """
#include <stdint.h>
extern void prepare(void);
extern int one_inference(void);
void _init(void) {}
void _fini(void) {}
void reset(void)
{
    *(volatile uint32_t *)0xe000ed88u |= 0x00f00000u; /* the FPU is off at reset */
    __asm volatile("dsb\\n isb");
    register uint32_t operation __asm("r0") = 0x18u;
    prepare();
    if (one_inference() == 0) {
        register uint32_t reason __asm("r1") = 0x20026u; /* semihosting: done */
        __asm volatile("mov r0, #0x18\\n ldr r1, =0x20026\\n bkpt 0xab" : : "r"(operation), "r"(reason) : "memory");
    }
    for (;;) {}
}
__attribute__((section(".vectors"), used)) static void *const vectors[] = {(void *)0x20400000, (void *)reset};
"""
_LAYOUT = """
MEMORY { code (rx) : ORIGIN = 0, LENGTH = 4M  ram (rw) : ORIGIN = 0x20000000, LENGTH = 4M }
ENTRY(reset)
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > code
  .ARM.exidx : { *(.ARM.exidx*) } > code
  .data : { *(.data*) *(.bss*) *(COMMON) } > ram
  end = .;
}
"""


@dataclass(frozen=True)
class Source:
    """What is compiled.

    Attributes:
        main: C with `void prepare(void)`, and with `int one_inference(void)`, which returns 0.
        files: the submission's.
        includes: folders of headers.
        flags: the optimisation of its own build.
        headers: that stand in for what is not there, by name.
    """

    main: str
    files: Sequence[Path]
    includes: Sequence[Path]
    flags: str = "-O2 -fno-strict-overflow"
    headers: dict[str, str] = field(default_factory=dict)


def count(source: Source, clock: Clock) -> Estimate:
    """Compile for the emulator and count one inference, for a board."""
    counted = boards.get(COUNTED)
    with tempfile.TemporaryDirectory(prefix="bench-cycles-") as temporary:
        folder = Path(temporary)
        elf, out = folder / "model.elf", folder / "counts.txt"
        for name, text in {**source.headers, "main.c": source.main, "reset.c": _RESET, "layout.ld": _LAYOUT}.items():
            (folder / name).write_text(text)
        includes = [f"-I{path}" for path in (folder, *source.includes)]
        objects = []
        for number, path in enumerate([*source.files, folder / "main.c", folder / "reset.c"]):
            compiler = TOOLCHAIN if path.suffix == ".c" else TOOLCHAIN.replace("gcc", "g++")
            objects.append(f"{folder / str(number)}.o")
            run([compiler, *CORE.split(), *source.flags.split(), *includes, "-c", str(path), "-o", objects[-1]])
        run([TOOLCHAIN, *CORE.split(), *objects, *_LINK.split(), f"-T{folder / 'layout.ld'}", "-lm", "-o", str(elf)])
        listing = Listing(elf, TOOLCHAIN)
        plugin = execution.build_plugin(folder)
        flashes = flash_arguments([clock], counted)
        arguments = execution.emulator_arguments(plugin, listing, ["one_inference"], out, flashes)
        run(["qemu-system-arm", *_MACHINE.split(), *_SEMIHOSTING, *arguments, "-kernel", str(elf)])
        executed = execution.read(out, listing, ["one_inference"])
        able = [core for core in cores() if core.cpu == clock.cpu]
        return summarise(executed, listing, able, [], [clock])


def run(argv: Sequence[str]) -> None:
    """Run a tool."""
    subprocess.run([shutil.which(argv[0]) or argv[0], *argv[1:]], check=True, timeout=_TIMEOUT_S)
