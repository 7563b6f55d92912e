"""A user's own project: a folder whose `mtool.toml` has a table [project], and the contents of that table.

`generated/` in it is a project folder as mtool writes for any model; everything else is the user's. The model is built
there for the project's board, with the user's program as the standalone firmware, and for any other board in
`build/<model>-<board>`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from mtool import boards, project
from mtool.base import configuration, records, spelling
from mtool.base.configuration import FILE_NAME
from mtool.base.errors import UsageError
from mtool.base.identifiers import model_name
from mtool.base.option_table import OF_DEPLOYMENT, OPTIONS
from mtool.base.option_values import ProjectType
from mtool.commands import applications
from mtool.commands.applications import Settings
from mtool.stages.deployment import Deployment
from mtool.stages.job import Job
from mtool.stages.options import Options, parse

GENERATED = "generated"
"""The folder of a project that mtool generates."""

PROGRAM = "src"
"""The folder of a project with the user's program."""

_KEYS = ("model", "board", "test_board", "type")
_ALIASES = {"max": "maxima"}  # an option's name on the command line, and in Python
_OF_THE_BOARD = ("template", "option", "schedule")  # options that do not apply to other boards


@dataclass(frozen=True, slots=True)
class UserProject:
    """A user's own project.

    Attributes:
        folder: the folder with its `mtool.toml`.
        model: the model's file.
        board: the name of the board that its program is for.
        test_board: the name of the board that its tests run on by default.
        type: the kind of its program.
        options: options of `mtool build`, by their names in Python, with values as on the command line.
        settings: an application's settings; None: it is not one.
    """

    folder: Path
    model: Path
    board: str
    test_board: str
    type: ProjectType
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Settings | None = None

    @property
    def has_program(self) -> bool:
        """Whether the project has its own program, besides the firmware that a host drives."""
        return self.type != "host-driven"

    def has_sensor(self, board: str) -> bool:
        """Return whether the program reads a board's own sensor: the project's board, unless it is emulated."""
        target = boards.get(board)
        return board == self.board and target.emulator is None and target.cpu != "host"

    def folder_for(self, board: str) -> Path:
        """Return the generated project folder of the model for a board."""
        if board == self.board:
            return self.folder / GENERATED
        return self.folder / "build" / f"{model_name(self.model.stem)}-{board}"

    def values_for(self, board: str) -> dict[str, Any]:
        """Return the options of `mtool build` for a board."""
        return {key: value for key, value in self.options.items() if board == self.board or key not in _OF_THE_BOARD}

    def model_rate(self) -> int:
        """Return the samples a second that the model's front end takes; 0: it is not known.

        Raises:
            UsageError: the application's rate is another one.
        """
        from mtool.preprocessing.prepending import rate_of

        rate = rate_of(self.model)
        if self.settings is not None and rate and rate != self.settings.rate:
            raise UsageError(
                f"{self.folder / FILE_NAME}: rate in [app] is {self.settings.rate}",
                details=[f"the front end in {self.model.name} is for {rate}"],
                hint=f"set rate = {rate}, or prepend the front end with another rate: mtool preprocess KIND:rate=N",
            )
        return rate

    def with_program(self, options: Options, board: str, folder: Path) -> Options:
        """Return options with the program of the standalone firmware for a board, in a project folder.

        The user's program is only for its board. EEMBC's needs only mtool.h, which every C template has, and an
        application gets recordings instead of its board's sensor.
        """
        if not self.has_program or (self.type == "standalone" and board != self.board):
            return options
        project_board, other = boards.get(self.board), boards.get(board)
        named = self.options.get("template", "")
        language = project.choose(project_board, named, {})[0].program
        chosen = project.choose(other, options.template, {})[0]
        if chosen.program != language and (self.settings is None or chosen.program != "c"):
            return options
        how: dict[str, Any] = {"port": self.type != "standalone", "only_c": chosen.program != language}
        if self.settings is not None:
            self.model_rate()
            how["elements"] = tuple(self.settings.keywords.items())
            how["settings"] = applications.header(self.settings, has_sensor=self.has_sensor(board))
        program = project.program_in(self.folder / PROGRAM, folder, **how)
        if not program.sources:
            raise UsageError(
                f"{self.folder / PROGRAM} has no program",
                details=["expected: the C files of the project's own program"],
                hint="put your main there, or start a new project: mtool new",
            )
        return replace(options, program=program)

    def options_for(self, board: str, *, keep: bool = False, force: bool = False) -> Options:
        """Return the model's options for a board.

        Raises:
            UsageError: an option has an invalid value.
        """
        options = parse(**self.values_for(board), keep=keep, force=force)
        return self.with_program(options, board, self.folder_for(board))

    def deployment_for(self, board: str, *, port: str = "", probe: str = "") -> Deployment:
        """Return the project folder for a board, and the selected device."""
        return Deployment(self.folder_for(board), port, probe)

    def job_for(self, board: str, *, port: str = "", probe: str = "") -> Job:
        """Return the model, how it is built for a board, and where it runs.

        Raises:
            UsageError: an option has an invalid value, or the model's file does not exist.
        """
        self.check_model()
        return Job(self.model, board, self.options_for(board), Deployment(self.folder_for(board), port, probe))

    def check_model(self) -> None:
        """Check that the model's file exists.

        Raises:
            UsageError: it does not.
        """
        if not self.model.is_file():
            raise UsageError(
                f"missing model: {self.model}",
                details=[f"{self.folder / FILE_NAME} names it, in [project]"],
                hint=f"put it there, or change model = in {FILE_NAME}",
            )


