"""A job: a model, how it is compiled and where it runs, behind run, verify, bench, report and debug."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mtool import boards, manifest
from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree
from mtool.base.frozen import frozen
from mtool.base.identifiers import model_name
from mtool.boards import Board
from mtool.compiler.frontend.hashing import file_hash
from mtool.device import session
from mtool.device.session.connection import interfaces, takes_modules
from mtool.manifest import Manifest, Project
from mtool.manifest.link_key import LinkKey, of_option
from mtool.stages import arrays
from mtool.stages import samples as sampling
from mtool.stages.building import HOST_DRIVEN, BuiltProject
from mtool.stages.compiling import CompiledModel, compile, with_windows
from mtool.stages.deployment import DEFAULT, HOST, Deployment
from mtool.stages.options import Options
from mtool.stages.samples import Sample


@frozen
class Job:
    """A model, how it is compiled and where it runs. Its input files are checked first.

    Attributes:
        path: the ONNX or TFLite model, or for a run a project folder.
        board: a board or its name.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        golden: a .npz file of inputs x0.. and outputs y0..; None: random inputs.
        samples: the number of random inputs.
        seed: the seed of the random inputs.
        fill: the input of a measured inference: "zeros", "ones", "random", or a file.
        on: the project whose firmware has the model as a module, or the package in firmware of your own; the name in
            the options is the model's name on the device.
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
        """Check the input files.

        Raises:
            UsageError: one is missing or malformed.
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
        """Compile the model; the folder and the device are checked first.

        Raises:
            MtoolError: as `Deployment.compile`; or the project has no firmware that takes modules.
        """
        if self.on is not None:
            project = project_in(self.on)
            if project.is_own:
                return self._packaged(self.on, project)
            if not takes_modules(project):
                raise UsageError(
                    f"the firmware of {self.on} does not support modules: its models are its own",
                    details=["--on is for a model that mtool load put on a device, or a package in your own firmware"],
                    hint=f"to run a project as it is, with your changes: -d {self.on} --keep; "
                    "for modules, build it with --modules --module-key FILE.pub",
                )
            return compile(self.path, board=project.board, options=self.options)
        if checks_device or self.deployment.models:
            return self.deployment.compile(self.path, board=self.board, options=self.options)
        return compile(self.path, board=self.board, options=self.options, folder=self.deployment.folder)

    def build(self, model: CompiledModel, kinds: Sequence[str] = (HOST_DRIVEN,)) -> BuiltProject:
        """Build the compiled model's project; for a module, the project whose firmware has it.

        Raises:
            MtoolError: as `Deployment.build`.
            UsageError: the device has no module with this model, or its module was made from another file.
        """
        if self.on is None:
            return self.deployment.build(model, kinds=kinds)
        name = model.manifest.model
        project, key = project_in(self.on), of_option(self.options.template_options)
        if project.is_own:
            return self.deployment.build_folder(project.board, self.on, model=name, link_key=key)
        prepared = self.deployment.build_folder(project.board, self.on, link_key=key)
        loaded = loaded_model(self.on, name, self.deployment, key)
        if loaded is None:
            raise UsageError(
                f"no module on the device has a model {name!r}",
                details=[f"{name} is a model of the firmware itself"],
                hint="load it with mtool load, or choose a module's model: --name NAME",
            )
        if loaded.model_hash != model.manifest.model_hash:
            raise UsageError(
                f"{name} on the device was not made from {self.path}",
                details=[f"expected  {model.manifest.model_hash[:16]}", f"found     {loaded.model_hash[:16]}"],
            )
        return replace(prepared, manifest=loaded)

    def _packaged(self, folder: Path, project: Project) -> CompiledModel:
        """Return the model that a package was made from; it is not compiled again.

        Raises:
            UsageError: the package was made from another file, or has several models and none is named.
        """
        digest = file_hash(self.path)
        models = [model for model in manifest.load(folder).models if model.model_hash == digest]
        models = [model for model in models if model.model_file == self.path.name] or models
        # If several models are named, a model has its file's name unless --name gives another.
        is_found = len(models) == 1 and self.options.name in ("", model_name(self.path.stem))
        described = chosen_model(folder, models[0].model if is_found else self.options.name)
        if digest != described.model_hash:
            raise UsageError(
                f"the package in {folder} was not made from {self.path}",
                details=[f"expected  {described.model_hash[:16]}", f"found     {digest[:16]}"],
                hint=f"it was made from {described.model_file}",
            )
        options = with_windows(self.options, described)
        return CompiledModel(self.path, project.board, options, FileTree(), described)

    @property
    def is_module(self) -> bool:
        """Whether the model is a module of the firmware that runs it."""
        return self.on is not None and not project_in(self.on).is_own

    def refuse_module(self, what: str) -> None:
        """Refuse a model that is a module, which does not describe its operators.

        Raises:
            UsageError: it is one.
        """
        if self.is_module:
            raise UsageError(what, details=["a module does not describe its operators' reads and writes"])

    def inputs(self, described: Manifest) -> list[Sample]:
        """Return the inputs of a comparison: from the golden file, or random."""
        if self.golden is not None:
            return sampling.golden_of(self.golden, described.inputs, described.outputs)[0]
        return sampling.seeded(described.inputs, count=self.samples, seed=self.seed)

    def filled(self, described: Manifest) -> Sample:
        """Return the input of a measured inference."""
        return sampling.filled(described.inputs, self.fill, seed=self.seed)[0]


def project_in(folder: Path) -> Project:
    """Return the project in a folder.

    Raises:
        UsageError: the folder holds only a compiled model, or nothing of mtool's.
    """
    return manifest.project_of(manifest.load(folder), folder)


def own_firmware(path: Path, deployment: Deployment) -> Path | None:
    """Return the package in build/ that the device at a port has in firmware of your own; None: it has none of them.

    Only packages with the RPC server that were made from this model are looked for; without one, the device
    is not asked.

    Raises:
        MtoolError: a package was made from the model, and the device does not answer.
    """
    if not deployment.port or path.is_dir():
        return None
    folders = {}
    for file in sorted(Path("build").glob(f"*/{manifest.FILE_NAME}")):
        with contextlib.suppress(UsageError):  # of another version of mtool
            one = manifest.load(file.parent)
            if one.project is not None and one.project.is_own and path.name in {part.model_file for part in one.models}:
                folders[one.project.build_hash] = file.parent
    if not folders:
        return None
    build_hash = session.build_at(next(iter(folders.values())), port=deployment.port, probe=deployment.probe)
    return next((folder for digits, folder in folders.items() if build_hash and digits.startswith(build_hash)), None)


def check_board(folder: Path, project: Project, board: str) -> None:
    """Check that a project is for a board; an empty name passes.

    Raises:
        UsageError: it is for another board.
    """
    if board not in ("", project.board.name):
        raise UsageError(f"{folder} is a project for {project.board.name}, not for {board}", hint="leave out --board")


def board_of(folder: Path, board: str) -> str:
    """Return the board of the project in a folder.

    Raises:
        UsageError: it is not a project, or it is for another board than `board`.
    """
    described = manifest.load(folder).project
    if described is None:
        return HOST
    check_board(folder, described, "" if board == HOST else board)
    return described.board.name


def chosen_model(folder: Path, name: str) -> Manifest:
    """Return the manifest of a project's model: the only one, or the one with a name.

    Raises:
        UsageError: the project has several models and none is named, or it has no model of that name.
    """
    chosen = manifest.load(folder, name)
    if not name and chosen.firmware:
        names = [model.model for model in chosen.firmware]
        raise UsageError(
            f"{folder} is a firmware of {len(names)} models: {', '.join(names)}",
            hint=f"choose one with: --name {names[0]}",
        )
    return chosen


def loaded_model(folder: Path, name: str, deployment: Deployment, link_key: LinkKey | None = None) -> Manifest | None:
    """Return the manifest of a model that was loaded onto a project's device as a module.

    None: the name is empty, the firmware takes no modules, or the model is the firmware's own.

    Raises:
        UsageError: the device has no model of that name; the message lists those that it has.
        MtoolError: the folder has no project, or its device does not answer.
    """
    described = manifest.load(folder)
    if described.project is None or not takes_modules(described.project) or not name:
        return None
    with session.open(folder, port=deployment.port, probe=deployment.probe, link_key=link_key) as device:
        if name in {interface.name for interface in interfaces(device.session).values()}:
            return device[name].manifest
        if name in device.models:
            return None
        raise UsageError(
            f"the device has no model {name!r}",
            details=[f"it has: {', '.join(device.models)}"],
            hint="choose one of these: --name NAME; or load it with mtool load",
        )
