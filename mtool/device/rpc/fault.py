"""FAULT: what a device says when its processor stopped. crt/PROTOCOL.md has the bytes."""

import struct
from dataclasses import dataclass
from enum import IntEnum

from mtool.base.errors import DeviceError
from mtool.device.rpc.protocol import NO_OPERATOR

_SURVIVED = 0x80  # MT_FAULT_SURVIVED
_HEAD = struct.Struct("<BHB")


class FaultKind(IntEnum):
    """What happened, as in crt/include/mt_fault.h."""

    MT_FAULT_EXCEPTION = 1
    MT_FAULT_STACK = 2
    MT_FAULT_ASSERTION = 3
    MT_FAULT_WATCHDOG = 4


class Machine(IntEnum):
    """Whose registers stand in the message, as in crt/include/mt_fault.h."""

    MT_MACHINE_NONE = 0
    MT_MACHINE_CORTEX_M = 1
    MT_MACHINE_RISCV = 2
    MT_MACHINE_PROCESS = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault as the device reported it.

    Attributes:
        kind: what happened; a number that this mtool does not know stays a number.
        operator: the operator that was running, or None.
        machine: whose registers these are.
        registers: in the order of the machine's list.
        survived: the fault has stopped the model alone, and the firmware goes on.
    """

    kind: int
    operator: int | None
    machine: int
    registers: tuple[int, ...]
    survived: bool = False


def read_fault(payload: bytes) -> Fault:
    """Read a FAULT; what is missing of one that is too short is taken as unknown."""
    kind, operator, machine = _HEAD.unpack_from(payload.ljust(_HEAD.size, b"\xff"))
    rest = payload[_HEAD.size :]
    registers = struct.unpack_from(f"<{len(rest) // 4}I", rest)
    survived = bool(kind & _SURVIVED)
    return Fault(kind & ~_SURVIVED, None if operator == NO_OPERATOR else operator, machine, registers, survived)


def device_error(fault: Fault) -> DeviceError:
    """Return the error that tells a fault by the numbers alone."""
    known = [kind.name for kind in FaultKind if kind == fault.kind]
    where = "" if fault.operator is None else f" in operator {fault.operator}"
    registers = " ".join(f"0x{register:08x}" for register in fault.registers)
    return DeviceError(
        f"{known[0] if known else 'a fault'}{where}", details=[registers] if registers else [], operator=fault.operator
    )
