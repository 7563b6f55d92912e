#!/usr/bin/env python3
"""Flip bits in the RAM and the flash of a model that runs in unicorn, with and without --guard, and count what happens.

    scripts/bit_flips.py [--tables costs flips] [--flips N] [--seed N] [--models FOLDER]

Half of the flips are in RAM (variables, arena, used stack), half in flash (code, constants), each at one of 1,000
random instructions of an inference; a second inference and, with --guard, a check of everything follow. Writes the
tables of docs/guard.md, also that of what --guard costs.
"""

import argparse
import itertools
import logging
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import unicorn
from elftools.elf.elffile import ELFFile

from mtool import boards, commands
from mtool.device.transport.unicorn.machine import CORES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guard.md"
MODELS = ROOT.parent / "shared" / "models"
M4 = "mps2_an386"
BOARDS = {M4: ("Cortex-M4", "cortex-m4"), "qemu_riscv32": ("RV32IMC", "rv32imc")}
MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"
COSTS = {
    "KWS": "kws/kws_int8_qdq.onnx",
    "VWW": "vww/vww_int8_qdq.onnx",
    "IC": "ic/ic_int8_qdq.onnx",
    "AD": "ad/ad_int8_qdq.onnx",
}
OUTCOMES = ("masked", "wrong", "crash", "hang", "detected")
FLASH, RAM, STOP, MIB = 0x0, 0x2000_0000, 0x0FF0_0000, 1 << 20
STACK_BYTES = 4096
FLASH_KEYS, RAM_KEYS = ("flash_code_bytes", "flash_const_bytes"), ("arena_bytes", "ram_static_bytes")
SNAPSHOTS = 1000
HANG_US = 1_000_000
Snapshot = tuple[object, bytes]
FLIP_HEAD = """\
| core | flips in | --guard | masked | wrong output | crash | hang | detected | of these, after a wrong output |
|---|---|---|---|---|---|---|---|---|
"""
COST_HEAD = """\
| Cortex-M4, int8 | instructions | with --guard | flash | RAM | all constants are checked in |
|---|---|---|---|---|---|
"""
LAYOUT = """SECTIONS {
    . = 0x0; .text : { *(.text*) code_end = .; *(.rodata*) *(.srodata*) }
    . = 0x20000000; .ram : { *(.data*) *(.sdata*) *(.bss*) *(.sbss*) *(COMMON) } end = .;
    /DISCARD/ : { *(.ARM.exidx*) *(.eh_frame*) *(.comment) }
}"""
CALLS = """#include "model.h"
int32_t infer(void);
int32_t check(void);
int32_t infer(void) { return model_run(&model_arena_inputs, &model_arena_outputs); }
int32_t check(void) { return {check}; }
"""


class Outcome(Exception):
    """What ended an inference."""


