"""A run of the whole model with one plan: its outputs, and how long it takes."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from mtool.base.errors import CommunicationError, DeviceError
from mtool.compiler.tuned.record import Unit
from mtool.device.session import Device
from mtool.stages import samples as sampling
from mtool.stages.building import Prepared
from mtool.stages.samples import Sample

log = logging.getLogger(__name__)

_REPEATS = 25  # readings of a plan: 1% is told from 3% of noise


@dataclass(frozen=True, slots=True)
class WholeRun:
    """What one plan computes of random inputs, and the times of one inference each."""

    outputs: tuple[Sample, ...]
    times: tuple[float, ...]


Runs = Callable[[Prepared, Unit], WholeRun]
"""Brings a built model onto a board and runs it there; the unit is that of the times."""


def run_on(open_device: Callable[[Prepared], Device]) -> Runs:
    """Return what runs a model on a device: once more, where it fails, as a board may be disturbed or unplugged.

    Args:
        open_device: brings the firmware onto the device, and opens a session.
    """

    def run(prepared: Prepared, unit: Unit) -> WholeRun:
        try:
            return once(prepared, unit)
        except (CommunicationError, DeviceError) as failed:
            log.warning("the whole model is run once more: %s", failed.what)
            return once(prepared, unit)

    def once(prepared: Prepared, unit: Unit) -> WholeRun:
        sample = sampling.seeded(prepared.manifest.inputs, count=1, seed=0)
        with open_device(prepared) as device:
            outputs = tuple(device.run(one) for one in sample)
            count = 1 if device.unit == "instructions" else _REPEATS
            timing = device.time(1, count, min_repeat_ms=0 if count == 1 else 5, inputs=sample[0])
        if unit == "cycles":
            from mtool.tuning.bench import whole_cycles  # with the compiler, which a worker's boards do without

        times = (whole_cycles(prepared),) if unit == "cycles" else tuple(timing.runs)
        return WholeRun(outputs, times)

    return run
