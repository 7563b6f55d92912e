"""Errors for faults, from the message's registers and the manifest's operators."""

from pathlib import Path
from typing import cast

import pytest

from mtool import boards
from mtool.base.errors import DeviceError
from mtool.device.rpc.protocol import Fault, FaultKind, Machine
from mtool.device.session import Device, Readings, faults
from mtool.device.session.bench import measure_speed
from mtool.device.session.faults import explain, of_exit
from mtool.manifest import Operator
from tests.crt import firmware
from tests.device.session import projects

EXCEPTION, STACK, ASSERTION, WATCHDOG = FaultKind
NONE, CORTEX_M, RISCV, PROCESS = Machine
LOW = 0x20000000


def operator(index: int, function: str) -> Operator:
    return Operator(
        index=index,
        name=f"conv_{index}",
        function=function,
        label="conv2d 3x3",
        schedule="dsp_patch",
        origins=(f"model/conv_{index}", "model/relu"),
        shape="",
        macs=0,
    )


PROJECT = projects.project_of(boards.get("mps2_an386"), options={"stack_bytes": "4096"})
MANIFEST = firmware.MANIFEST.model_copy(
    update={"operators": (operator(0, "f"), operator(1, "g"), operator(2, "g")), "project": PROJECT}
)


def cortex_m(*, pc: int = 0x214E, cfsr: int = 0, hfsr: int = 0, mmfar: int = 0, bfar: int = 0) -> tuple[int, ...]:
    return (pc, 0x2001, 1 << 24, LOW + 64, cfsr, hfsr, mmfar, bfar, LOW)


@pytest.mark.parametrize(
    ("cfsr", "hfsr", "name", "why"),
    [
        (0x8200, 1 << 30, "HardFault", "BFAR 0x20041000, precise data access (PRECISERR)"),
        (0x8200, 0, "BusFault", "BFAR 0x20041000, precise data access (PRECISERR)"),
        (0x82, 0, "MemManage", "MMFAR 0x00000010, data access that is not allowed (DACCVIOL)"),
        (0x01, 0, "MemManage", "instruction fetch that is not allowed (IACCVIOL)"),
        (1 << 25, 0, "UsageFault", "division by zero (DIVBYZERO)"),
        (1 << 16 | 1 << 24, 0, "UsageFault", "undefined instruction (UNDEFINSTR), unaligned access (UNALIGNED)"),
        (0, 1 << 1, "HardFault", "the vector table can't be read (VECTTBL)"),
    ],
)  # fmt: skip
def test_the_status_registers_of_a_cortex_m(cfsr: int, hfsr: int, name: str, why: str) -> None:
    words = cortex_m(cfsr=cfsr, hfsr=hfsr, mmfar=0x10, bfar=0x20041000)
    error = explain(Fault(EXCEPTION, 1, CORTEX_M, words), MANIFEST, None)
    assert error.what == f'{name} in operator 1, conv2d 3x3 "model/conv_1" (schedule dsp_patch)'
    assert error.details == (f"pc 0x0000214e     {why}",)
    assert error.exit_code == 10


@pytest.mark.parametrize(
    ("cause", "name", "why"),
    [(2, "illegal instruction", ""), (5, "load access fault", "     mtval 0x00000010"), (29, "trap 29", "")],
)
def test_the_causes_of_a_riscv_core(cause: int, name: str, why: str) -> None:
    words = (0x80000100, 0x80000200, 0, LOW, cause, 0x10, LOW)
    error = explain(Fault(EXCEPTION, None, RISCV, words), MANIFEST, None)
    assert error.what == f"{name} on the device"
    assert error.details == (f"pc 0x80000100{why}",)


