"""Transports: bytes to and from a device, in order, possibly lost or damaged."""

from mtool.device.transport.base import Recorder as Recorder
from mtool.device.transport.base import Transport as Transport
from mtool.device.transport.emulator import open_emulator as open_emulator
from mtool.device.transport.opening import open_port as open_port
from mtool.device.transport.process import ProcessTransport as ProcessTransport
from mtool.device.transport.serial import SerialTransport as SerialTransport
from mtool.device.transport.through import WithFlash as WithFlash
from mtool.device.transport.unicorn import UnicornTransport as UnicornTransport
