"""Drive a device: open a session with the firmware of a built project. Only reads `mtool.json`."""

from mtool.device.session.device import Device, DeviceInfo
from mtool.device.session.graph import GraphExecutor
from mtool.device.session.layers import tensor
from mtool.device.session.opening import RTT, attached, build_at, check, open, open_transport
from mtool.device.session.timing import Readings, Timing

__all__ = [
    "RTT",
    "Device",
    "DeviceInfo",
    "GraphExecutor",
    "Readings",
    "Timing",
    "attached",
    "build_at",
    "check",
    "open",
    "open_transport",
    "tensor",
]
