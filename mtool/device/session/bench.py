"""Speed of an inference on a device, and the depth of its stack."""

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from numpy.typing import ArrayLike

from mtool.base.errors import BoardError, CommunicationError, DeviceError, UsageError
from mtool.device.session.device import Device
from mtool.device.session.tensors import Array
from mtool.device.session.timing import Readings


@dataclass(frozen=True, slots=True)
class Speed:
    """One inference: the median in `unit` ("instructions" or "ns"), and the stack it used, if that is measured."""

    median: float
    unit: str
    stack_bytes: int | None


def measure_speed(device: Device, inputs: Mapping[str, ArrayLike], readings: Readings) -> Speed:
    """Run an inference, read the stack's watermark, then time inferences.

    Args:
        device: an open session.
        inputs: what to run on.
        readings: how often the timer is read.
    """
    device.run(inputs, in_steps=False)
    stack_bytes = device.stack_bytes()
    timing = device.time(**asdict(readings), inputs=inputs)
    return Speed(timing.median, timing.unit, stack_bytes)


def run_measured(device: Device, inputs: Mapping[str, ArrayLike]) -> tuple[dict[str, Array], Speed]:
    """Run one inference and return its outputs, its time and its stack.

    Where the caller limits an inference's seconds, another is timed: the watchdog ends none that the timer runs for.

    Raises:
        DeviceError: the model failed. Then it is run once more, operator by operator, for the error to name one.
        CommunicationError: the device stopped answering.
    """
    if device.is_limited:
        outputs = device.run(inputs)
        return outputs, measure_speed(device, inputs, Readings(repeat=1))
    try:
        outputs, timing = device.run_timed(inputs)
    except DeviceError:
        with contextlib.suppress(UsageError, BoardError, CommunicationError):
            device.reconnect()
            device.run(inputs)
        raise
    return outputs, Speed(timing.median, timing.unit, device.stack_bytes())
