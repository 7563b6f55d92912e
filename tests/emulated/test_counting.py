"""Instructions are counted exactly, and missing ones fault: small programs, written as machine code."""

import struct
from pathlib import Path

import pytest

pytest.importorskip("unicorn", reason="needs the package unicorn")

from mtool.boards import Memory
from mtool.device.transport.unicorn.machine import Machine, count_riscv, count_thumb

MEMORIES = {
    "flash": Memory(base=0, size=0x10000, holds=("code", "weights")),
    "sram": Memory(base=0x20000000, size=0x10000, holds=("arena", "data", "stack")),
}
DEVICE = 0x40000000
LOOPS = 1000
FAULT_USAGE = 106


def thumb(*halves: int) -> bytes:
    return struct.pack(f"<{len(halves)}H", *halves)


def elf(path: Path, code: bytes, *, machine: int = 40, entry: int = 1) -> Path:
    """Write a program for address 0 as an ELF file with one segment."""
    header = b"\x7fELF\x01\x01\x01" + bytes(9)
    header += struct.pack("<HHIIIIIHHHHHH", 2, machine, 1, entry, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<IIIIIIII", 1, 84, 0, 0, len(code), len(code), 5, 4)
    path.write_bytes(header + segment + code)
    return path


def run(path: Path, cpu: str, **more: int) -> Machine:
    machine = Machine(path, cpu=cpu, memories=MEMORIES, registers=DEVICE, **more)
    for _ in range(100_000):
        machine.run(5.0)
        if machine.status is not None:
            return machine
    raise AssertionError("it does not end")


# 1 + 1 instructions, LOOPS rounds of 6 of which two stand in an IT block, one of them skipped every time; then
# 5 that end it: the count is the status, which is read from the register.
PROGRAM = thumb(
    *(0x2400, 0xF44F, 0x757A),        # movs r4, #0; mov.w r5, #1000
    *(0x3401, 0x2D00, 0xBF0C, 0x3601, 0x3702, 0x3D01, 0xD1F8),
    # loop: adds r4, #1; cmp r5, #0; ite eq; addeq r6, #1; addne r7, #2; subs r5, #1; bne loop
    *(0xF04F, 0x4080, 0x6901, 0x6041, 0x2104, 0x6081, 0xE7FE),
    # mov.w r0, #0x40000000; ldr r1, [r0, #16]; str r1, [r0, #4]; movs r1, #4; str r1, [r0, #8]; b .
)  # fmt: skip
COUNTED_BY_HAND = 2 + 7 * LOOPS + 6


def test_a_loop_with_a_skipped_instruction_is_counted_as_by_hand(tmp_path: Path) -> None:
    assert run(elf(tmp_path / "a.elf", PROGRAM), "cortex-m4").status == COUNTED_BY_HAND


@pytest.mark.parametrize("every", [1, 7, 1000])
def test_looking_at_the_clock_often_changes_no_count(every: int, tmp_path: Path) -> None:
    path = elf(tmp_path / "a.elf", PROGRAM)
    machine = Machine(path, cpu="cortex-m3", memories=MEMORIES, registers=DEVICE, slice_instructions=every)
    stops = 0
    while machine.status is None:
        machine.run(0.0)  # which stops at the first look
        stops += 1
    assert machine.status == COUNTED_BY_HAND
    assert stops > 1


def test_blocks_are_cut_into_their_instructions() -> None:
    assert count_thumb(PROGRAM) == 2 + 7 + 6
    riscv = struct.pack("<HIHI", 0x4501, 0x00150513, 0x0505, 0x00000013)  # c.li; addi; c.addi; nop
    assert count_riscv(riscv) == 4


SMMLA = thumb(0x2001, 0x2102, 0x2203, 0xFB50, 0x2001, 0xF04F, 0x4080, 0x2104, 0x6081, 0xE7FE)


@pytest.mark.parametrize(
    ("cpu", "status"),
    [("cortex-m0", FAULT_USAGE), ("cortex-m3", FAULT_USAGE), ("cortex-m4", 0), ("cortex-m7", 0), ("cortex-m33", 0)],
)
def test_only_cores_with_simd_take_smmla(cpu: str, status: int, tmp_path: Path) -> None:
    code = SMMLA
    if cpu == "cortex-m0":  # which has no mov.w either, so the instruction stands alone
        code = thumb(0x2001, 0x2102, 0x2203, 0xFB50, 0x2001, 0xE7FE)
    assert run(elf(tmp_path / "a.elf", code), cpu).status == status


def test_what_is_not_there_is_a_fault_and_code_is_not_written(tmp_path: Path) -> None:
    read = thumb(0xF04F, 0x4060, 0x6800, 0xE7FE)  # mov.w r0, #0xE0000000; ldr r0, [r0]
    write = thumb(0x2000, 0x6000, 0xE7FE)  # movs r0, #0; str r0, [r0]
    assert run(elf(tmp_path / "a.elf", read), "cortex-m4").status == 105
    assert run(elf(tmp_path / "b.elf", write), "cortex-m4").status == 104


def test_an_image_outside_the_memories_is_reported(tmp_path: Path) -> None:
    path = elf(tmp_path / "a.elf", PROGRAM)
    flash = {"sram": MEMORIES["sram"]}
    with pytest.raises(MemoryError, match="no memory at 0x00000000"):
        Machine(path, cpu="cortex-m4", memories=flash, registers=DEVICE)
