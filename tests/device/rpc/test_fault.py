"""FAULT messages: parsed from their bytes, also if the channel closes before a request was sent."""

import struct

import pytest

from mtool.base.errors import CommunicationError, DeviceError
from mtool.device.rpc import protocol
from mtool.device.rpc.framing import Frame, encode
from mtool.device.rpc.protocol import Fault, FaultKind, Hello, Machine, Message, device_error, read_fault
from mtool.device.rpc.window import Window
from mtool.device.transport import Transport

SESSION = 0x1234
HELLO = Hello(protocol.VERSION, 1000, 0, 16, "", "", "")
FAULT = struct.pack("<BHB3I", FaultKind.MT_FAULT_EXCEPTION, 7, Machine.MT_MACHINE_RISCV, 1, 2, 3)


class Gone(Transport):
    """A device that has said something and is gone since."""

    name = "a device"
    bytes_per_second = 1e6
    is_lossless = True

    def __init__(self, said: bytes) -> None:
        self.said = said

    def write(self, data: bytes, *, timeout_s: float) -> None:
        raise CommunicationError("it has gone")

    def read(self, *, timeout_s: float) -> bytes:
        said, self.said = self.said, b""
        if not said:
            raise CommunicationError("it has gone")
        return said

    def close(self) -> None:
        pass


def test_a_fault_is_read() -> None:
    assert read_fault(FAULT) == Fault(FaultKind.MT_FAULT_EXCEPTION, 7, Machine.MT_MACHINE_RISCV, (1, 2, 3))
    assert read_fault(b"\2") == Fault(2, None, 255, ())


@pytest.mark.parametrize("kind", [Message.MT_FAULT, Message.MT_LOG])
def test_a_fault_reports_more_than_a_closed_channel(kind: Message) -> None:
    said = b"\0damaged\0" + encode(Frame(kind, SESSION, 0, FAULT))
    window = Window(Gone(said), SESSION, HELLO, on_fault=device_error)
    error = DeviceError if kind == Message.MT_FAULT else CommunicationError
    with pytest.raises(error, match="operator 7" if kind == Message.MT_FAULT else "it has gone"):
        window.exchange([protocol.call(1.0)])


@pytest.mark.parametrize(
    ("limit_s", "limit_ms"), [(0.0, 0), (0.0001, 1), (1.0, 1000), (10.0005, 10001), (1e12, 0xFFFFFFFF)]
)
def test_the_limit_of_a_call_is_rounded_up(limit_s: float, limit_ms: int) -> None:
    for in_steps in (True, False):
        payload = protocol.call(1.0, in_steps=in_steps, limit_s=limit_s).payload
        assert payload == struct.pack("<BI", not in_steps, limit_ms)


def test_a_fault_is_reported_by_its_kind_its_operator_and_its_registers() -> None:
    error = device_error(Fault(FaultKind.MT_FAULT_WATCHDOG, 0, Machine.MT_MACHINE_PROCESS, (11, 0xDEADBEEF)))
    assert error.what == "MT_FAULT_WATCHDOG in operator 0"
    assert error.details == ("0x0000000b 0xdeadbeef",)
    unknown = device_error(Fault(99, None, 0, ()))
    assert (unknown.what, unknown.details) == ("a fault", ())


def test_a_fault_of_the_whole_model_has_no_operator() -> None:
    assert read_fault(struct.pack("<BHB", 4, protocol.NO_OPERATOR, 0)) == Fault(4, None, 0, ())
    assert read_fault(struct.pack("<BHBI", 4, 0, 0, 5) + b"cut") == Fault(4, 0, 0, (5,))
