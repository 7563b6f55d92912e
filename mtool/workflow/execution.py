"""Run a model on a board, once or over samples."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtool import locks
from mtool.boards import Board
from mtool.session import Device, Readings
from mtool.session.bench import Speed, measure_speed, run_measured
from mtool.workflow import arrays, dynamic_outputs, project_cache
from mtool.workflow import samples as sampling
from mtool.workflow.cost import Cost, cost_at
from mtool.workflow.deployment import DEFAULT, Deployment
from mtool.workflow.first_run import FirstRun, compare_first_run
from mtool.workflow.inference import executor_of
from mtool.workflow.samples import Array, Sample
from mtool.workflow.stages import HOST_DRIVEN, Options, Prepared, build_project, write_project

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a run: the outputs of each sample, and the cost of an inference.

    `first_run` tells how the first sample compares with the reference, where the build is new.
    """

    prepared: Prepared
    inputs: tuple[Sample, ...]
    outputs: tuple[Sample, ...]
    cost: Cost
    first_run: FirstRun | None = None

    def stacked(self) -> dict[str, Array]:
        """Return each output over all samples: of the model's own shape for one sample, else with an axis before it.

        Outputs of several run-time sizes are padded with zeros to the largest.
        """
        names = self.outputs[0]
        if len(self.outputs) == 1:
            return dict(names)
        if any(sample[name].shape != value.shape for sample in self.outputs for name, value in names.items()):
            tensors = self.prepared.manifest.outputs  # of several run-time sizes
            padded = [dynamic_outputs.padded(tensors, sample) for sample in self.outputs]
            return {name: np.stack([sample[name] for sample in padded]) for name in names}
        return {name: np.stack([sample[name] for sample in self.outputs]) for name in names}


@locks.keep_locks()
def run(
    path: str | Path,
    *,
    board: str | Board,
    inputs: Path | Sequence[Sample] | None = None,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    seed: int = 0,
    kinds: Sequence[str] = (HOST_DRIVEN,),
) -> Ran:
    """Compile, build and run a model; does again only what is stale.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        inputs: a .npz or .npy file, or samples (dictionaries from input name to array); default: one sample
            drawn with `seed`.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        seed: of the drawn sample.
        kinds: the firmware kinds to build: "host_driven" runs; "standalone" too, if the cost is to be told without
            the RPC server.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    if isinstance(inputs, Path):
        arrays.stored(inputs)  # before all the work
    known = project_cache.load(Path(path), board, options or Options(), deployment.folder)
    model = known[0] if known else deployment.compile(path, board=board, options=options)
    tensors = model.manifest.inputs
    if inputs is None:
        drawn: Sequence[Sample] = sampling.seeded(tensors, count=1, seed=seed)
    else:
        drawn = sampling.inputs_of(inputs, tensors) if isinstance(inputs, Path) else inputs
    folder = known[1] if known else write_project(model, deployment.folder)
    prepared = build_project(model.board, folder, kinds=kinds)
    if known is None:
        project_cache.store(model, folder)
    start = time.monotonic()
    with deployment.open(prepared.folder) as device:
        outputs, speed = _inferences(prepared, device, drawn)
    cost = cost_at(prepared, speed)
    log.info("  %-9s %4.1f s   %s, %s", "run", time.monotonic() - start, _where(prepared.board), cost.speed())
    first = compare_first_run(model, prepared, deployment, drawn[0], lambda: outputs[0])
    return Ran(prepared, tuple(drawn), tuple(outputs), cost, first)


def _inferences(prepared: Prepared, device: Device, samples: Sequence[Sample]) -> tuple[list[Sample], Speed]:
    """Run each sample, in order, and measure the last inference; one of an executor on this side tells no time."""
    infer = executor_of(device, prepared.folder)
    if prepared.manifest.executor == "graph-host":
        return [infer(sample) for sample in samples], measure_speed(device, samples[-1], Readings(repeat=1))
    outputs = [infer(sample) for sample in samples[:-1]]
    last, speed = run_measured(device, samples[-1])
    return [*outputs, last], speed


def _where(board: Board) -> str:
    return f"{board.name} in {board.emulator.program}" if board.emulator else board.description
