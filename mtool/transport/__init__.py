"""Transports: bytes to and from a device, in order, perhaps lost or damaged."""

from mtool.transport.base import Transport
from mtool.transport.emulator import open_emulator, open_emulator_rtt
from mtool.transport.opening import control_block, open_port
from mtool.transport.process import ProcessTransport
from mtool.transport.recorder import Recorder
from mtool.transport.serial import SerialTransport
from mtool.transport.unicorn import UnicornTransport

__all__ = [
    "ProcessTransport",
    "Recorder",
    "SerialTransport",
    "Transport",
    "UnicornTransport",
    "control_block",
    "open_emulator",
    "open_emulator_rtt",
    "open_port",
]
