"""Inferences on the device of a project that is built."""

from collections.abc import Callable, Sequence
from pathlib import Path

from mtool.session import Device
from mtool.workflow.deployment import DEFAULT, Deployment
from mtool.workflow.samples import Sample
from mtool.workflow.stages import Prepared


def run_samples(prepared: Prepared, inputs: Sequence[Sample], deployment: Deployment = DEFAULT) -> list[Sample]:
    """Run a built project on each sample and return the outputs in the same order."""
    with deployment.open(prepared) as device:
        infer = executor_of(device, prepared.folder)
        return [infer(sample) for sample in inputs]


def executor_of(device: Device, folder: Path) -> Callable[[Sample], Sample]:
    """Return what runs an inference: the device by itself, or the graph executor on this side."""
    return device.graph_executor(folder).run if device.manifest.executor == "graph-host" else device.run
