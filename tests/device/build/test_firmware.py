"""Every board's firmware is built, and run if possible: as a process or in an emulator."""

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import packages
import pytest
import toy
from elftools.elf.elffile import ELFFile

from mtool import boards, commands, manifest, project
from mtool.base import filetree, resources
from mtool.base.filetree import FileTree
from mtool.device import build
from mtool.device.build import toolchains
from mtool.device.build.symbolizer import Symboliser
from mtool.device.transport.emulator import command

PORT_CHECK = (Path(__file__).parent / "port_check.c").read_text()
TIMER_NOT_STARTED, TIMER_RUNNING, TIMER_OVERFLOW = 8, 9, 10
PORT_RAN_WELL = 42
FAULT = 100
HEAD = '#include "mtool.h"\nint main(void);\n'
MTIME = "*(volatile uint32_t *)0x0200BFF8"

# Boards whose firmware runs here without a framework; Zephyr's and Arduino's have tests of their own.
ALONE = [board for board in boards.load_all().values() if {"host", "baremetal"} & {*board.templates}]
HERE = [board for board in ALONE if "host" in board.templates or ("baremetal" in board.templates and board.emulator)]
CHIPS = [board for board in ALONE if board not in HERE]
every_board = pytest.mark.parametrize("board", HERE, ids=lambda board: board.name)


def make(
    board: boards.Board, folder: Path, *, kind: str, replace: dict[str, str] | None = None, channel: str = ""
) -> build.Built:
    needs = [board.toolchain, *([board.emulator.program] if board.emulator else [])]
    if board.emulator:
        needs += ["cmake", "ninja"]
    for program in needs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    files, described = toy.compiled(board)
    tree, _ = project.render(files, described, board, options={"channel": channel} if channel else {})
    changed = {path: text.encode() for path, text in (replace or {}).items()}
    filetree.write(FileTree({**tree.files, **changed}), folder)
    return build.build(folder, kinds=[kind])


def run(board: boards.Board, firmware: Path, sent: bytes = b"", *, more: Sequence[str] = ()) -> tuple[int, bytes]:
    """Return the exit status and the output; `more` are arguments of the emulator."""
    argv = [str(firmware)]
    if board.emulator:
        argv = [*command(board.emulator, firmware), *more]
    done = subprocess.run(argv, input=sent, capture_output=True, timeout=20, check=False)
    return done.returncode, done.stdout


@pytest.mark.product(3)
@every_board
def test_a_standalone_firmware_runs_the_model(board: boards.Board, tmp_path: Path) -> None:
    built = make(board, tmp_path, kind="standalone", replace={"src/standalone.c": toy.check_c()})
    elf = built.firmware["standalone"]
    dirty = [] if not board.memories else dirtied(address(elf, "toy_arena"), built.manifest.arena_bytes)
    assert run(board, elf, more=dirty) == (toy.RAN_WELL, b"")
    size = build.measure(elf, built.manifest)
    assert size.flash_const_bytes == built.manifest.constant_bytes >= 80
    assert size.arena_bytes == built.manifest.arena_bytes >= 32
    stack_bytes = board.options.get("baremetal", {}).get("stack_bytes", 4096)
    assert size.stack_bytes == (stack_bytes if board.memories else 0)
    assert 4 <= size.ram_static_bytes <= 64
    assert 50 < size.flash_code_bytes < 16000
    assert sum(size.functions.values()) <= size.flash_code_bytes
    assert "toy_run" in size.functions


def dirtied(start: int, count: int) -> list[str]:
    """Return arguments of QEMU that fill memory before the firmware starts: RAM does not begin as zeros."""
    words = range(start, start + count, 8)
    return [part for at in words for part in ("-device", f"loader,addr={at:#x},data=0x4142434445464748,data-len=8")]


def address(elf: Path, symbol: str) -> int:
    with Symboliser(elf) as symbols:
        found = symbols.address(symbol)
    assert found is not None, symbol
    return found


