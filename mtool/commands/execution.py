"""Run a model on a board, once or over samples."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mtool import manifest
from mtool.base import locks
from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.commands import dumping, module_models, project_cache
from mtool.commands.cost import Cost, cost_at
from mtool.commands.first_run import FirstRun, compare_first_run
from mtool.device.session import Device, Readings
from mtool.device.session.bench import Speed, measure_speed, run_measured
from mtool.manifest import Project
from mtool.stages import arrays
from mtool.stages import samples as sampling
from mtool.stages.building import HOST_DRIVEN, Prepared, write_project
from mtool.stages.compiling import Model
from mtool.stages.deployment import DEFAULT, HOST, Deployment, infer_all
from mtool.stages.options import Options
from mtool.stages.samples import Array, Sample

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
            padded = [sampling.padded(tensors, sample) for sample in self.outputs]
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
    fill: str = "random",
    dump: Path | None = None,
) -> Ran:
    """Compile, build and run a model; does again only what is stale.

    Args:
        path: the ONNX or TFLite model, or a project folder, whose firmware is built if it is not.
        board: a board or its name; empty: the project's, or of a model this computer.
        inputs: a .npz or .npy file, or samples (dictionaries from input name to array); default: one sample
            drawn with `seed`.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        seed: of the drawn sample.
        kinds: the firmware kinds to build: "host_driven" runs; "standalone" too, if the cost is to be told without
            the RPC server.
        fill: without `inputs`, what they are filled with: "zeros", "ones", "random", or a file (workflow.filling).
        dump: a folder for every tensor of every sample; None: none is written.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    if isinstance(inputs, Path):
        arrays.stored(inputs)  # before all the work
    sampling.check_fill(fill)
    if dump is not None:
        dumping.check(dump)
    prepared, drawn, model = built_with_inputs(
        Path(path), board, inputs, options or Options(), deployment, fill=fill, seed=seed, kinds=kinds
    )
    start = time.monotonic()
    with deployment.open(prepared) as device:
        outputs, speed = _inferences(prepared, device, drawn, deployment)
    cost = cost_at(prepared, speed)
    log.info("  %-9s %4.1f s   %s, %s", "run", time.monotonic() - start, _where(prepared.board, device), cost.speed())
    if dump is not None:
        with deployment.open(prepared) as device:
            dumping.dump(device, drawn, dump)
    first = compare_first_run(model, prepared, deployment, drawn[0], lambda: outputs[0]) if model is not None else None
    return Ran(prepared, tuple(drawn), tuple(outputs), cost, first)


def built_with_inputs(
    path: Path,
    board: str | Board,
    inputs: Path | Sequence[Sample] | None,
    options: Options,
    deployment: Deployment,
    *,
    fill: str = "random",
    seed: int = 0,
    kinds: Sequence[str] = (HOST_DRIVEN,),
) -> tuple[Prepared, Sequence[Sample], Model | None]:
    """Return a built project, the samples to run it on, and the model; None: the project is all that there is.

    The arguments are those of `run`. Samples are read before anything is built.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    known = loaded = None
    model: Model | None = None
    if path.is_dir():
        described = project_of(path, board, options, deployment)
        loaded = module_models.loaded_model(path, options.name, deployment)
        chosen = loaded or chosen_model(path, options.name)
        target, folder, tensors, name = described.board, path, chosen.inputs, "" if loaded else chosen.model
    else:
        board = board or HOST
        known = None if deployment.models else project_cache.load(path, board, options, deployment.folder)
        model = known[0] if known else deployment.compile(path, board=board, options=options)
        target, tensors, name = model.board, model.manifest.inputs, model.manifest.model
    samples: Sequence[Sample]
    if inputs is None:
        samples = sampling.filled(tensors, fill, seed=seed)
    else:
        samples = sampling.inputs_of(inputs, tensors) if isinstance(inputs, Path) else inputs
    if model is not None:
        if known is None:
            model.refuse_certain()
        folder = known[1] if known else write_project(model, deployment.folder)
    prepared = deployment.build_folder(target, folder, kinds=kinds, model=name)
    if loaded is not None:
        prepared = replace(prepared, manifest=loaded)
    if model is not None and known is None and not deployment.models:
        project_cache.store(model, folder)
    return prepared, samples, model


def project_of(folder: Path, board: str | Board, options: Options | None, deployment: Deployment) -> Project:
    """Return what a project folder says that it is, to be run as it stands.

    Raises:
        UsageError: it is no project, it is one for another board than the one that is named, or options ask for another
            compilation.
    """
    if not (folder / manifest.FILE_NAME).exists():
        raise UsageError(
            f"{folder} is a folder, and no project of mtool's",
            details=[f"{folder / manifest.FILE_NAME} is not there"],
            hint=manifest.own_hint(folder) or "give a model, .onnx or .tflite, or a folder that mtool build made",
        )
    described = manifest.load(folder).project
    if described is None:
        raise UsageError(f"{folder} holds a compiled model, not a project", hint="make one with: mtool build MODEL")
    named = board if isinstance(board, str) else board.name
    if named not in ("", described.board.name):
        raise UsageError(f"{folder} is a project for {described.board.name}, not for {named}", hint="leave --board out")
    if (options is not None and replace(options, name="") != Options()) or deployment.folder is not None:
        raise UsageError(
            f"{folder} is a project, which is run as it stands",
            details=["options that compile a model anew can't be given with it"],
            hint="give the model to change how it is compiled",
        )
    return described


def chosen_model(folder: Path, name: str) -> manifest.Manifest:
    """Return the manifest of a project's model: the only one, or that of a name.

    Raises:
        UsageError: the project has several models, and none is named, or it has none of that name.
    """
    found = manifest.load(folder, name)
    if not name and found.firmware:
        names = [one.model for one in found.firmware]
        raise UsageError(
            f"{folder} is a firmware of {len(names)} models: {', '.join(names)}",
            hint=f"name the one that is meant: --name {names[0]}",
        )
    return found


def _inferences(
    prepared: Prepared, device: Device, samples: Sequence[Sample], deployment: Deployment
) -> tuple[list[Sample], Speed]:
    """Run each sample, and measure the last inference; one of an executor on this side tells no time."""
    if prepared.manifest.executor == "graph-host":
        outputs = infer_all(device, prepared, samples, deployment)
        return outputs, measure_speed(device, samples[-1], Readings(repeat=1))
    outputs = infer_all(device, prepared, samples[:-1], deployment)
    last, speed = run_measured(device, samples[-1])
    return [*outputs, last], speed


def _where(board: Board, device: Device) -> str:
    emulated = board.emulator is not None and not device.is_at_port
    return f"{board.name} in {board.emulator.program}" if board.emulator and emulated else board.description
