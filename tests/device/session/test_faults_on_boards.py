"""Real firmware whose operator faults: the error names the operator, place and cause; the device can be reopened."""

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import amount
import pytest

from mtool import boards
from mtool.base.errors import CommunicationError, DeviceError
from mtool.boards import Board
from mtool.device import session
from mtool.device.session import Readings
from mtool.device.session.bench import measure_speed, run_measured
from tests.device.session import faulty

pytestmark = pytest.mark.long

BOARDS = ["host", "mps2_an386", "qemu_riscv32", *["mps2_an385", "mps2_an500", "mps3_an547"] * amount.IS_ALL]


def kind_of(board: Board) -> str:
    return next(kind for kind in ("host", "cortex", "rv") if board.cpu.startswith(kind))


@pytest.fixture(scope="module", params=BOARDS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Board, Path]:
    board = boards.get(request.param)
    return board, faulty.make(board, tmp_path_factory.mktemp(board.name) / "project")


def fault(folder: Path, which: int, *, in_steps: bool = True, timeout_s: float | None = None) -> DeviceError:
    """Run a sample that faults, after one that does not; the device is opened again afterwards."""
    with session.open(folder, timeout_s=30) as device:
        expected = device.run(faulty.sample(device.manifest))
        with pytest.raises(DeviceError) as caught:
            device.run(faulty.sample(device.manifest, which), in_steps=in_steps, timeout_s=timeout_s)
    with session.open(folder, timeout_s=30) as device:
        again = device.run(faulty.sample(device.manifest))
    assert all((again[name] == array).all() for name, array in expected.items())
    return caught.value


@pytest.mark.product(3)
def test_an_unmapped_address(built: tuple[Board, Path]) -> None:
    board, folder = built
    error = fault(folder, faulty.UNMAPPED)
    name = {"host": "SIGSEGV", "cortex": "MemManage", "rv": "store access fault"}[kind_of(board)]
    address = {"host": "address 0x10", "cortex": "MMFAR 0x70000000", "rv": "mtval 0x70000000"}[kind_of(board)]
    assert error.what.startswith(f"{name} in {faulty.NAMED}")
    assert "digits_int8_conv_2+0x" in error.details[0] and faulty.line(folder, faulty.UNMAPPED) in error.details[0]
    assert address in error.details[0]
    assert board.cpu == "host" or error.details[-1].endswith(" of 4096 B used")


def test_a_null_pointer(built: tuple[Board, Path]) -> None:
    """On mps2, memory lies at the address 0: it holds the code, and may be read."""
    folder = built[1]
    error = fault(folder, faulty.NULL)
    assert faulty.NAMED in error.what and faulty.line(folder, faulty.NULL) in error.details[0]
    assert error.details[0].endswith("0x0") or "0x00000000" in error.details[0]


@pytest.mark.parametrize("which", [faulty.DEEP, faulty.LARGE])
def test_a_stack_overflow(built: tuple[Board, Path], which: int) -> None:
    board, folder = built
    if board.cpu == "host" and which == faulty.LARGE:
        pytest.skip("a process has a large stack")
    error = fault(folder, which)
    assert error.what.startswith(f"stack overflow in {faulty.NAMED}")
    assert board.cpu == "host" or re.fullmatch(r"stack.* \S+ B used", error.details[-1])
    assert board.cpu == "host" or error.hint.startswith("try a larger stack: --option stack_bytes=")


def test_an_overwritten_canary(built: tuple[Board, Path]) -> None:
    board, folder = built
    if board.cpu == "host":
        pytest.skip("a process has no canary")
    error = fault(folder, faulty.CANARY)
    assert error.what.startswith(f"stack overflow in {faulty.NAMED}")
    assert error.details == ("its lowest bytes were overwritten",)


def test_an_illegal_instruction(built: tuple[Board, Path]) -> None:
    board, folder = built
    error = fault(folder, faulty.ILLEGAL)
    name = {"host": "SIGILL", "cortex": "UsageFault", "rv": "breakpoint"}[kind_of(board)]
    assert error.what.startswith(f"{name} in {faulty.NAMED}")
    assert "digits_int8_conv_2" in error.details[0] and faulty.line(folder, faulty.ILLEGAL) in error.details[0]


def test_a_division_by_zero(built: tuple[Board, Path]) -> None:
    board, folder = built
    if kind_of(board) == "rv":
        pytest.skip("RISC-V divides by zero")
    error = fault(folder, faulty.DIVISION)
    assert error.what.startswith(f"{'SIGFPE' if board.cpu == 'host' else 'UsageFault'} in {faulty.NAMED}")
    assert board.cpu == "host" or "division by zero (DIVBYZERO)" in error.details[0]
    assert faulty.line(folder, faulty.DIVISION) in error.details[0]


def test_an_assertion(built: tuple[Board, Path]) -> None:
    folder = built[1]
    error = fault(folder, faulty.ASSERTION)
    assert error.what.startswith(f"failed assertion in {faulty.NAMED}")
    assert faulty.line(folder, faulty.ASSERTION) in error.details[0]