@pytest.mark.slow
@pytest.mark.product(3)
@pytest.mark.product(2)
@pytest.mark.parametrize("board", [board for board in HERE if board.memories], ids=lambda board: board.name)
def test_each_thing_lies_in_the_memory_that_the_board_has_for_it(board: boards.Board, tmp_path: Path) -> None:
    built = make(board, tmp_path, kind="host_driven")
    elf = built.firmware["host_driven"]
    for symbol, role in (
        ("toy_arena", "arena"),
        (built.manifest.constants[0], "weights"),
        ("toy_run", "code"),
        ("buffer", "data"),
        ("mt_stack_low", "stack"),
    ):
        memory = board.memory_for(role)
        assert memory is not None
        assert memory.base <= address(elf, symbol) < memory.base + memory.size, symbol


@pytest.mark.slow
def test_a_role_may_have_any_memory(tmp_path: Path) -> None:
    """The same firmware, with each role in a memory that no entry has it in."""
    board = boards.get("mps3_an547")
    homes = {"itcm": "code weights", "dtcm": "arena stack", "isram": "data", "qspi": ""}
    memories = {
        name: memory.model_copy(update={"holds": tuple(homes[name].split())}) for name, memory in board.memories.items()
    }
    moved = board.model_copy(update={"memories": memories, "placed": {}})
    test_each_thing_lies_in_the_memory_that_the_board_has_for_it(moved, tmp_path / "driven")
    built = make(moved, tmp_path / "alone", kind="standalone", replace={"src/standalone.c": toy.check_c()})
    assert run(moved, built.firmware["standalone"]) == (toy.RAN_WELL, b"")


@pytest.mark.slow
@pytest.mark.product(3)
@every_board
def test_a_port_keeps_its_contract(board: boards.Board, tmp_path: Path) -> None:
    counter = board.timer.base + 4 if board.timer and board.timer.kind == "cmsdk_timer" else 0
    main = f"#define DOWN_COUNTER {counter:#x}\n#define CLINT {board.port.get('clint', 0):#x}\n{PORT_CHECK}"
    channel = "semihosting" if board.memories else ""  # unlike a UART, its input has an end
    built = make(board, tmp_path, kind="host_driven", replace={"src/main.c": main}, channel=channel)
    sent = bytes(range(256)) * 300
    nonces = set()
    times = set()
    for _ in range(2):
        status, received = run(board, built.firmware["host_driven"], sent)
        assert status == PORT_RAN_WELL
        numbers = struct.unpack("<12Q", received[:96])
        init, nonce, granularity, too_early, started, twice, stopped, once, double, fourfold, late, late_ns = numbers
        assert received[96:] == sent
        assert (init, too_early, started, twice, stopped) == (0, TIMER_NOT_STARTED, 0, TIMER_RUNNING, 0)
        assert (late, late_ns == 0) == ((TIMER_OVERFLOW, True) if counter else (0, False))
        assert granularity >= 1
        assert min(once, double, fourfold) > 0
        nonces.add(nonce)
        times.add((once, double, fourfold))
        if board.timer and board.timer.unit == "instructions":
            # An emulated instruction is a nanosecond, so a loop of twice the turns takes twice as many.
            assert abs((fourfold - double) - 2 * (double - once)) <= 3 * granularity
            assert 4 <= (fourfold - double) / 200_000 <= 12
    assert len(nonces) == 2
    assert len(times) == 1 or (board.timer and board.timer.unit == "ns")


@pytest.mark.parametrize("name", ["mps2_an385", "mps3_an547", "qemu_riscv32"])
def test_a_fault_ends_the_firmware(name: str, tmp_path: Path) -> None:
    fault = "int main(void);\nint main(void)\n{\n    __builtin_trap();\n}\n"
    built = make(boards.get(name), tmp_path, kind="standalone", replace={"src/standalone.c": fault})
    assert run(boards.get(name), built.firmware["standalone"])[0] == FAULT + 3  # HardFault; breakpoint


def test_a_watchdog_ends_the_firmware_though_its_clock_passes_32_bits(tmp_path: Path) -> None:
    board = boards.get("qemu_riscv32")
    main = f"{HEAD} int main(void) {{ mt_guard_init(); {MTIME} = UINT32_MAX; mt_guard_watch(1); for (;;) {{ }} }}\n"
    built = make(board, tmp_path, kind="host_driven", replace={"src/main.c": main})
    assert run(board, built.firmware["host_driven"])[0] == FAULT + 7  # the machine timer's interrupt


