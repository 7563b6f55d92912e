"""Run a model on a board, once or over samples."""

import contextlib
import io
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mtool import manifest
from mtool.base import checked, files, filetree, locks
from mtool.base.errors import MtoolError, UsageError
from mtool.base.escaping import file_name
from mtool.base.filetree import FileTree
from mtool.base.identifiers import model_name
from mtool.boards import Board
from mtool.commands.cost import Cost, FirstRun, compare_first_run, cost_at
from mtool.compiler.ir.graph import Move, undone
from mtool.device.build.build import BUILD_FOLDER
from mtool.device.session import Device, Readings
from mtool.device.session.bench import measure_speed, run_measured
from mtool.device.session.layers import intermediates
from mtool.manifest import Project
from mtool.manifest.link_key import OPTION, of_option
from mtool.stages import arrays
from mtool.stages import samples as sampling
from mtool.stages.building import HOST_DRIVEN, BuiltProject, FirmwareKind
from mtool.stages.compile_cache import cache_key
from mtool.stages.compiling import CompiledModel, default_folder
from mtool.stages.deployment import DEFAULT, HOST, Deployment, infer_all
from mtool.stages.job import Job, check_board, chosen_model, loaded_model, project_in
from mtool.stages.options import Options, tuning_results_of
from mtool.stages.samples import Array, Sample

# The project folder as a cache: it is reused if the model, the options, mtool and the folder have not changed.
#
# Hashes of its inputs and of its contents are stored with its build. If both still match, nothing is compiled or
# rendered again: the project describes itself.


_STAMP = "compiled.key"
log = logging.getLogger(__name__)


def _load_cached(job: Job) -> tuple[CompiledModel, Path] | None:
    """Return the compiled model in a project folder, and the folder; None: it is missing or out of date."""
    path, options = job.path, job.options
    if options.backends:  # a backend's own files and compilers may have changed
        return None
    try:
        target = job.target
        project = job.deployment.folder or default_folder(model_name(options.name or path.stem), target)
        stamp = project / BUILD_FOLDER / _STAMP
        if not stamp.is_file() or filetree.interrupted(project):
            return None
        if stamp.read_text() != _key(path, target, options, project):
            return None
        described = manifest.load(project)
        if described.project is None:
            return None
        paths = sorted((project / described.project.model).glob(f"{described.model}*"))
        files = FileTree({file.name: file.read_bytes() for file in paths if file.is_file()})
        filetree.log_left(project)
        tuning_results_of(target, options)  # for its note, which compiling would log
        return CompiledModel(path, target, options, files, described.model_copy(update={"project": None})), project
    except (MtoolError, OSError, UnicodeError) as stale:  # compiling again reports what is wrong
        log.debug("%s is out of date: %s", path.name, stale)
        return None


def _store_cached(model: CompiledModel, folder: Path) -> None:
    """Store the hashes of a project's inputs and contents."""
    with contextlib.suppress(MtoolError, OSError):  # then it is compiled again next time
        key = _key(model.path, model.board, model.options, folder)
        files.write(folder / BUILD_FOLDER / _STAMP, key.encode())


def _key(path: Path, board: Board, options: Options, folder: Path) -> str:
    """Return the hashes of a project's inputs and of its contents."""
    key = cache_key(path, board, options, tuning_results_of(board, options, warns=False))
    return f"{key} {filetree.digest_of(folder, skip=(BUILD_FOLDER,))}"


# Every tensor of an inference as a .npy file, named as in the model: `--dump DIR`.


INDEX = "index.json"
"""The file with each tensor's name, type, shape and operator."""
_Computed = tuple[str, dict[str, object], Array, tuple[Move, ...]]  # a tensor's name, facts about it, values, moves


def write_dump(device: Device, samples: Sequence[Sample], folder: Path) -> None:
    """Run samples operator by operator and write every tensor; for several samples to folders 0, 1, ...

    A tensor is written in the model's layout as far as possible: "moves" in the index are the layout changes that could
    not be undone. An earlier dump in the folder is replaced.

    Args:
        device: an open session.
        samples: the inputs, in order.
        folder: the folder to write to.

    Raises:
        UsageError: the folder has other contents, or can't be written to.
        DeviceError: an operator failed.
    """
    files: dict[str, bytes] = {}
    for number, sample in enumerate(samples):
        under = f"{number}/" if len(samples) > 1 else ""
        files |= {f"{under}{name}": data for name, data in _files(device, sample).items()}
    if len(samples) > 1:
        files[INDEX] = (json.dumps({"samples": len(samples)}) + "\n").encode()
    filetree.write(FileTree(files), folder)


