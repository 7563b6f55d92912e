"""Hold the estimate of cycles against published runs: microTVM's own C of MLPerf Tiny v1.0, on a NUCLEO-L4R5ZI.

    scripts/bench_cycles.py CHECKOUT     # of github.com/mlcommons/tiny_results_v1.0; writes the table of docs/cycles.md

The C that ran is in the results; it is compiled with the flags of its Zephyr build (-O2, the FPU's registers), counted
in the emulator of a Cortex-M4 and put beside the median that the submitter measured. Nothing is fitted to it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mtool import boards
from mtool.session.cycles import Estimate, cores, execution, flash
from mtool.session.cycles.estimate import summarise
from mtool.session.cycles.listing import Listing
from mtool.workflow import clocks

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "cycles.md"
BEGIN, END = "<!-- comparison -->", "<!-- end of comparison -->"
TOOLCHAIN = "arm-none-eabi-gcc"
BOARD = "nucleo_l4r5zi@120MHz"
FLAGS = "-mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard -O2 -ffunction-sections -fno-strict-overflow -w"
MODELS = {"kws": "float code", "vww": "int8", "ic": "int8", "ad": "int8"}
MAIN = """
#include <stddef.h>
#include <stdint.h>
#include <tvmgen_default.h>
#include <tvm/runtime/crt/stack_allocator.h>
static uint8_t memory[400000] __attribute__((aligned(16)));
static int8_t input[60000] __attribute__((aligned(16)));
static int8_t output[4096] __attribute__((aligned(16)));
static tvm_workspace_t workspace;
void *TVMBackendAllocWorkspace(int device, int id, uint64_t bytes, int code, int bits)
{
    void *block = NULL;
    (void)StackMemoryManager_Allocate(&workspace, (int32_t)bytes, &block);
    return block;
}
int TVMBackendFreeWorkspace(int device, int id, void *block)
{
    return StackMemoryManager_Free(&workspace, block);
}
void TVMLogf(const char *text, ...) { (void)text; }
void TVMPlatformAbort(int error) { (void)error; for (;;) {} }
__attribute__((noinline, optimize("no-optimize-sibling-calls"))) int one_inference(void)
{
    struct tvmgen_default_inputs inputs = {input};
    struct tvmgen_default_outputs outputs = {output};
    int failed = tvmgen_default_run(&inputs, &outputs);
    __asm volatile("" : : : "memory");
    return failed;
}
void reset(void)
{
    *(volatile uint32_t *)0xe000ed88u |= 0x00f00000u; /* the FPU is off at reset */
    __asm volatile("dsb\\n isb");
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof input; i++) {
        random = random * 1664525u + 1013904223u;
        input[i] = (int8_t)(random >> 24);
    }
    StackMemoryManager_Init(&workspace, memory, sizeof memory);
    register uint32_t operation __asm("r0") = 0x18u;
    if (one_inference() == 0) {
        register uint32_t reason __asm("r1") = 0x20026u; /* semihosting: done */
        __asm volatile("mov r0, #0x18\\n ldr r1, =0x20026\\n bkpt 0xab" : : "r"(operation), "r"(reason) : "memory");
    }
    for (;;) {}
}
__attribute__((section(".vectors"), used)) static void *const vectors[] = {(void *)0x20400000, (void *)reset};
"""
# What the C takes from CMSIS-NN: one instruction each, but for the four bytes that become two pairs of halfwords.
CMSIS = """
#pragma once
#include <arm_acle.h>
#include <stdint.h>
#include <string.h>
#define __STATIC_FORCEINLINE __attribute__((always_inline)) static inline
#define __STATIC_INLINE static inline
#define __SMLAD(a, b, sum) __smlad(a, b, sum)
static inline const int8_t *read_and_pad(const int8_t *source, int32_t *out1, int32_t *out2)
{
    uint32_t bytes, odd, even;
    memcpy(&bytes, source, 4);
    __asm("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(bytes));
    __asm("sxtb16 %0, %1" : "=r"(even) : "r"(bytes));
    __asm("pkhtb %0, %1, %2, asr #16" : "=r"(*out2) : "r"(odd), "r"(even));
    __asm("pkhbt %0, %1, %2, lsl #16" : "=r"(*out1) : "r"(even), "r"(odd));
    return source + 4;
}
"""
LAYOUT = """
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
class Row:
    """One model: what was measured, and the estimates, in ms."""

    model: str
    what: str
    measured: float
    without: float
    estimated: float

    @property
    def error(self) -> float:
        """The estimate's, as a share of the measurement."""
        return self.estimated / self.measured - 1


def main() -> None:
    """Count each model and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout
    rows = [compare(checkout, model, what) for model, what in MODELS.items()]
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + table(rows) + END + rest.split(END)[1])
    sys.stdout.write(table(rows))


def compare(checkout: Path, model: str, what: str) -> Row:
    """Count one model's C and read what was measured."""
    entry = checkout / "closed" / "OctoML"
    results = entry / "results" / "microtvm_native" / "NUCLEO_L4R5ZI" / model / "performance" / "results.txt"
    found = re.search(r"Median throughput is\s+([\d.]+)", results.read_text())
    if found is None:
        sys.exit(f"{results}: no median")
    estimate = count(entry / "code" / "microtvm_native" / "NUCLEO_L4R5ZI" / model)
    (clock,) = clocks([BOARD], boards.get("mps2_an386"))
    without = estimate.cycles[clock.cpu] / clock.hz * 1e3
    return Row(model.upper(), what, 1e3 / float(found[1]), without, estimate.milliseconds(clock))


def count(source: Path) -> Estimate:
    """Compile a submission's model for the emulator and count one inference."""
    (clock,) = clocks([BOARD], boards.get("mps2_an386"))
    with tempfile.TemporaryDirectory(prefix="bench-cycles-") as temporary:
        folder = Path(temporary)
        (folder / "main.c").write_text(MAIN)
        (folder / "arm_nnsupportfunctions.h").write_text(CMSIS)
        (folder / "layout.ld").write_text(LAYOUT)
        elf, out = folder / "model.elf", folder / "counts.txt"
        files = [*sorted((source / "model/codegen/host/src").glob("*.c")), folder / "main.c"]
        files.append(source / "crt/src/runtime/crt/memory/stack_allocator.c")
        includes = [f"-I{source / part}" for part in ("include", "crt_config", "crt/include")]
        includes.append(f"-I{folder}")
        link = ["--specs=nosys.specs", "-nostartfiles", "-Wl,--gc-sections", f"-T{folder / 'layout.ld'}", "-lm"]
        subprocess.run([TOOLCHAIN, *FLAGS.split(), *includes, *map(str, files), *link, "-o", str(elf)], check=True)
        listing = Listing(elf, TOOLCHAIN)
        flashes = flash.arguments([clock], boards.get("mps2_an386"))
        plugin = execution.build_plugin(folder)
        arguments = execution.emulator_arguments(plugin, listing, "one_inference", out, flashes)
        machine = [
            "qemu-system-arm",
            "-M",
            "mps2-an386",
            "-nic",
            "none",
            "-display",
            "none",
            "-monitor",
            "none",
            "-serial",
            "null",
        ]
        semihosting = ["-serial", "null", "-semihosting-config", "enable=on,target=native"]
        subprocess.run([*machine, *semihosting, *arguments, "-kernel", str(elf)], check=True, timeout=600)
        executed = execution.read(out, listing, "one_inference")
        able = [core for core in cores() if core.cpu == clock.cpu]
        return summarise(executed, listing, able, [], [clock])


def table(rows: list[Row]) -> str:
    """Return the table, with the greatest error under it."""
    lines = ["| model | measured, ms | without wait states | estimated | error |", "|---|--:|--:|--:|--:|"]
    lines += [
        f"| {row.model}, {row.what} | {row.measured:.2f} | {row.without:.2f} | {row.estimated:.2f} | {row.error:+.1%} |"
        for row in rows
    ]
    worst = max(abs(row.error) for row in rows)
    return "\n".join(lines) + f"\n\nThe greatest error is {worst:.1%}.\n"


if __name__ == "__main__":
    main()
