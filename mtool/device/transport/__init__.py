"""Transports: bytes to and from a device, in order, perhaps lost or damaged."""

from mtool.device.transport.base import Recorder, Transport
from mtool.device.transport.emulator import open_emulator
from mtool.device.transport.opening import control_block, open_port
from mtool.device.transport.process import ProcessTransport
from mtool.device.transport.serial import SerialTransport
from mtool.device.transport.through import WithFlash
from mtool.device.transport.unicorn import UnicornTransport

__all__ = [
    "ProcessTransport",
    "Recorder",
    "SerialTransport",
    "Transport",
    "UnicornTransport",
    "WithFlash",
    "control_block",
    "open_emulator",
    "open_port",
]