def find(folder: Path | None = None) -> UserProject | None:
    """Return the project that a folder (default: the working folder) is in, or None.

    Raises:
        UsageError: its `mtool.toml` can't be read, or has an invalid key or value.
    """
    conf = configuration.load(folder)
    if conf.file is None or not conf.project:
        if conf.file is not None and conf.options:
            raise UsageError(f"{conf.file} has [options] but no [project]", hint="add it, with the model and the board")
        return None
    texts = _texts(conf.file, conf.project)
    for key in ("model", "board"):
        if not texts.get(key):
            raise UsageError(f"{conf.file}: [project] lacks {key}", hint=f'add: {key} = ".."')
    kind = texts.get("type", "standalone")
    if kind not in get_args(ProjectType):
        details = [f"expected one of {', '.join(get_args(ProjectType))}"]
        raise UsageError(f"{conf.file}: type can't be {kind!r}", details=details)
    is_app = kind in applications.APPLICATIONS
    if conf.app and not is_app:
        details = [f"its type is {kind}; applications: {', '.join(applications.APPLICATIONS)}"]
        raise UsageError(f"{conf.file} has [app], but is not an application", details=details)
    settings = applications.settings_of(kind, conf.app, str(conf.file)) if is_app else None
    root = conf.file.parent
    return UserProject(
        folder=root,
        model=root / texts["model"],
        board=texts["board"],
        test_board=texts.get("test_board", "") or texts["board"],
        type=TypeAdapter(ProjectType).validate_python(kind),
        options={
            key: _placed(root, key, value) for key, value in checked_options(conf.options, str(conf.file)).items()
        },
        settings=settings,
    )


def require(folder: Path | None = None) -> UserProject:
    """Return the project that a folder (default: the working folder) is in.

    Raises:
        UsageError: it is not in a project, or as `find`.
    """
    project = find(folder)
    if project is None:
        where = folder or Path.cwd()
        raise UsageError(
            f"{where} is not in a project of yours",
            details=[f"no {FILE_NAME} with [project] there or in a folder above"],
            hint="make one with: mtool new FOLDER --model MODEL --board BOARD",
        )
    return project


def checked_options(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return options of `mtool build` by their names in Python, each with its type in Python.

    Raises:
        UsageError: an option is unknown, or has a value of the wrong type.
    """
    kinds = {name: option.kind for name, option in OPTIONS.items() if name not in (*OF_DEPLOYMENT, "force", "keep")}
    result = {}
    for key, value in options.items():
        name = _ALIASES.get(key, key.replace("-", "_"))
        if name not in kinds:
            raise UsageError(
                f"{where}: unknown key {key!r} in [options]",
                details=["expected: an option of mtool build, by its name"],
                hint=spelling.did_you_mean(name, kinds, otherwise="see: mtool build --help"),
            )
        converted = [value] if isinstance(value, str) and kinds[name] == list[str] | None else value
        try:
            result[name] = TypeAdapter(kinds[name]).validate_python(converted, strict=kinds[name] != Path | None)
        except ValidationError as wrong:
            details = [f"{key}: {line}" for line in records.lines(wrong, most=1)]
            raise UsageError(f"{where}: [options] is not valid", details=details) from None
    return result


def _texts(file: Path, table: Mapping[str, Any]) -> dict[str, str]:
    for key, value in table.items():
        if key not in _KEYS:
            raise UsageError(
                f"{file}: unknown key {key!r} in [project]",
                details=[f"expected one of: {', '.join(_KEYS)}"],
                hint=spelling.did_you_mean(key, _KEYS),
            )
        if not isinstance(value, str):
            raise UsageError(f"{file}: {key} is not a string", details=[f"found {value!r}"])
    return dict(table)


def _placed(root: Path, key: str, value: Any) -> Any:
    """Return an option's value with paths made relative to the working folder instead of the project."""
    if key == "template" and value not in project.names():
        return str(root / value)
    if key == "tuned":
        return [str(root / item) for item in value]
    if key == "backend":
        return [str(root / item) if (root / item.partition(":")[0]).is_file() else item for item in value]
    if isinstance(value, Path):
        return root / value
    if key in ("const", "state"):
        return [_placed_array(root, item) for item in value]
    return value


def _placed_array(root: Path, text: str) -> str:
    name, equals, value = text.partition("=")
    return f"{name}={root / value}" if equals and value.endswith(".npy") else text