def check_dump(folder: Path) -> None:
    """Check that a dump can be written to a folder, which has to be new, empty or an earlier dump.

    Raises:
        UsageError: it has other contents, or can't be written to.
    """
    if folder.is_dir() and not (folder / INDEX).is_file() and any(folder.iterdir()):
        raise UsageError(f"--dump {folder}: the folder contains something other than a dump", hint="give a new folder")
    filetree.check_folder(folder)


def _files(device: Device, sample: Sample) -> dict[str, bytes]:
    rows: list[dict[str, object]] = []
    files: dict[str, bytes] = {}

    def add(tensor: str, array: Array, **facts: object) -> None:
        shown = file_name(tensor).replace(":", "_")  # a colon has a special meaning on Windows
        lowercase = {path.lower() for path in files}
        path = next(
            path
            for path in (f"{shown}.npy", *(f"{shown}~{number}.npy" for number in range(2, len(files) + 3)))
            if path.lower() not in lowercase
        )
        data = io.BytesIO()
        np.save(data, array, allow_pickle=False)
        files[path] = data.getvalue()
        rows.append({"file": path, "tensor": tensor, "dtype": str(array.dtype), "shape": list(array.shape), **facts})

    for name, array in sample.items():
        add(name, np.asarray(array), kind="input")
    for name, facts, array, moves in _computed(device, sample):
        plain, remaining = undone(array, moves)
        add(name, plain, **facts, moves=[[move, list(numbers)] for move, numbers in remaining])
    files[INDEX] = (json.dumps({"tensors": rows}, indent=1) + "\n").encode()
    return files


def _computed(device: Device, sample: Sample) -> list[_Computed]:
    """Return the tensors that operators wrote, with the parts of split ones joined: name, facts, array, moves."""
    parts: dict[str, list[_Computed]] = {}
    for operator, operand, array in intermediates(device, sample):
        source = operand.source
        if operator.whole and source is None:
            continue  # padding between rows
        name = source.tensor if source else operand.value
        facts: dict[str, object] = {
            "kind": "computed" if source else "of mtool's own",
            "operator": operator.index,
            "name": operator.whole or operator.name,
            "label": operator.label,
        }
        entry = (name, facts, array.copy(), source.moves if source else ())
        parts.setdefault(operator.whole or f"{operator.index} {operand.value}", []).append(entry)
    result: list[_Computed] = []
    for pieces in parts.values():
        name, facts, array, moves = pieces[0]
        if len(pieces) > 1:
            array = np.concatenate([piece[2] for piece in pieces], axis=1)
            moves = moves[:-1] if moves and moves[-1][0] == "rows" else moves
        result.append((name, facts, array, moves))
    return result


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run: the outputs of each sample, and the cost of an inference.

    `first_run` compares the first sample with the reference, if the build is new.
    """

    prepared: BuiltProject
    inputs: tuple[Sample, ...]
    outputs: tuple[Sample, ...]
    cost: Cost
    first_run: FirstRun | None = None

    def stacked(self) -> dict[str, Array]:
        """Return each output for all samples: with the model's shape for one sample, else with a leading sample axis.

        Outputs with different run-time sizes are padded with zeros to the largest.
        """
        samples: Sequence[Sample] = self.outputs
        names = samples[0]
        if len(samples) == 1:
            return dict(names)
        if any(sample[name].shape != value.shape for sample in samples for name, value in names.items()):
            samples = [sampling.padded(self.prepared.manifest.outputs, sample) for sample in samples]
        return {name: np.stack([sample[name] for sample in samples]) for name in names}


@locks.keep_locks()
def run(
    path: str | Path,
    *,
    board: str | Board,
    inputs: Path | Sequence[Sample] | None = None,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    seed: checked.Natural = 0,
    kinds: Sequence[FirmwareKind] = (HOST_DRIVEN,),
    fill: str = "random",
    dump: Path | None = None,
    on: Path | None = None,
) -> RunResult:
    """Compile, build and run a model; only steps that are out of date are repeated.

    Args:
        path: the ONNX or TFLite model, or a project folder, whose firmware is built if necessary.
        board: a board or its name; empty: the project's, or this computer for a model.
        inputs: a .npz or .npy file, or samples (dictionaries from input name to array); default: one random
            sample with `seed`.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        seed: the seed of the random sample.
        kinds: the firmware kinds to build: "host_driven" runs; "standalone" too, to report the cost without the RPC
            server.
        fill: without `inputs`, what they are filled with: "zeros", "ones", "random", or a file.
        dump: the folder for all tensors of all samples; None: they are not written.
        on: the package in firmware of your own, which is run; nothing is built or flashed then.

    Raises:
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    if isinstance(inputs, Path):
        arrays.stored(inputs)  # fails before all the work
    job = Job.of(path, board, options, deployment, fill=fill, seed=seed, on=on)
    if dump is not None:
        check_dump(dump)
    prepared, drawn, model = built_with_inputs(job, inputs, kinds)
    start = time.monotonic()
    with deployment.open(prepared) as device:
        if prepared.manifest.executor == "graph-host":  # which measures no time
            outputs = infer_all(device, prepared, drawn, deployment)
            speed = measure_speed(device, drawn[-1], Readings(repeat=1))
        else:
            outputs = infer_all(device, prepared, drawn[:-1], deployment)
            last, speed = run_measured(device, drawn[-1])
            outputs.append(last)
        emulator = None if device.is_at_port else prepared.board.emulator
    cost = cost_at(prepared, speed)
    where = f"{prepared.board.name} in {emulator.program}" if emulator else prepared.board.description
    log.info("  %-9s %4.1f s   %s, %s", "run", time.monotonic() - start, where, cost.speed())
    if dump is not None:
        with deployment.open(prepared) as device:
            write_dump(device, drawn, dump)
    first = None
    if model is not None and not job.is_module:
        first = compare_first_run(model, prepared, deployment, drawn[0], lambda: outputs[0])
    return RunResult(prepared, tuple(drawn), tuple(outputs), cost, first)


