"""Speed of an inference on a device, and the depth of its stack."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from numpy.typing import ArrayLike

from mtool.errors import BoardError, CommunicationError, DeviceError, UsageError
from mtool.session.device import Device
from mtool.session.tensors import Array


@dataclass(frozen=True, slots=True)
class Speed:
    """One inference: the median in `unit` ("instructions" or "ns"), and the stack it used, if that is measured."""

    median: float
    unit: str
    stack_bytes: int | None


def measure_speed(
    device: Device, inputs: Mapping[str, ArrayLike], *, number: int, repeat: int, min_repeat_ms: float = 0.0
) -> Speed:
    """Run an inference, read the stack's watermark, then time inferences.

    Args:
        device: an open session.
        inputs: what to run on.
        number: inferences between two readings of the timer.
        repeat: readings, of which the median counts.
        min_repeat_ms: how long a reading should take at least: `number` grows until it does.
    """
    device.run(inputs, in_steps=False)
    stack_bytes = device.stack_bytes()
    timing = device.time(number, repeat, min_repeat_ms=min_repeat_ms, inputs=inputs)
    return Speed(timing.median, timing.unit, stack_bytes)


def run_measured(device: Device, inputs: Mapping[str, ArrayLike]) -> tuple[dict[str, Array], Speed]:
    """Run one inference and return its outputs, its time and its stack.

    Raises:
        DeviceError: the model failed. Then it is run once more, operator by operator, for the error to name one.
        CommunicationError: the device stopped answering.
    """
    try:
        outputs, timing = device.run_timed(inputs)
    except DeviceError:
        with contextlib.suppress(UsageError, BoardError, CommunicationError):
            device.reconnect()
            device.run(inputs)
        raise
    return outputs, Speed(timing.median, timing.unit, device.stack_bytes())
