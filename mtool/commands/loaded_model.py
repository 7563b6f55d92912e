"""Models that a device has of modules: compare them with their reference, and measure them, with nothing flashed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mtool import manifest
from mtool.base import locks
from mtool.base.errors import UsageError
from mtool.commands.cost import MODULE, Cost, cost_at
from mtool.device import session
from mtool.device.session import Readings
from mtool.device.session.bench import measure_speed
from mtool.device.session.loaded import interfaces, require_modules, takes_modules
from mtool.device.session.verify import Report, Tolerance
from mtool.manifest import Manifest
from mtool.stages import samples as sampling
from mtool.stages.building import Prepared
from mtool.stages.compiling import Model, compile
from mtool.stages.deployment import HOST, Deployment, run_samples
from mtool.stages.options import Options
from mtool.stages.samples import Sample
from mtool.verification import reference
from mtool.verification.layers import Layers
from mtool.verification.verification import golden_samples, judge

# The models of a project's device that came to it as modules.


def board_of(folder: Path, board: str) -> str:
    """Return the board of a project, whose device has a model of a module; `board` is the one that is named.

    Raises:
        UsageError: it is no project, or that of another board than the one that is named.
    """
    described = manifest.load(folder).project
    if described is not None and board not in (HOST, described.board.name):
        raise UsageError(f"{folder} is a project for {described.board.name}, not for {board}", hint="leave --board out")
    return HOST if described is None else described.board.name


def loaded_model(folder: Path, name: str, deployment: Deployment) -> Manifest | None:
    """Return the manifest of the model of a name that came as a module to a project's device; None: it has none.

    Raises:
        MtoolError: the project is none, or its device does not answer.
    """
    described = manifest.load(folder)
    if described.project is None or not takes_modules(described.project):
        return None
    if not name:
        return None
    with session.open(folder, port=deployment.port, probe=deployment.probe) as device:
        numbers = interfaces(device.session)
        return device[name].manifest if name in {one.name for one in numbers.values()} else None


@locks.keep_locks()
def verify(
    path: str | Path,
    folder: Path,
    *,
    golden: Path | None = None,
    tolerance: Tolerance | None = None,
    samples: int = 4,
    seed: int = 0,
    options: Options,
    deployment: Deployment,
) -> Report:
    """Compare the outputs of a model that a device has as a module with a reference's.

    Args:
        path: the model that the module was made of.
        folder: the project whose firmware the device runs.
        golden, tolerance, samples, seed: as of `mtool.verify`.
        options: how the module was compiled; the name is that of the model on the device.
        deployment: the device.

    Raises:
        UsageError: the device has no such model, or it is of another file.
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    model, prepared = _both(path, folder, options, deployment)
    expected: Sequence[Sample]
    against = ""
    if golden is not None:
        inputs, expected = golden_samples(model, golden)
    else:
        inputs = sampling.seeded(model.manifest.inputs, count=samples, seed=seed)
        against, expected = reference.computed_by(model.path, inputs, options=model.options)
    found = run_samples(prepared, inputs, deployment)

    def layers(allowed: Tolerance, some: Sequence[Sample]) -> Layers:
        raise UsageError("a module tells nothing of what its operators read and write")

    return judge(model, inputs, expected, found, golden=golden, against=against, tolerance=tolerance, layers=layers)


@locks.keep_locks()
def bench(
    path: str | Path, folder: Path, *, readings: Readings, fill: str, options: Options, deployment: Deployment
) -> Cost:
    """Measure a model that a device has as a module; the flash and the RAM are the module's own.

    Args:
        path: the model that the module was made of.
        folder: the project whose firmware the device runs.
        readings: how often the timer is read.
        fill: what the inputs are filled with.
        options: how the module was compiled; the name is that of the model on the device.
        deployment: the device.

    Raises:
        UsageError: the device has no such model, or it is of another file.
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    model, prepared = _both(path, folder, options, deployment)
    inputs = sampling.filled(prepared.manifest.inputs, fill)[0]
    with deployment.open(prepared) as device:
        cost = cost_at(prepared, measure_speed(device, inputs, readings))
        own = [one for one in interfaces(device.session).values() if one.name == prepared.manifest.model][-1]
    return replace(
        cost,
        flash_code_bytes=own.code_bytes,
        flash_const_bytes=own.constant_bytes,
        arena_bound_bytes=model.manifest.arena_bound_bytes,
        ram_static_bytes=0,
        firmware=MODULE,
    )


def _both(path: str | Path, folder: Path, options: Options, deployment: Deployment) -> tuple[Model, Prepared]:
    """Return the model as compiled for the project's board, and the project with the one that its device has."""
    project = manifest.load(folder).project
    if project is None:
        raise UsageError(f"{folder} holds a compiled model, not a project", hint="make one with: mtool build MODEL")
    require_modules(project)
    model = compile(path, board=project.board, options=options)
    name = model.manifest.model
    prepared = deployment.build_folder(project.board, folder)
    found = loaded_model(folder, name, deployment)
    if found is None:
        raise UsageError(
            f"the device has no module with a model {name!r}",
            hint=f"load it with mtool load, or name it as it is called there: --name NAME; {folder} tells which",
        )
    if found.model_hash != model.manifest.model_hash:
        raise UsageError(
            f"the device's {name} was made of another file than {path}",
            details=[f"expected  {model.manifest.model_hash[:16]}", f"found     {found.model_hash[:16]}"],
        )
    return model, replace(prepared, manifest=found)
