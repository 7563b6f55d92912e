"""A job: a model, how it is compiled and where it runs, behind run, verify, bench, report and debug."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtool import boards, manifest
from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.device import session
from mtool.device.session.connection import interfaces, require_modules, takes_modules
from mtool.manifest import Manifest, Project
from mtool.stages import arrays
from mtool.stages import samples as sampling
from mtool.stages.building import HOST_DRIVEN, BuiltProject
from mtool.stages.compiling import CompiledModel, compile
from mtool.stages.deployment import DEFAULT, HOST, Deployment
from mtool.stages.options import Options
from mtool.stages.samples import Sample


@dataclass(frozen=True, slots=True)
class Job:
    """A model, how it is compiled and where it runs. What is wrong with its files of inputs is told before the work.

    Attributes:
        path: the ONNX or TFLite model, or for a run a project folder.
        board: a board or its name.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        golden: a .npz file of inputs x0.. and outputs y0..; None: inputs are drawn.
        samples: the number of inputs to draw.
        seed: of the drawn inputs.
        fill: what an inference that is measured is given: "zeros", "ones", "random", or a file.
        on: the project whose firmware has the model as a module; the name in the options is that of the model on the
            device.
    """

    path: Path
    board: str | Board
    options: Options
    deployment: Deployment = DEFAULT
    golden: Path | None = None
    samples: int = 4
    seed: int = 0
    fill: str = "random"
    on: Path | None = None

    def __post_init__(self) -> None:
        """Check the files of inputs.

        Raises:
            UsageError: one is missing, or is not such a file.
        """
        if self.golden is not None:
            arrays.stored(self.golden)
        sampling.check_fill(self.fill)

    @classmethod
    def of(
        cls, path: str | Path, board: str | Board, options: Options | None, deployment: Deployment, **more: object
    ) -> "Job":
        """Return the job of a command's arguments."""
        return cls(Path(path), board, options or Options(), deployment, **more)  # type: ignore[arg-type]

    @property
    def target(self) -> Board:
        """The board.

        Raises:
            BoardError: there is no such board.
        """
        return boards.get(self.board) if isinstance(self.board, str) else self.board

    def compile(self, *, checks_device: bool = True) -> CompiledModel:
        """Compile the model; what is wrong with the folder or the device is told before the work.

        Raises:
            MtoolError: as `Deployment.compile`; or the project has no firmware that takes modules.
        """
        if self.on is not None:
            project = project_in(self.on)
            require_modules(project)
            return compile(self.path, board=project.board, options=self.options)
        if checks_device or self.deployment.models:
            return self.deployment.compile(self.path, board=self.board, options=self.options)
        return compile(self.path, board=self.board, options=self.options, folder=self.deployment.folder)

    def build(self, model: CompiledModel, kinds: Sequence[str] = (HOST_DRIVEN,)) -> BuiltProject:
        """Build the project of the compiled model; of a module it is the one whose firmware has it.

        Raises:
            MtoolError: as `Deployment.build`.
            UsageError: the device has no module with such a model, or it is of another file.
        """
        if self.on is None:
            return self.deployment.build(model, kinds=kinds)
        name = model.manifest.model
        prepared = self.deployment.build_folder(project_in(self.on).board, self.on)
        found = loaded_model(self.on, name, self.deployment)
        if found is None:
            raise UsageError(
                f"the device has no module with a model {name!r}",
                details=[f"{name} is a model of the firmware itself"],
                hint="load it with mtool load, or name it as a module calls it: --name NAME",
            )
        if found.model_hash != model.manifest.model_hash:
            raise UsageError(
                f"the device's {name} was made of another file than {self.path}",
                details=[f"expected  {model.manifest.model_hash[:16]}", f"found     {found.model_hash[:16]}"],
            )
        return replace(prepared, manifest=found)

    def inputs(self, described: Manifest) -> list[Sample]:
        """Return the inputs of a comparison: those of the golden file, or drawn ones."""
        if self.golden is not None:
            return sampling.golden_of(self.golden, described.inputs, described.outputs)[0]
        return sampling.seeded(described.inputs, count=self.samples, seed=self.seed)

    def filled(self, described: Manifest) -> Sample:
        """Return the input of an inference that is measured."""
        return sampling.filled(described.inputs, self.fill, seed=self.seed)[0]


def project_in(folder: Path) -> Project:
    """Return the project that a folder holds.

    Raises:
        UsageError: it holds a compiled model, which is not built here, or nothing of mtool's.
    """
    return manifest.project_of(manifest.load(folder), folder)


def check_board(folder: Path, project: Project, named: str) -> None:
    """Check that a project is for the board that is named; "": none is.

    Raises:
        UsageError: it is for another.
    """
    if named not in ("", project.board.name):
        raise UsageError(f"{folder} is a project for {project.board.name}, not for {named}", hint="leave --board out")


def board_of(folder: Path, board: str) -> str:
    """Return the board of a project, whose device has a model of a module; `board` is the one that is named.

    Raises:
        UsageError: it is not a project, or that of another board than the one that is named.
    """
    described = manifest.load(folder).project
    if described is None:
        return HOST
    check_board(folder, described, "" if board == HOST else board)
    return described.board.name


def loaded_model(folder: Path, name: str, deployment: Deployment) -> Manifest | None:
    """Return the manifest of the model of a name that came as a module to a project's device.

    None: no name is given, the firmware takes no modules, or the model is the firmware's own.

    Raises:
        UsageError: the device has no model of the name; the message lists those that it has.
        MtoolError: the folder has no project, or its device does not answer.
    """
    described = manifest.load(folder)
    if described.project is None or not takes_modules(described.project) or not name:
        return None
    with session.open(folder, port=deployment.port, probe=deployment.probe) as device:
        if name in {one.name for one in interfaces(device.session).values()}:
            return device[name].manifest
        if name in device.models:
            return None
        raise UsageError(
            f"the device has no model {name!r}",
            details=[f"it has: {', '.join(device.models)}"],
            hint="name one of these: --name NAME; or load it with mtool load",
        )
