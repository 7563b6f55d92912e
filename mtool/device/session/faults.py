"""Explanation of a device's fault: the operator, the line of C, the stack."""

from collections.abc import Container
from pathlib import Path

from elftools.common.exceptions import ELFError

from mtool.base.errors import DeviceError
from mtool.base.escaping import short_name
from mtool.boards import Board
from mtool.device.build.symbolizer import SourceLocation, Symboliser
from mtool.device.rpc.fault import Fault, FaultKind, Machine
from mtool.device.session import registers
from mtool.device.session.registers import Reading
from mtool.manifest import Manifest, Operator, Project

_EXIT = 100  # a template without an operating system ends with this plus the exception's number
_EXIT_MOST = 31
_STACK_TOP = "mt_stack_top"
_STACK_OPTION = "stack_bytes"
_MOST_STACKS = 256  # whoever is further below than so many stacks has not overflowed one, but lost the pointer to it


def explain(fault: Fault, manifest: Manifest, firmware: Path | None) -> DeviceError:
    """Return the error that explains a fault.

    Args:
        fault: what the device reported.
        manifest: of its project.
        firmware: the file that it runs, with its symbols, if that is here.
    """
    reading = registers.read(fault)
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
            pass  # it has been built anew or removed meanwhile: the numbers have to do
    where = _where(fault.operator, manifest, [location for location in (pc, lr) if location is not None])
    details = _lines(fault, reading, pc, lr, {operator.function for operator in manifest.operators})
    if stack is not None and stack[0] > _MOST_STACKS * stack[1]:
        details.append(f"sp 0x{reading.sp:0{reading.digits}x}, far from the stack")
        return DeviceError(f"{reading.name or 'fault'}{where}", details=details, operator=fault.operator)
    if stack is not None:
        details.append(f"stack {stack[0]} of {stack[1]} B used")
    used_bytes = stack[0] if stack is not None else 0
    hint = _hint(fault, manifest.project, used_bytes)
    return DeviceError(f"{_what(fault, reading)}{where}", details=details, hint=hint, operator=fault.operator)


def region_of(number: int, manifest: Manifest) -> str:
    """Return how people call a region by its operator's number or its key: the model's nodes too; "": there is none."""
    own = (one for one in manifest.operators if one.index == number and one.backend)
    region = next(own, None) or next((one for one in manifest.inner_regions if one.key == number), None)
    if region is None:
        return ""
    nodes = [f'"{short_name(origin)}"' for origin in region.origins[:5]]
    return f"{region.name} ({', '.join([*nodes, *['…'] * (len(region.origins) > 5)])})"


def of_exit(status: int, *, board: Board) -> DeviceError | None:
    """Return the error that the exit status of a board's emulator stands for, or None if it stands for no fault.

    A firmware without an operating system ends with 100 plus the exception's number. So it does after FAULT, too: this
    is for when there was no session to report it in.
    """
    number = status - _EXIT
    if not 0 <= number <= _EXIT_MOST:
        return None
    known = registers.EXCEPTIONS if board.cpu.startswith("cortex-m") else registers.CAUSES
    return DeviceError(
        f"{known.get(number, f'exception {number}')} on the device",
        details=[f"the emulator ended with exit code {status}, and no word of where"],
    )


def _what(fault: Fault, reading: Reading) -> str:
    names = {
        FaultKind.MT_FAULT_STACK: "stack overflow",
        FaultKind.MT_FAULT_ASSERTION: "failed assertion",
        FaultKind.MT_FAULT_WATCHDOG: "timeout",
    }
    known = next((name for kind, name in names.items() if kind == fault.kind), "")
    return known or reading.name or "fault"


def _where(number: int | None, manifest: Manifest, symbols: list[SourceLocation]) -> str:
    """Name the operator by its number, or else by the function that the fault, or its caller, is in."""
    running = [operator for operator in manifest.operators if operator.index == number]
    for location in symbols:
        running = running or [operator for operator in manifest.operators if operator.function == _whole(location)]
    if len(running) == 1:
        return f" in {_described(running[0])}"
    if running:
        return f" in one of the operators {', '.join(str(operator.index) for operator in running)}"
    if number is not None:
        return f" in operator {number}"
    return f" in {symbols[0].function}" if symbols else " on the device"


def _whole(location: SourceLocation) -> str:
    """Return the function that the compiler may have cut a part off (`name.cold`, `name.part.0`)."""
    return location.function.partition(".")[0]


def _described(operator: Operator) -> str:
    origin = operator.origins[0] if operator.origins else operator.name
    schedule = f" (schedule {operator.schedule})" if operator.schedule else ""  # a module does not always tell
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
    if lr is not None and (pc is None or _whole(pc) not in operators):
        lines.append(f"lr 0x{reading.lr:0{width}x}  {lr}")
    if fault.kind == FaultKind.MT_FAULT_STACK and fault.machine == Machine.MT_MACHINE_NONE:
        lines.append("its lowest bytes were overwritten")
    return lines


def _stack(reading: Reading, symbols: Symboliser) -> tuple[int, int] | None:
    """Return how much of the stack was in use and how large it is, in bytes, or None if that is not known."""
    if not reading.stack_low or not reading.sp:
        return None
    top = symbols.address(_STACK_TOP) or symbols.end_of_object(reading.stack_low)
    if top is None or not reading.stack_low < top or reading.sp > top:
        return None
    return top - reading.sp, top - reading.stack_low


def _hint(fault: Fault, project: Project | None, used_bytes: int) -> str:
    if fault.kind == FaultKind.MT_FAULT_WATCHDOG:
        return "does it hang on this device, or does it need longer? --timeout SECONDS, in Python timeout_s"
    if fault.kind == FaultKind.MT_FAULT_STACK and project is not None and _STACK_OPTION in project.options:
        more = 2 * int(project.options[_STACK_OPTION])
        while more <= used_bytes:
            more *= 2
        return f"try a larger stack: --option {_STACK_OPTION}={more}"
    return ""
