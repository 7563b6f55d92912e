"""Explain a device's fault: the operator, the line of C, the stack."""

import functools
import signal
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError

from mtool.base import resources
from mtool.base.errors import DeviceError
from mtool.base.escaping import short_name
from mtool.boards import Board
from mtool.device.build.symbolizer import SourceLocation, Symboliser
from mtool.device.rpc.protocol import Fault, FaultKind, Machine
from mtool.manifest import Manifest, Operator, Project

_MMARVALID = 1 << 7
_BFARVALID = 1 << 15
_INTERRUPT = 1 << 31
_WITH_ADDRESS = {1, 4, 5, 6, 7}


@functools.cache
def _tables() -> Any:
    """Return the tables of faults.yaml."""
    return resources.read_yaml(Path(__file__).with_suffix(".yaml"))


@dataclass(frozen=True, slots=True)
class Reading:
    """The meaning of the registers; an address of 0 is unknown.

    Attributes:
        name: the exception's name; "" if there was none.
        why: its cause and the accessed address; "": unknown.
        pc, lr: addresses of the program; in a process, relative to the start of its image.
        sp: the stack pointer.
        stack_low: the lowest address of the stack.
        digits: the number of hexadecimal digits of an address.
    """

    name: str = ""
    why: str = ""
    pc: int = 0
    lr: int = 0
    sp: int = 0
    stack_low: int = 0
    digits: int = 8


def read(fault: Fault) -> Reading:
    """Return the meaning of a fault's registers; nothing for an unknown machine or too few registers."""
    readers = {
        Machine.MT_MACHINE_CORTEX_M: (9, _cortex_m),
        Machine.MT_MACHINE_RISCV: (7, _riscv),
        Machine.MT_MACHINE_PROCESS: (5, _process),
    }
    count, reader = next((how for machine, how in readers.items() if machine == fault.machine), (0, None))
    return Reading() if reader is None or len(fault.registers) < count else reader(fault.registers)


def _cortex_m(registers: Sequence[int]) -> Reading:
    pc, lr, _, sp, cfsr, hfsr, mmfar, bfar, low = registers[:9]
    kinds = ((0xFF, "MemManage"), (0xFF00, "BusFault"), (0xFFFF0000, "UsageFault"))
    name = "HardFault" if hfsr else next((kind for mask, kind in kinds if cfsr & mask), "")
    valid = ((_MMARVALID, "MMFAR", mmfar), (_BFARVALID, "BFAR", bfar))
    facts = [f"{register} 0x{value:08x}" for bit, register, value in valid if cfsr & bit]
    for word, bits in ((cfsr, _tables()["cfsr"]), (hfsr, _tables()["hfsr"])):
        facts += [f"{meaning} ({bit})" for number, (bit, meaning) in bits.items() if word >> number & 1]
    return Reading(name, ", ".join(facts), pc, lr & ~1, sp, low)


def _riscv(registers: Sequence[int]) -> Reading:
    mepc, ra, _, sp, mcause, mtval, low = registers[:7]
    if mcause & _INTERRUPT or not mepc:
        return Reading(pc=mepc, lr=ra, sp=sp, stack_low=low)
    name = _tables()["causes"].get(mcause, f"trap {mcause}")
    return Reading(name, f"mtval 0x{mtval:08x}" if mcause in _WITH_ADDRESS else "", mepc, ra, sp, low)


def _process(registers: Sequence[int]) -> Reading:
    number, pc_high, pc_low, high, low = registers[:5]
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    has_address = name in ("SIGSEGV", "SIGBUS")
    return Reading(name, f"address 0x{high << 32 | low:x}" if has_address else "", pc_high << 32 | pc_low, digits=0)


_KINDS = {
    FaultKind.MT_FAULT_STACK: "stack overflow",
    FaultKind.MT_FAULT_ASSERTION: "failed assertion",
    FaultKind.MT_FAULT_WATCHDOG: "timeout",
}
_EXIT = 100  # without an operating system, firmware exits with this plus the exception's number
_EXIT_MOST = 31
_STACK_TOP = "mt_stack_top"
_STACK_OPTION = "stack_bytes"
_MOST_STACKS = 256  # further below the stack than this multiple of its size, the pointer is corrupt, not overflowed