def built_with_inputs(
    job: Job, inputs: Path | Sequence[Sample] | None, kinds: Sequence[str] = (HOST_DRIVEN,)
) -> tuple[BuiltProject, Sequence[Sample], CompiledModel | None]:
    """Return a built project, the samples to run it on, and the model; None: only a project was given.

    `inputs` and `kinds` are those of `run`. Samples are read before anything is built.

    Raises:
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    path, board, options, deployment = job.path, job.board, job.options, job.deployment
    cached = loaded = key = None
    model: CompiledModel | None = None
    if path.is_dir():
        if job.on is not None:
            raise UsageError("--on can't be combined with a project folder", hint="give the model, .onnx or .tflite")
        described = project_of(job)
        key = of_option(options.template_options)
        loaded = loaded_model(path, options.name, deployment, key)
        entry = loaded or chosen_model(path, options.name)
        target, tensors, name = described.board, entry.inputs, "" if loaded else entry.model
    else:
        job = replace(job, board=board or HOST)
        cached = None if deployment.models or job.on is not None else _load_cached(job)
        model = cached[0] if cached else job.compile()
        target, tensors, name = model.board, model.manifest.inputs, model.manifest.model
    samples: Sequence[Sample]
    if inputs is None:
        samples = sampling.filled(tensors, job.fill, seed=job.seed)
    else:
        samples = sampling.inputs_of(inputs, tensors) if isinstance(inputs, Path) else inputs
        if not samples:
            raise UsageError("inputs is empty", details=["expected at least one sample"])
    if model is not None and cached is None:
        prepared = job.build(model, kinds)
        if not deployment.models and job.on is None:
            _store_cached(model, prepared.folder)
    else:
        prepared = deployment.build_folder(target, cached[1] if cached else path, kinds=kinds, model=name, link_key=key)
    if loaded is not None:
        prepared = replace(prepared, manifest=loaded)
    return prepared, samples, model


def project_of(job: Job) -> Project:
    """Return the description of a job's project folder, which is run as it is.

    Raises:
        UsageError: it is not a project, it is for another board than the named one, or options would require another
            compilation.
    """
    folder = job.path
    if not (folder / manifest.FILE_NAME).exists():
        raise UsageError(
            f"{folder} is not an mtool project",
            details=[f"{folder / manifest.FILE_NAME} does not exist"],
            hint=manifest.own_hint(folder) or "give a model, .onnx or .tflite, or a folder that mtool build made",
        )
    described = project_in(folder)
    check_board(folder, described, job.board if isinstance(job.board, str) else job.board.name)
    rest = {name: value for name, value in job.options.template_options.items() if name != OPTION}  # without the key
    if replace(job.options, name="", template_options=rest) != Options() or job.deployment.folder is not None:
        raise UsageError(
            f"{folder} is a project, which is run as it is",
            details=["options for compiling the model can't be combined with a project"],
            hint="give the model instead to change how it is compiled",
        )
    return described
