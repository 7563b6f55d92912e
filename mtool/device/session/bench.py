"""Measure the speed of an inference on a device, and its stack."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from numpy.typing import ArrayLike

from mtool.base.errors import BoardError, CommunicationError, DeviceError, UsageError
from mtool.device.session.device import Device
from mtool.device.session.tensors import Array
from mtool.device.session.timing import Readings


@dataclass(frozen=True, slots=True)
class Speed:
    """One inference: the median in `unit` ("instructions" or "ns"), and the stack that it used, if measured."""

    median: float
    unit: str
    stack_bytes: int | None


def measure_speed(device: Device, inputs: Mapping[str, ArrayLike], readings: Readings) -> Speed:
    """Run an inference, read the stack's watermark, then time inferences.

    Args:
        device: an open session.
        inputs: the inputs of the inference.
        readings: how often the timer is read.

    Raises:
        DeviceError: as for `run_measured`.
        CommunicationError: the device stopped answering.
    """
    with _naming_operator(device, inputs):
        device.run(inputs, in_steps=False)
        stack_bytes = device.stack_bytes()
        timing = device.time(**asdict(readings), inputs=inputs)
    return Speed(timing.median, timing.unit, stack_bytes)


def run_measured(device: Device, inputs: Mapping[str, ArrayLike]) -> tuple[dict[str, Array], Speed]:
    """Run one inference and return its outputs, its time and its stack.

    If the caller limits an inference's seconds, another one is timed: the watchdog can't end a timed inference.

    Raises:
        DeviceError: the model failed. It is then run again, operator by operator, so that the error names one.
        CommunicationError: the device stopped answering.
    """
    if device.is_limited:
        outputs = device.run(inputs)
        return outputs, measure_speed(device, inputs, Readings(repeat=1))
    with _naming_operator(device, inputs):
        outputs, timing = device.run_timed(inputs)
    return outputs, Speed(timing.median, timing.unit, device.stack_bytes())


@contextlib.contextmanager
def _naming_operator(device: Device, inputs: Mapping[str, ArrayLike]) -> Iterator[None]:
    """Run an inference that failed in the block again, operator by operator, if its error does not name one."""
    try:
        yield
    except DeviceError as failed:
        if failed.operator is None:
            with contextlib.suppress(UsageError, BoardError, CommunicationError):
                device.reconnect()
                device.run(inputs)
        raise