def explain(fault: Fault, manifest: Manifest, firmware: Path | None) -> DeviceError:
    """Return the error that explains a fault.

    Args:
        fault: the reported fault.
        manifest: the manifest of its project.
        firmware: the file that it runs, with symbols, if it is here.
    """
    reading = read(fault)
    pc = lr = None
    stack = None
    if firmware is not None:
        try:
            with Symboliser(firmware) as symbols:
                start = symbols.image_start() if fault.machine == Machine.MT_MACHINE_PROCESS else 0
                pc = symbols.of(reading.pc + start) if reading.pc else None
                lr = symbols.of(reading.lr) if reading.lr else None
                stack = _stack(reading, symbols)
        except (OSError, ELFError):
            pass  # it was rebuilt or removed meanwhile: show the numbers alone
    where = _where(fault.operator, manifest, [location for location in (pc, lr) if location is not None])
    details = _lines(fault, reading, pc, lr, {operator.function for operator in manifest.operators})
    if stack is not None and stack[0] > _MOST_STACKS * stack[1]:
        details.append(f"sp 0x{reading.sp:0{reading.digits}x}, far from the stack")
        return DeviceError(f"{reading.name or 'fault'}{where}", details=details, operator=fault.operator)
    if stack is not None:
        is_full = stack[0] >= stack[1]
        details.append(f"stack: all {stack[1]:,} B used" if is_full else f"stack {stack[0]} of {stack[1]} B used")
    used_bytes = stack[0] if stack is not None else 0
    hint = _hint(fault, manifest.project, used_bytes)
    what = next((name for kind, name in _KINDS.items() if kind == fault.kind), "") or reading.name or "fault"
    return DeviceError(f"{what}{where}", details=details, hint=hint, operator=fault.operator)


def region_of(number: int, manifest: Manifest) -> str:
    """Return a readable name of a region, by its operator's number or key, with the model's nodes; "": none."""
    operators = (operator for operator in manifest.operators if operator.index == number and operator.backend)
    region = next(operators, None) or next((region for region in manifest.inner_regions if region.key == number), None)
    if region is None:
        return ""
    nodes = [f'"{short_name(origin)}"' for origin in region.origins[:5]]
    return f"{region.name} ({', '.join([*nodes, *['…'] * (len(region.origins) > 5)])})"


def of_exit(status: int, *, board: Board) -> DeviceError | None:
    """Return the error for the exit status of a board's emulator, or None if it is not a fault's.

    Firmware without an operating system exits with 100 plus the exception's number. It also does so after FAULT: this
    is for faults without a session to report them in.
    """
    number = status - _EXIT
    if not 0 <= number <= _EXIT_MOST:
        return None
    names = _tables()["exceptions" if board.cpu.startswith("cortex-m") else "causes"]
    return DeviceError(
        f"{names.get(number, f'exception {number}')} on the device",
        details=[f"the emulator ended with exit code {status} without naming the place"],
    )


def _where(number: int | None, manifest: Manifest, symbols: list[SourceLocation]) -> str:
    """Describe the operator by its number, or else by the function of the fault or its caller."""
    running = [operator for operator in manifest.operators if operator.index == number]
    for location in symbols:
        running = running or [operator for operator in manifest.operators if operator.function == _base_name(location)]
    if len(running) == 1:
        return f" in {_described(running[0])}"
    if running:
        return f" in one of the operators {', '.join(str(operator.index) for operator in running)}"
    if number is not None:
        return f" in operator {number}"
    return f" in {symbols[0].function}" if symbols else " on the device"


def _base_name(location: SourceLocation) -> str:
    """Return the whole function for a part that the compiler split off (`name.cold`, `name.part.0`)."""
    return location.function.partition(".")[0]


def _described(operator: Operator) -> str:
    origin = operator.origins[0] if operator.origins else operator.name
    schedule = f" (schedule {operator.schedule})" if operator.schedule else ""  # a module may not have it
    return f'operator {operator.index}, {operator.label} "{short_name(origin)}"{schedule}'


def _lines(
    fault: Fault, reading: Reading, pc: SourceLocation | None, lr: SourceLocation | None, operators: Container[str]
) -> list[str]:
    width = reading.digits
    lines = []
    if reading.pc:
        at = "  ".join([f"pc 0x{reading.pc:0{width}x}", *([str(pc)] if pc else [])])
        lines.append("     ".join([at, *([reading.why] if reading.why else [])]))
    elif reading.why:
        lines.append(reading.why)
    if lr is not None and (pc is None or _base_name(pc) not in operators):
        lines.append(f"lr 0x{reading.lr:0{width}x}  {lr}")
    if fault.kind == FaultKind.MT_FAULT_STACK and fault.machine == Machine.MT_MACHINE_NONE:
        lines.append("its lowest bytes were overwritten")
    return lines


def _stack(reading: Reading, symbols: Symboliser) -> tuple[int, int] | None:
    """Return the used and the total bytes of the stack, or None if unknown."""
    if not reading.stack_low or not reading.sp:
        return None
    top = symbols.address(_STACK_TOP) or symbols.end_of_object(reading.stack_low)
    if top is None or not reading.stack_low < top or reading.sp > top:
        return None
    return top - reading.sp, top - reading.stack_low


def _hint(fault: Fault, project: Project | None, used_bytes: int) -> str:
    if fault.kind == FaultKind.MT_FAULT_WATCHDOG:
        return "does it hang on this device, or does it need more time? set --timeout SECONDS, in Python timeout_s"
    if fault.kind == FaultKind.MT_FAULT_STACK and project is not None and _STACK_OPTION in project.options:
        more = 2 * int(project.options[_STACK_OPTION])
        while more <= used_bytes:
            more *= 2
        return f"try a larger stack: --option {_STACK_OPTION}={more}; endless recursion overflows any stack"
    return ""