@pytest.mark.product(2)
@pytest.mark.product(2)
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m3", "cortex-m7", "cortex-m23", "cortex-m33", "cortex-m55"])
def test_the_guard_compiles_for_every_cortex_m(core: str, tmp_path: Path) -> None:
    built = make(boards.get("mps2_an386"), tmp_path, kind="host_driven")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-Icrt/include", "-Isrc", "-O2"]
    argv = ["arm-none-eabi-gcc", f"-mcpu={core}", "-mthumb", *flags, "-c", "src/guard.c", "-o", "guard.o"]
    subprocess.run(argv, cwd=built.folder, check=True)


@pytest.mark.slow
@pytest.mark.product(3)
@every_board
def test_a_readme_says_how_to_build_by_hand(board: boards.Board, tmp_path: Path) -> None:
    built = make(board, tmp_path, kind="standalone")
    assert run(board, built.firmware["standalone"]) == (0, b"")  # the model's own status
    shutil.rmtree(tmp_path / "build")
    lines = [line.strip() for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("    ")]
    for line in lines:
        if "standalone.elf" not in line:  # but for the line that runs it
            for command in line.split(" && "):
                subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    assert build.build(tmp_path, kinds=["standalone"]).firmware["standalone"].is_file()
    assert all((tmp_path / path).is_file() for path in built_files(tmp_path))


def built_files(folder: Path) -> list[str]:
    written = manifest.load(folder).project
    assert written is not None
    return [*written.firmware.values()]


def test_every_toolchain_of_a_board_is_known() -> None:
    for board in boards.load_all().values():
        assert board.toolchain in {*toolchains.load_all(), ""}, board.name  # "": the framework brings its own
        program = board.emulator.program if board.emulator else "{elf}"
        assert program.startswith("{") or program in toolchains.load_all(), board.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mps2_an386", "mps3_an547"])
def test_the_kernels_assemble_at_every_level(name: str, tmp_path: Path) -> None:
    """Helium's narrowing stores take none but the low registers: which the compiler chooses depends on the level."""
    board = boards.get(name)
    if shutil.which(board.toolchain) is None:
        pytest.skip(f"{board.toolchain} is not installed")
    compiled = commands.compile(resources.path("examples/digits") / "digits_int8.onnx", board=board)
    folder = packages.write(compiled, tmp_path / "c")
    for level in ("-O0", "-O1", "-O3", "-Os"):
        argv = [board.toolchain, *board.cflags, "-std=c99", level, "-c", "digits_int8.c", "-o", "digits_int8.o"]
        subprocess.run(argv, cwd=folder, check=True)


@pytest.mark.product(8)
@pytest.mark.parametrize("board", CHIPS, ids=lambda board: board.name)
def test_a_chip_that_has_no_emulator_builds(board: boards.Board, tmp_path: Path) -> None:
    """Its vector table is where its core looks for it, and has the UART's interrupt."""
    if shutil.which(board.toolchain) is None:
        pytest.skip(f"{board.toolchain} is not installed")
    files, described = toy.compiled(board)
    tree, _ = project.render(files, described, board, template="baremetal")
    filetree.write(tree, tmp_path)
    elf = build.build(tmp_path, kinds=["host_driven"]).firmware["host_driven"]
    at = address(elf, "mt_vectors")
    code, stack = board.memory_for("code"), board.memory_for("stack")
    assert code is not None and stack is not None
    assert at == code.base + (256 if "boot" in board.ports else 0)
    words = contents(elf, at, 17 + int(str(board.ports["uart"]["irq"])))
    assert stack.base < words[0] <= stack.base + stack.size
    assert words[1] == address(elf, "mt_reset") | 1
    assert words[-1] == address(elf, "mt_uart_interrupt") | 1


def contents(elf: Path, at: int, count: int) -> tuple[int, ...]:
    """Return words of a firmware's flash."""
    with elf.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            if segment["p_vaddr"] <= at < segment["p_vaddr"] + segment["p_filesz"]:
                return struct.unpack_from(f"<{count}I", segment.data(), at - segment["p_vaddr"])
    raise AssertionError(f"nothing is at 0x{at:08x}")