def test_a_port_that_gives_up(built: tuple[Board, Path]) -> None:
    assert fault(built[1], faulty.ABORT).what.startswith(f"failed assertion in {faulty.NAMED}")


@pytest.mark.product(2)
@pytest.mark.parametrize("in_steps", [True, False])
def test_an_operator_that_does_not_end(built: tuple[Board, Path], in_steps: bool) -> None:
    folder = built[1]
    error = fault(folder, faulty.ENDLESS, timeout_s=0.05, in_steps=in_steps)
    assert error.what.startswith(f"timeout in {faulty.NAMED}")
    assert faulty.line(folder, faulty.ENDLESS) in error.details[0]


MEASURED: dict[str, Callable[[session.Device, Any], object]] = {
    "run": run_measured,
    "bench": lambda device, inputs: measure_speed(device, inputs, Readings(repeat=1)),
    "time": lambda device, inputs: device.time(inputs=inputs),
    "profile": lambda device, inputs: device.profile(inputs),
}


@pytest.mark.parametrize("what", MEASURED)
def test_what_is_measured_ends_in_the_time_that_is_given(built: tuple[Board, Path], what: str) -> None:
    """`--timeout` counts for `run` and `bench` too; an inference that is fast enough is measured."""
    with session.open(built[1], timeout_s=30, work_s=0.05) as device:
        MEASURED[what](device, faulty.sample(device.manifest))
        with pytest.raises(DeviceError) as caught:
            MEASURED[what](device, faulty.sample(device.manifest, faulty.ENDLESS))
    assert caught.value.what.startswith(f"timeout in {faulty.NAMED}")


def test_the_function_names_the_operator(built: tuple[Board, Path]) -> None:
    """Through the model's entry point the device does not know which operator is running."""
    error = fault(built[1], faulty.UNMAPPED, in_steps=False)
    assert faulty.NAMED in error.what


def test_a_function_of_the_c_library(built: tuple[Board, Path]) -> None:
    board, folder = built
    error = fault(folder, faulty.IN_LIBRARY)
    assert faulty.NAMED in error.what
    assert board.cpu == "host" or "  memset+0x" in error.details[0]


@pytest.mark.product(2)
@pytest.mark.parametrize("name", ["mps2_an385", "qemu_riscv32"])
def test_a_fault_outside_of_a_session(name: str, tmp_path: Path) -> None:
    trap = "int main(void);\nint main(void)\n{\n    __builtin_trap();\n}\n"
    folder = faulty.make(boards.get(name), tmp_path / "project", replace={"src/main.c": trap})
    with pytest.raises(DeviceError, match=r"^(HardFault|breakpoint) on the device") as caught:
        session.open(folder)
    assert caught.value.details == ("the emulator ended with exit code 103 without naming the place",)


@pytest.mark.slow
def test_another_exit_code_is_not_a_fault(tmp_path: Path) -> None:
    leave = '#include "platform.h"\nint main(void);\nint main(void)\n{\n    platform_exit(7);\n}\n'
    folder = faulty.make(boards.get("mps2_an385"), tmp_path / "project", replace={"src/main.c": leave})
    with pytest.raises(CommunicationError, match="ended with exit code 7"):
        session.open(folder)


_ENDS = [("mps2_an385", "idle"), ("mps2_an385", "reset"), ("qemu_riscv32", "idle"), ("qemu_riscv32", "reset")]


@pytest.mark.parametrize(("name", "at_end"), _ENDS if amount.IS_ALL else _ENDS[:1])
def test_the_end_of_a_program_without_a_debugger(name: str, at_end: str, tmp_path: Path) -> None:
    """There the breakpoint of semihosting is a fault: one, after which the board idles, or as many as it restarts."""
    board = boards.get(name)
    board = board.model_copy(update={"port": {**board.port, "at_end": at_end}})
    ended = "int main(void);\nint main(void)\n{\n    return 0;\n}\n"
    folder = faulty.make(board, tmp_path / "project", replace={"src/main.c": ended})
    emulator, firmware = board.emulator, folder / "build" / "host_driven.elf"
    assert emulator is not None and "-semihosting" not in " ".join(emulator.arguments)
    argv = [emulator.program, *(one.format(elf=firmware) for one in emulator.arguments)]
    log = tmp_path / "log"
    running = subprocess.Popen([*argv, "-d", "int", "-D", str(log)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 20
        while (faults := _faults(log)) < (3 if at_end == "reset" else 1) and time.monotonic() < deadline:
            assert running.poll() is None
            time.sleep(0.02)
        time.sleep(0.2)
        assert running.poll() is None
    finally:
        running.kill()
        running.communicate()
    assert faults >= 3 if at_end == "reset" else _faults(log) == 1


def _faults(log: Path) -> int:
    text = log.read_text(errors="replace") if log.exists() else ""
    return len(re.findall(r"^(?:Taking exception|riscv_cpu_do_interrupt)", text, re.MULTILINE))
