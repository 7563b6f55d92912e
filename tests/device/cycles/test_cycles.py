"""The cycle estimate: hand-counted snippets in QEMU, the M7's pairing, the disassembler's text, real firmware."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mtool import boards
from mtool.base.errors import BuildError, UsageError
from mtool.boards import Cache, Reads
from mtool.commands.cost import clocks
from mtool.device.cycles import Clock, cores, execution, pipelines, riscv
from mtool.device.cycles.cores import Instruction, group_of, groups
from mtool.device.cycles.estimate import flash_arguments, summarise
from mtool.device.cycles.execution import Listing
from mtool.device.cycles.thumb import decode

SNIPPETS = Path(__file__).with_name("snippets.s")
TOOLCHAIN = "arm-none-eabi-gcc"
TABLES = {core.cpu: core for core in cores()}
M4, M7, M55 = (TABLES[f"cortex-{name}"] for name in ("m4", "m7", "m55"))
MACHINE = ("qemu-system-arm", "-M", "mps2-an386", "-nic", "none", "-display", "none", "-monitor", "none")
RETURN = 3  # bx lr: 1 + P

needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in (TOOLCHAIN, "qemu-system-arm", "cc")),
    reason="the Arm toolchain, QEMU or a compiler is not installed",
)

# function: instructions and cycles on a Cortex-M4, both without the return
BY_HAND = {
    "data_processing": (5, 5),
    "three_loads": (3, 1 + 3),
    "load_and_use": (3, 2 + 1 + 2),
    "load_and_store": (2, 3),
    "load_and_store_indexed": (2, 3),
    "store_indexed_and_load": (2, 2 + 2),
    "pointer": (2, 2 + 2),
    "computed_address": (2, 1 + 1 + 2),
    "base_update": (2, 2 + 2),
    "several_words": (6, (1 + 3) + (1 + 4) + (1 + 2) + (1 + 2) + (1 + 2) + (1 + 3)),
    "multiplications": (6, 5 + 7),
    # the add waits for the product, a cycle
    "floats": (10, 2 + 1 + 2 + 1 + (1 + 1) + 1 + 3 + 14 + (1 + 4) + 2),
    # the second VLDR follows the first; two additions under the VFMA; its sum is an addend, then waited for
    "floats_beside_integers": (7, (2 + 1) + (1 + 2) + 1 + (2 + 1) + 1),
    "loop": (1 + 20, 1 + 10 * 2 + 9 * 2),
    # a jump to an instruction that lies in two words costs one cycle more
    "straddling": (1 + 20, 1 + 10 * 2 + 9 * 3),
    # a word as byte, halfword and byte; a halfword as two bytes; a word as two halfwords
    "unaligned": (3, (2 + 2) + (1 + 1) + (1 + 1)),
    "conditional": (6, 6),
    # two loops and the multiplications with their returns, three calls of 1 + P, push, pop with pc: 1 + 2 + P
    "calls": (2 * 22 + 7 + 5 - 1, 2 * (39 + 3) + (12 + 3) + 3 * 3 + 3 + 5 - RETURN),
    "crosses_a_page": (3, 3 + 1 + 1),
}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return execution.build_plugin(tmp_path_factory.mktemp("plugin"))


def firmware(folder: Path, function: str, end: str = "bkpt 0xab") -> Listing:
    elf = folder / f"{function}.elf"
    source = folder / f"{function}.s"
    source.write_text(SNIPPETS.read_text().replace("CALLED", function).replace("bkpt 0xab", end))
    argv = [TOOLCHAIN, "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-nostdlib", "-Wl,-Ttext=0,-e,reset", "-o"]
    subprocess.run([*argv, str(elf), str(source)], check=True)
    return Listing(elf, TOOLCHAIN)


def run(
    plugin: Path, folder: Path, function: str, *counted: str, flashes: Sequence[str] = ()
) -> tuple[Listing, execution.Executed]:
    listing = firmware(folder, function)
    out = folder / "counts.txt"
    arguments = execution.emulator_arguments(plugin, listing, counted or [function], out, flashes)
    image = [
        "-serial",
        "null",
        "-semihosting-config",
        "enable=on,target=native",
        "-kernel",
        str(folder / f"{function}.elf"),
    ]
    subprocess.run([*MACHINE, *arguments, *image], check=True, timeout=60)
    return listing, execution.read(out, listing, counted or [function])


@needs_arm
@pytest.mark.parametrize("function", BY_HAND)
def test_cycles_are_those_counted_by_hand(function: str, plugin: Path, tmp_path: Path) -> None:
    listing, executed = run(plugin, tmp_path, function)
    estimate = summarise(executed, listing, [M4], [])
    instructions, cycles = BY_HAND[function]
    assert estimate.instructions == instructions + 1
    assert estimate.cycles == {"cortex-m4": cycles + RETURN}
    assert sum(part.cycles["cortex-m4"] for part in estimate.functions) == cycles + RETURN


# function: instructions, and cycles by core, with the return. The loop: a move, ten subtractions, ten branches.
ON_EACH = {
    "small": (
        10 + 22,
        {
            # push 1 + 2, two loads and a store of 2 each, ldm 1 + 2, two, bl 3, b 2, pop with pc 3 + 2;
            # the loop: 1 + 10 * 2 + 9 taken, bx 2
            "cortex-m0plus": 3 + 6 + 3 + 2 + 3 + 2 + 5 + (1 + 20 + 9 + 2),
            # the second load overlaps; P is 2; pop with pc 1 + 2 + P
            "cortex-m3": 3 + (2 + 1 + 1) + 3 + 2 + 3 + 3 + 5 + (1 + 20 + 18 + 3),
            "cortex-m33": 3 + (2 + 1 + 1) + 3 + 2 + 3 + 3 + 5 + (1 + 20 + 18 + 3),
        },
    ),
    "multiplications_of_an_m3": (6, {"cortex-m3": 1 + 2 + 4 + 6 + 7 + 3, "cortex-m33": 4 + 7 + 3}),
}


@needs_arm
@pytest.mark.parametrize("function", ON_EACH)
def test_each_core_has_its_own_cycles(function: str, plugin: Path, tmp_path: Path) -> None:
    instructions, cycles = ON_EACH[function]
    listing, executed = run(plugin, tmp_path, function)
    estimate = summarise(executed, listing, [TABLES[cpu] for cpu in cycles], [])
    assert (estimate.instructions, estimate.cycles) == (instructions, cycles)


@needs_arm
def test_reads_of_the_flash_are_those_that_its_caches_lack(plugin: Path, tmp_path: Path) -> None:
    board = boards.get("mps2_an386")
    reads = Reads(
        source="a test",
        wait_states={10: 0, 100: 5},
        width=8,
        line=32,
        code=Cache(lines=32),
        data=Cache(lines=8),
        prefetch=False,
    )
    small = reads.model_copy(update={"data": Cache(lines=7)})
    clocks = [Clock("fits", "cortex-m4", 100_000_000, reads), Clock("does not", "cortex-m4", 100_000_000, small)]
    listing, executed = run(plugin, tmp_path, "reads_flash", flashes=flash_arguments(clocks, board))
    each = [tuple(map(sum, zip(*(block.reads[index] for block in executed.blocks), strict=True))) for index in (0, 1)]
    assert [data for _, _, data in each] == [32, 64]  # 256 bytes: 32 reads; the oldest of 7 lines is always the next
    assert sum(each[0][:2]) == 3  # 18 bytes of code
    estimate = summarise(executed, listing, [M4], [], clocks)
    assert estimate.waits == {"fits": 5 * (32 + 3), "does not": 5 * (64 + 3)}
    assert estimate.milliseconds(clocks[0]) == (estimate.cycles["cortex-m4"] + 175) / 100_000


def test_wait_states_go_by_the_clock() -> None:
    reads = boards.get("nucleo_l4r5zi").memories["flash"].reads
    assert reads is not None
    assert [reads.waits(mhz * 1_000_000) for mhz in (16, 20, 21, 80, 100, 120)] == [0, 0, 1, 3, 4, 5]


def test_clocks_are_boards_and_frequencies() -> None:
    target = boards.get("mps2_an386")
    found = clocks(["nucleo_l4r5zi", "nucleo_l4r5zi@80MHz", "1.2GHz", "64000000"], target)
    assert [(clock.cpu, clock.hz, clock.waits) for clock in found] == [
        ("cortex-m4", 120_000_000, 5),
        ("cortex-m4", 80_000_000, 3),
        ("cortex-m4", 1_200_000_000, 0),
        ("cortex-m4", 64_000_000, 0),
    ]
    with pytest.raises(UsageError, match="is not a frequency"):
        clocks(["nucleo_l4r5zi@fast"], target)
    with pytest.raises(UsageError, match="there is no estimate for its core"):
        clocks(["rpi_pico"], target)


@needs_arm
def test_calls_are_distinguished(plugin: Path, tmp_path: Path) -> None:
    listing, executed = run(plugin, tmp_path, "calls")
    assert executed.calls == ("loop", "multiplications", "loop")
    estimate = summarise(executed, listing, [M4], [])
    assert {part.name: part.instructions for part in estimate.operators} == {
        "loop": 44,
        "multiplications": 7,
        "calls": 5,
    }
    loops = [block for block in executed.blocks if listing.function_at(block.body[0].address) == "loop"]
    assert {block.call for block in loops} == {1, 3}


@needs_arm
def test_functions_that_make_one_inference_are_counted_together(plugin: Path, tmp_path: Path) -> None:
    """What calls them is not counted; the later ones may run more than once."""
    listing, executed = run(plugin, tmp_path, "calls", "multiplications", "loop")
    assert executed.calls == ()
    estimate = summarise(executed, listing, [M4], [])
    assert {part.name: part.instructions for part in estimate.functions} == {"loop": 44, "multiplications": 7}


@needs_arm
def test_what_does_not_run_once_is_refused(plugin: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="can't count loop") as raised:
        run(plugin, tmp_path, "calls", "loop")
    assert raised.value.details == ("number of entries: 2, returns: 2",)
    listing = firmware(tmp_path, "loop")
    with pytest.raises(BuildError, match="no function nothing"):
        listing.function("nothing")
    with pytest.raises(BuildError, match="found no return instruction in reset"):
        execution.emulator_arguments(tmp_path / "p.so", listing, ["reset"], tmp_path / "out")


@pytest.mark.skipif(shutil.which("cc") is None, reason="a compiler is not installed")
@pytest.mark.parametrize(("newer", "version"), [(False, 1), (True, 2)])
def test_the_plugin_takes_the_version_that_qemu_has(newer: bool, version: int, plugin: Path, tmp_path: Path) -> None:
    names = (
        "register_vcpu_tb_trans_cb register_vcpu_tb_exec_cb register_vcpu_mem_cb register_atexit_cb"
        " tb_n_insns tb_get_insn insn_vaddr insn_size mem_size_shift"
    )
    every = [f"qemu_plugin_{name}" for name in (*names.split(), *(["num_vcpus"] if newer else []))]
    (tmp_path / "qemu.c").write_text(
        "".join(f"int {name}(void);\nint {name}(void) {{ return 0; }}\n" for name in every)
    )
    stub = tmp_path / "qemu.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(tmp_path / "qemu.c"), "-o", str(stub)], check=True)
    program = (
        "import ctypes, sys; ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL);"
        "print(ctypes.c_int.in_dll(ctypes.CDLL(sys.argv[2]), 'qemu_plugin_version').value)"
    )
    argv = [sys.executable, "-c", program, str(stub), str(plugin)]
    assert int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout) == version


@needs_arm
def test_an_emulator_that_is_ended_by_a_signal_has_counted(plugin: Path, tmp_path: Path) -> None:
    # a firmware that speaks through a UART never ends by itself; this one sends a byte once the loop has run
    uart = "ldr r0, =0x40004000; movs r1, #16; str r1, [r0, #16]; movs r1, #1; str r1, [r0, #8]; str r1, [r0]; b ."
    listing = firmware(tmp_path, "loop", end=uart)
    out = tmp_path / "counts.txt"
    arguments = execution.emulator_arguments(plugin, listing, ["loop"], out)
    image = ["-serial", "stdio", "-kernel", str(tmp_path / "loop.elf")]
    with subprocess.Popen([*MACHINE, *arguments, *image], stdout=subprocess.PIPE) as emulator:
        assert emulator.stdout is not None and emulator.stdout.read(1) == b"\x01"
        emulator.terminate()
        emulator.wait(10)
    assert sum(block.count * len(block.body) for block in execution.read(out, listing, ["loop"]).blocks) == 22


def instructions(text: str) -> list[Instruction]:
    lines = [line.split(maxsplit=1) for line in text.split(";")]
    return [decode(4 * index, 4, line[0], line[1].strip()) for index, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        ("add r0, r1, r2; add r3, r1, r2", [1, 0]),
        ("add r0, r1, r2; add r3, r0, r2", [1, 1]),
        ("smlad r0, r8, r6, r0; smlad r1, r8, r6, r1", [1, 1]),
        ("smlad r0, r8, r6, r0; ldr r1, [r2, #4]", [1, 0]),
        ("smlad r0, r8, r6, r0; smlad r0, r9, r6, r0; smlad r0, r10, r6, r0", [1, 1, 1]),
        ("smlad r0, r8, r6, r0; add r0, r0, r1", [1, 2]),
        ("ldr r0, [r1]; ldr r2, [r3]", [1, 0]),
        ("ldr r0, [r1]; ldr r2, [r0]", [1, 2]),
        ("ldr r0, [r1], #4; ldr r2, [r1], #4", [1, 1]),
        ("ldmia r0!, {r1, r2, r3}; add r4, r5, r6", [2, 1]),
        ("add r0, r1, r2, lsl #2; eor r3, r4, r5, lsr #1", [1, 1]),
        ("add r0, r1, r2; sxtb16 r3, r4", [1, 1]),
        ("sxtb16 r3, r4; add r0, r1, r2", [1, 0]),
        ("vfma.f32 s0, s1, s2; vfma.f32 s0, s3, s4; vfma.f32 s5, s1, s2", [1, 3, 1]),
        ("vmul.f32 s0, s1, s2; vldr s3, [r0]", [1, 0]),
        ("sdiv r0, r1, r2; add r3, r4, r5", [7, 1]),
    ],
)
def test_the_dual_issue_of_an_m7(text: str, cycles: list[int]) -> None:
    assert pipelines.cycles(instructions(text), M7) == cycles


@pytest.mark.parametrize(
    ("text", "bytes_each", "cycles"),
    [
        # the two that LLVM's description draws: beats of different units overlap, those of one do not
        ("vldrb.u8 q0, [r0]; vadd.i8 q1, q0, q2; vmul.i8 q3, q1, q2; vstrb.8 q3, [r1]", 4, [1, 1, 1, 1]),
        ("vldrw.u32 q0, [r0]; vldrb.u8 q1, [r0]; vadd.i8 q2, q0, q1; vstrb.8 q2, [r1]", 4, [1, 2, 1, 1]),
        ("vldrb.s8 q0, [r0], #16; vmladava.s8 r2, q0, q1; vldrb.s8 q0, [r1]; vmladava.s8 r4, q0, q1", 4, [1, 1, 1, 1]),
        ("vmladava.s8 r2, q0, q1; vmladava.s8 r2, q2, q3", 4, [1, 2]),
        ("vqrdmulh.s32 q0, q0, r1; vadd.i32 q0, q0, q2", 4, [1, 2]),
        ("vpst; vldrwt.u32 q0, [r0]; le lr, 1000", 4, [1, 1, 0]),
        ("ldr r0, [r1]; add r0, r0, r2", 4, [1, 2]),
        ("lsls r0, r1, #2; adds r2, r3, #1", 2, [1, 0]),
        ("lsls r0, r1, #2; adds r2, r3, r1", 2, [1, 1]),
    ],
)
def test_the_beats_and_pairs_of_an_m55(text: str, bytes_each: int, cycles: list[int]) -> None:
    lines = [line.split(maxsplit=1) for line in text.split(";")]
    code = [decode(4 * index, bytes_each, *line, *[""] * (2 - len(line))) for index, line in enumerate(lines)]
    assert all(instruction.group for instruction in code)
    assert pipelines.cycles(code, M55) == cycles


@pytest.mark.parametrize(
    ("text", "esp32_c3", "ibex"),
    [
        ("lw a5,12(a4);addi a0,a0,1;add a5,a5,a0", [1, 1, 1], [2, 1, 1]),
        ("lb a5,0(a4);add a5,a5,a0;sb a5,0(a4)", [1, 2, 1], [2, 1, 2]),
        ("mul a0,a1,a2;mulh a3,a1,a2;div a4,a3,a0", [1, 1, 33], [3, 4, 37]),
        ("c.mv a0,a1;lui a5,0x10;bnez a5,1000", [1, 1, 1], [1, 1, 1]),
    ],
)
def test_risc_v_in_order(text: str, esp32_c3: list[int], ibex: list[int]) -> None:
    code = [riscv.decode(4 * index, 4, *line.split()) for index, line in enumerate(text.split(";"))]
    assert all(instruction.group for instruction in code)
    assert pipelines.cycles(code, TABLES["rv32imc"]) == esp32_c3
    assert pipelines.cycles(code, TABLES["rv32imc-two-stage"]) == ibex


def test_a_loop_is_timed_after_another_round() -> None:
    loop = instructions("smlad r0, r8, r6, r0; add r1, r0, r2; b 0")
    assert pipelines.cycles(loop, M7) == [1, 2, 0]
    waits = instructions("smlad r0, r1, r6, r3; mul r1, r2, r3; b 0")
    assert sum(pipelines.cycles(waits, M7)) == 3  # the product that the next round needs comes a cycle late


def test_jumps_cost_what_was_not_foreseen() -> None:
    assert pipelines.jump_cycles(M4, count=10, jumps=9) == 18
    assert pipelines.jump_cycles(M7, count=10, jumps=9) == 6
    assert pipelines.jump_cycles(M7, count=10, jumps=10) == 0
    assert pipelines.jump_cycles(M55, count=10, jumps=9, last="loop_end") == 0
    assert pipelines.jump_cycles(TABLES["rv32imc-two-stage"], count=10, jumps=9, last="rv_branch") == 18
    assert pipelines.jump_cycles(TABLES["rv32imc-two-stage"], count=1, jumps=1, last="rv_jump") == 1


@pytest.mark.parametrize(
    ("written", "operands", "mnemonic", "writes", "words"),
    [
        ("bls.n", "7610", "b", "", 1),
        ("lsls", "r2, r2, #1", "lsl", "r2", 1),
        ("mls", "r1, r7, r4, r1", "mls", "r1", 1),
        ("smlal", "r0, r1, r2, r3", "smlal", "r0 r1", 1),
        ("tsteq.w", "r2, #12", "tst", "", 1),
        ("vcvtne.f32.s32", "s2, s3", "vcvt", "s2", 1),
        ("vmovgt.f32", "s1, s2", "vmov", "s1", 1),
        ("ldrd", "fp, ip, [r2], #8", "ldrd", "r11 r12", 2),
        ("ldmia.w", "sp!, {r4-r7, pc}", "ldmia", "r4 r5 r6 r7 pc", 5),
        ("vldmia", "r2!, {d0-d1}", "vldmia", "s0 s1 s2 s3", 4),
        ("vstr", "d7, [sp, #16]", "vstr", "", 2),
        ("vmov", "s2, s3, r5, r7", "vmov", "s2 s3", 1),
        ("push", "{r4, lr}", "push", "", 2),
    ],
)
def test_the_disassemblers_text_is_read(written: str, operands: str, mnemonic: str, writes: str, words: int) -> None:
    read = decode(0, 4, written, operands)
    assert (read.mnemonic, read.writes, read.words) == (mnemonic, frozenset(writes.split()), words)


def test_sources_are_distinguished_from_addresses_and_accumulators() -> None:
    add, load, store, mac, fused = instructions(
        "add r0, r0, r1, lsl #2; ldr r0, [r1, r2, lsl #2]; str r0, [r1], #4; smlad r0, r1, r2, r3; vfma.f32 s0, s1, s2"
    )
    assert (add.reads, add.early) == ({"r0"}, {"r1"})
    assert (load.reads, load.early, load.indexed, load.base) == (set(), {"r1", "r2"}, True, set())
    assert (store.late, store.early, store.indexed, store.base) == ({"r0"}, {"r1"}, False, {"r1"})
    assert (mac.reads, mac.late) == ({"r1", "r2"}, {"r3"})
    assert (fused.reads, fused.late) == ({"s1", "s2"}, {"s0"})


def test_the_tables_name_groups_and_units_that_are_there() -> None:
    assert len(group_of()) + len(group_of("riscv")) == sum(len(group.mnemonics.split()) for group in groups().values())
    for core in cores():
        assert set(core.groups) <= set(groups())
        assert {unit for cost in core.groups.values() for unit in cost.uses} <= set(core.units)