@dataclass
class Program:
    """A model without an operating system in a core's memory, and its state at some instructions of an inference."""

    core: str
    elf: Path
    engine: unicorn.Uc = field(init=False)
    symbols: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        described = CORES[self.core]
        self.engine = engine = unicorn.Uc(described.arch, described.mode)
        engine.ctl_set_cpu_model(described.model)
        engine.mem_map(FLASH, MIB, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
        engine.mem_map(STOP, 0x1000)
        with self.elf.open("rb") as file:
            image = ELFFile(file)
            self.symbols = {one.name: one["st_value"] for one in image.get_section_by_name(".symtab").iter_symbols()}
            self.flash = bytes(image.get_section_by_name(".text").data())
        self.end = -(-self.symbols["end"] // 8) * 8
        self.top = -(-(self.end + STACK_BYTES) // 0x1000) * 0x1000
        engine.mem_map(RAM, self.top - RAM, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE)
        engine.mem_write(FLASH, self.flash)
        if described.is_thumb:
            engine.reg_write(unicorn.arm_const.UC_ARM_REG_C1_C0_2, 0xF << 20)
            engine.reg_write(unicorn.arm_const.UC_ARM_REG_FPEXC, 1 << 30)
        self.thumb = int(described.is_thumb)
        self.registers = described.registers

    def tensor(self, kind: str) -> int:
        """Return the address of the first input or output."""
        at = self.symbols[f"model_arena_{kind}"]
        return int.from_bytes(self.flash[at : at + 4], "little")

    def begin(self, function: str, data: bytes = b"") -> None:
        """Write the input, and start a call."""
        if data:
            self.engine.mem_write(self.tensor("inputs"), data)
        self.engine.reg_write(self.registers["sp"], self.top)
        self.engine.reg_write(self.registers["lr"], STOP | self.thumb)
        self.engine.reg_write(self.registers["pc"], self.symbols[function] & ~1)

    def go_on(self, count: int = 0) -> None:
        """Run to the end of the call, or some instructions."""
        if count:
            self.engine.ctl_flush_tb()  # blocks translated before do not count
        try:
            pc = self.engine.reg_read(self.registers["pc"]) | self.thumb
            self.engine.emu_start(pc, STOP, timeout=HANG_US, count=count)
        except unicorn.UcError:
            raise Outcome("crash") from None
        if not count and self.engine.reg_read(self.registers["pc"]) & ~1 != STOP:
            raise Outcome("hang")

    def result(self) -> int:
        """Return the function's status."""
        is_arm = self.thumb
        return int(
            self.engine.reg_read(unicorn.arm_const.UC_ARM_REG_R0 if is_arm else unicorn.riscv_const.UC_RISCV_REG_A0)
        )

    def snapshots(self, data: bytes, counts: Iterator[int]) -> Iterator[Snapshot]:
        """Run an inference; yield the registers and the RAM at its start and after each count of instructions."""
        self.begin("infer", data)
        while not self.is_done():
            yield self.engine.context_save(), bytes(self.engine.mem_read(RAM, self.top - RAM))
            self.go_on(next(counts))

    def ram(self) -> bytes:
        """Return the RAM, but for the stack."""
        return bytes(self.engine.mem_read(RAM, self.end - RAM))

    def is_done(self) -> bool:
        """Whether the call has returned."""
        return self.engine.reg_read(self.registers["pc"]) & ~1 == STOP

    def outputs(self, count: int) -> bytes:
        """Return the output."""
        return bytes(self.engine.mem_read(self.tensor("outputs"), count))

    def flip(self, at: int, bit: int) -> None:
        """Flip a bit."""
        self.engine.mem_write(at, bytes([self.engine.mem_read(at, 1)[0] ^ 1 << bit]))
        if at < self.symbols["code_end"]:
            self.engine.ctl_flush_tb()


def built(model: Path, board: str, folder: Path, *, guard: bool) -> Path:
    """Return a model as a program for a board's core."""
    described, made = boards.get(board), folder / f"{board}{guard}"
    argv = [sys.executable, "-m", "mtool", "compile", str(model), "--name", "model", "--board", board, "-q"]
    subprocess.run([*argv, "-d", str(made), *["--guard"] * guard], check=True, stdout=subprocess.DEVNULL)
    (made / "calls.c").write_text(CALLS.replace("{check}", "model_check()" if guard else "0"))
    (made / "layout.ld").write_text(LAYOUT)
    elf = made / "program.elf"
    argv = [described.toolchain, *described.cflags, "-O2", "-ffunction-sections", "-fdata-sections", "-nostartfiles"]
    argv += ["-Wl,--gc-sections,-einfer,-uinfer,-ucheck", "-Tlayout.ld", *(path.name for path in made.glob("*.c"))]
    subprocess.run([*argv, "-lm", "-o", str(elf)], check=True, cwd=made)
    return elf


def trial(
    program: Program, mark: Snapshot, at: int, bit: int, data: bytes, right: bytes, after: bytes
) -> tuple[str, bool]:
    """Flip a bit at some instruction; return the outcome, and whether an output was wrong."""
    program.engine.context_restore(mark[0])
    program.engine.mem_write(RAM, mark[1])
    program.flip(at, bit)
    is_wrong = False
    try:
        for function in ("", "infer", "check"):
            if function:
                program.begin(function, data)
            program.go_on()
            if program.result() != 0:
                return "detected", is_wrong
            is_wrong |= function != "check" and program.outputs(len(right)) != right
            if at >= RAM and program.ram() == after:
                break  # the flip has left nothing
    except Outcome as outcome:
        return str(outcome), is_wrong
    finally:
        if at < RAM:
            program.flip(at, bit)
    return "wrong" if is_wrong else "masked", is_wrong


def campaign(elf: Path, core: str, data: bytes, output: int, flips: int, seed: int) -> dict[str, Counter[str]]:
    """Return the outcomes of flips in RAM and in flash, and how many were detected after a wrong output ("late")."""
    program = Program(core, elf)
    for _ in range(2):  # with --guard, the first one checks everything
        program.begin("infer", data)
        program.go_on()
    right = program.outputs(output)
    length = sum(10_000 for _ in program.snapshots(data, itertools.repeat(10_000)))
    draw = random.Random(f"{seed} {core}")
    marks = [*program.snapshots(data, iter(lambda: draw.randrange(1, 2 * length // SNAPSHOTS), 0))]
    ram, after = marks[-1][1], program.ram()
    used = next(at for at in range(program.end - RAM, len(ram)) if ram[at])
    places = {"RAM": [*range(RAM, program.end), *range(RAM + used, program.top)], "flash": range(len(program.flash))}
    found = {}
    for where, bytes_ in places.items():
        counts = found[where] = Counter[str]()
        for _ in range(flips // 2):
            flipped = draw.choice(marks), draw.choice(bytes_), draw.randrange(8)
            outcome, is_wrong = trial(program, *flipped, data, right, after)
            counts[outcome] += 1
            counts["late"] += outcome == "detected" and is_wrong
    return found


def flips_table(flips: int, seed: int) -> str:
    """Return the table of outcomes."""
    data = np.load(MODEL.parent / "test_data.npz")["x"][:1].tobytes()
    lines = ""
    with tempfile.TemporaryDirectory(prefix="mtool-flips-") as folder:
        for board, (name, core) in BOARDS.items():
            for guard in (False, True):
                elf = built(MODEL, board, Path(folder), guard=guard)
                for where, counts in campaign(elf, core, data, 10, flips, seed).items():
                    cells = [name, where, "yes" if guard else "no", *(f"{counts[one]:,}" for one in OUTCOMES)]
                    lines += f"| {' | '.join(cells)} | {counts['late']:,} |\n"
                    print(lines.splitlines()[-1], flush=True)
    return lines


def costs_table(models: Path) -> str:
    """Return the table of what --guard costs."""
    lines = ""
    for name, model in COSTS.items():
        costs = []
        for guard in (False, True):
            with tempfile.TemporaryDirectory(prefix="mtool-guard-") as folder:
                options = commands.Options(name="model", guard=guard)
                deployment = commands.Deployment(Path(folder) / "project")
                cost = commands.bench(
                    models / model, board=M4, number=1, repeat=3, options=options, deployment=deployment
                )
                text, header = (next(Path(folder).rglob(f"model.{end}")).read_text() for end in "ch")
                costs.append(cost.as_json())
        plain, guarded = costs
        more = {key: guarded[key] - plain[key] for key in plain if isinstance(plain[key], int | float)}
        margins = int(re.search(r"ARENA_BYTES \+ (\d+)\)", header)[1])
        part = int(re.search(r"\.part = (\d+)", text)[1])
        share = more["instructions"] / plain["instructions"]
        flash, ram = (sum(more[key] for key in keys) for keys in (FLASH_KEYS, RAM_KEYS))
        lines += (
            f"| {name} | {plain['instructions']:,.0f} | {guarded['instructions']:,.0f} (+{share:.1%}) | +{flash:,} B | "
            f"+{ram + margins:,} B | {-(-plain['flash_const_bytes'] // part):,} runs |\n"
        )
        print(lines.splitlines()[-1], flush=True)
    return lines


def main() -> int:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=2_500, help="for each core, with and without --guard")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tables", nargs="+", default=["costs", "flips"], choices=["costs", "flips"])
    parser.add_argument("--models", type=Path, default=MODELS)
    given = parser.parse_args()
    logging.disable(logging.INFO)
    for table in given.tables:
        is_costs = table == "costs"
        head, rows = (
            (COST_HEAD, costs_table(given.models)) if is_costs else (FLIP_HEAD, flips_table(given.flips, given.seed))
        )
        before, _, behind = PAGE.read_text().partition(head)
        *_, behind = re.split(r"^(?!\|)", behind, maxsplit=1, flags=re.MULTILINE)
        PAGE.write_text(before + head + rows + behind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