@pytest.mark.parametrize(("number", "name"), [(11, "SIGSEGV"), (8, "SIGFPE"), (200, "signal 200")])
def test_the_signals_of_a_process(number: int, name: str) -> None:
    error = explain(Fault(EXCEPTION, 0, PROCESS, (number, 0, 0x1234, 1, 2)), MANIFEST, None)
    assert error.what.startswith(f"{name} in operator 0, ")
    assert error.details == ("pc 0x1234" + ("     address 0x100000002" if name == "SIGSEGV" else ""),)


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (STACK, "stack overflow", "--option stack_bytes=8192"),
        (ASSERTION, "failed assertion", ""),
        (WATCHDOG, "timeout", "does it hang"),
        (77, "fault", ""),
    ],
)
def test_the_kinds(kind: int, name: str, hint: str) -> None:
    error = explain(Fault(kind, 0, NONE, ()), MANIFEST, None)
    assert error.what.startswith(f"{name} in operator 0, ")
    assert hint in error.hint and bool(hint) == bool(error.hint)


@pytest.mark.parametrize(("machine", "registers"), [(CORTEX_M, (1, 2, 3)), (RISCV, ()), (99, (1,) * 20)])
def test_registers_that_make_no_sense(machine: int, registers: tuple[int, ...]) -> None:
    error = explain(Fault(EXCEPTION, 17, machine, registers), MANIFEST, None)
    assert (error.what, error.details) == ("fault in operator 17", ())


class Symbols:
    """A firmware whose stack has 4,096 bytes from LOW on."""

    def __init__(self, firmware: Path) -> None: ...

    def __enter__(self) -> "Symbols":
        return self

    def __exit__(self, *error: object) -> None: ...

    def of(self, address: int) -> None: ...

    def address(self, symbol: str) -> int:
        return LOW + 4096


@pytest.mark.parametrize(
    ("sp", "what", "said", "hint"),
    [
        (LOW - 64000, "stack overflow", "stack: all 4,096 B used", "stack_bytes=131072; endless recursion"),
        (LOW + 96, "stack overflow", "stack 4000 of 4096 B used", "stack_bytes=8192; endless recursion"),
        (0x10, "store access fault", "sp 0x00000010, far from the stack", ""),
    ],
)
def test_a_stack_pointer_that_was_lost_is_not_an_overflow(
    sp: int, what: str, said: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "Symboliser", Symbols)
    words = (0x80000100, 0x80000200, 0, sp, 7, 0x10, LOW)
    error = explain(Fault(STACK, 1, RISCV, words), MANIFEST, Path("firmware.elf"))
    assert error.what.startswith(f"{what} in operator 1") and error.details[-1] == said
    assert hint in error.hint and bool(error.hint) == bool(hint)


@pytest.mark.parametrize("content", [b"", b"no ELF file", None])
def test_a_firmware_that_can_not_be_read(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "firmware.elf"
    if content is not None:
        path.write_bytes(content)
    error = explain(Fault(EXCEPTION, 0, CORTEX_M, cortex_m(cfsr=1)), MANIFEST, path)
    assert error.details[0].startswith("pc 0x0000214e     instruction fetch")


@pytest.mark.parametrize(
    ("name", "status", "what"),
    [
        ("mps2_an386", 103, "HardFault on the device"),
        ("mps2_an386", 100, "failed assertion on the device"),
        ("mps2_an386", 111, "exception 11 on the device"),
        ("qemu_riscv32", 105, "load access fault on the device"),
        ("qemu_riscv32", 99, None),
        ("qemu_riscv32", 132, None),
        ("qemu_riscv32", -9, None),
    ],
)
def test_the_exit_status_of_an_emulator(name: str, status: int, what: str | None) -> None:
    error = of_exit(status, board=boards.get(name))
    assert what == (None if error is None else error.what)


class Anonymous:
    """A device whose entry point overflows the stack; operator by operator, it names the operator."""

    def reconnect(self) -> None: ...

    def run(self, inputs: object, *, in_steps: bool = True) -> None:
        raise DeviceError("overflow in operator 2" if in_steps else "overflow", operator=2 if in_steps else None)


def test_a_benchmark_that_fails_names_the_operator() -> None:
    with pytest.raises(DeviceError, match="in operator 2"):
        measure_speed(cast(Device, Anonymous()), {}, Readings(repeat=1))
