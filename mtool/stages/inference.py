"""Inferences on the device of a project that is built; of many samples, on several devices where they are processes."""

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mtool.device.session import Device
from mtool.stages.building import Prepared
from mtool.stages.deployment import DEFAULT, Deployment
from mtool.stages.samples import Sample

log = logging.getLogger(__name__)

LONG_S = 2.0
"""Seconds that samples have to take yet, until more devices are started for them."""

TRIED_S = 0.2  # after so long it is known how long a sample takes


def run_samples(prepared: Prepared, inputs: Sequence[Sample], deployment: Deployment = DEFAULT) -> list[Sample]:
    """Run a built project on each sample and return the outputs in the same order."""
    with deployment.open(prepared) as device:
        return infer_all(device, prepared, inputs, deployment)


def infer_all(device: Device, prepared: Prepared, samples: Sequence[Sample], deployment: Deployment) -> list[Sample]:
    """Run samples and return the outputs in the same order.

    Where that takes longer than `LONG_S`, the device is a process or an emulator, and nothing goes from one sample to
    the next, as many are started as this process may use processors. Each serves samples until there are none.

    Args:
        device: an open session.
        prepared: the project.
        samples: in order; the states of a model go from each to the next.
        deployment: opens more devices of the project.

    Raises:
        MtoolError: what went wrong with a sample; of several, the first one's.
    """
    infer = executor_of(device, prepared.folder)
    can_part = device.is_process and device.manifest.executor != "graph-host" and not device.manifest.states
    start = time.monotonic()
    outputs: list[Sample] = []
    for sample in samples:
        outputs.append(infer(sample))
        passed = time.monotonic() - start
        if can_part and passed > TRIED_S and passed / len(outputs) * (len(samples) - len(outputs)) > LONG_S:
            break
    rest = samples[len(outputs) :]
    if rest:
        shared = _Shared(rest)
        others = [_Other(lambda: deployment.open(prepared), shared) for _ in range(min(processors(), len(rest)) - 1)]
        log.info("  %d samples are left for %d devices at a time", len(rest), len(others) + 1)
        try:
            shared.serve(infer)
        finally:
            shared.is_over = True
            for other in others:
                other.join()
        outputs += shared.results()
    return outputs


class _Shared:
    """Samples that several devices take one by one, and their outputs."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        self._next = itertools.count()  # whose `next` is one step for all threads
        self._outputs: dict[int, Sample] = {}
        self._failed: dict[int, BaseException] = {}
        self.is_over = False

    def serve(self, infer: Callable[[Sample], Sample]) -> None:
        """Run samples until there are none, or one has failed."""
        while not self.is_over and (number := next(self._next)) < len(self._samples):
            try:
                self._outputs[number] = infer(self._samples[number])
            except Exception as failed:
                self._failed[number] = failed
                self.is_over = True

    def results(self) -> list[Sample]:
        """Return the outputs, or raise what the first sample that failed has failed with."""
        if self._failed:
            raise self._failed[min(self._failed)]
        return [self._outputs[number] for number in range(len(self._samples))]


class _Other(threading.Thread):
    """A device that serves samples beside the first; if it does not open, the others do its work."""

    def __init__(self, open: Callable[[], Device], shared: _Shared) -> None:
        super().__init__(daemon=True)
        self._open = open
        self._shared = shared
        self.start()

    def run(self) -> None:
        """Open the device and serve."""
        try:
            device = self._open()
        except Exception as failed:
            log.info("no further device: %s", failed)
            return
        with device:
            self._shared.serve(device.run)


def processors() -> int:
    """Return on how many processors this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def executor_of(device: Device, folder: Path) -> Callable[[Sample], Sample]:
    """Return what runs an inference: the device by itself, or the graph executor on this side."""
    return device.graph_executor(folder).run if device.manifest.executor == "graph-host" else device.run
