"""A project of a user's own: the folder whose `mtool.toml` has a table [project], and what that table says.

`generated/` in it is a project folder as mtool writes it for any model; all the rest is the user's. The model is built
for the project's board there, with the user's program as the standalone firmware, and for any other board in
`build/<model>-<board>`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from mtool import boards, project
from mtool.base import configuration, spelling
from mtool.base.configuration import FILE_NAME
from mtool.base.errors import UsageError
from mtool.base.identifiers import model_name
from mtool.base.option_table import OF_DEPLOYMENT, OPTIONS
from mtool.base.option_values import ProjectType
from mtool.stages.deployment import Deployment
from mtool.stages.job import Job
from mtool.stages.options import Options, parse

GENERATED = "generated"
"""The folder of a project that is mtool's."""

PROGRAM = "src"
"""The folder of a project with the user's program."""

_KEYS = ("model", "board", "test_board", "type")
_ALIASES = {"max": "maxima"}  # the command line's name of an option, and Python's
_OF_THE_BOARD = ("template", "option", "schedule")  # options that say nothing of another board


@dataclass(frozen=True, slots=True)
class UserProject:
    """A project of a user's own.

    Attributes:
        folder: where its `mtool.toml` lies.
        model: the model's file.
        board: the name of the board that its program is for.
        test_board: the name of the board that its tests run on, unless they are told.
        type: what its program is.
        options: options of `mtool build`, by their names in Python, as the command line has them.
    """

    folder: Path
    model: Path
    board: str
    test_board: str
    type: ProjectType
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_program(self) -> bool:
        """Whether there is a program of the user's, beside the firmware that a host drives."""
        return self.type != "host-driven"

    def folder_for(self, board: str) -> Path:
        """Return the project folder, in mtool's sense, of the model on a board."""
        if board == self.board:
            return self.folder / GENERATED
        return self.folder / "build" / f"{model_name(self.model.stem)}-{board}"

    def values_for(self, board: str) -> dict[str, Any]:
        """Return the options of `mtool build` that hold for a board."""
        return {key: value for key, value in self.options.items() if board == self.board or key not in _OF_THE_BOARD}

    def with_program(self, options: Options, board: str, folder: Path) -> Options:
        """Return options with the program that is the standalone firmware on a board, in a project folder.

        The user's program is for its board alone. EEMBC's asks only for mtool.h, which every template of C has.
        """
        if not self.has_program or (self.type == "standalone" and board != self.board):
            return options
        own, other = boards.get(self.board), boards.get(board)
        named = self.options.get("template", "")
        language = project.choose(own, named, {})[0].program
        chosen = project.choose(other, options.template, {})[0]
        if chosen.program != language:
            return options
        program = project.program_in(self.folder / PROGRAM, folder, port=self.type == "mlperftiny")
        if not program.sources:
            raise UsageError(
                f"{self.folder / PROGRAM} has no program",
                details=["expected: the C files of the project's own program"],
                hint="put your main there, or begin anew with: mtool new",
            )
        return replace(options, program=program)

    def options_for(self, board: str, *, keep: bool = False, force: bool = False) -> Options:
        """Return how the model is compiled and built for a board.

        Raises:
            UsageError: an option can't have its value.
        """
        options = parse(**self.values_for(board), keep=keep, force=force)
        return self.with_program(options, board, self.folder_for(board))

    def deployment_for(self, board: str, *, port: str = "", probe: str = "") -> Deployment:
        """Return the project folder of a board and the device that is meant."""
        return Deployment(self.folder_for(board), port, probe)

    def job_for(self, board: str, *, port: str = "", probe: str = "") -> Job:
        """Return the model, how it is built for a board, and where it runs.

        Raises:
            UsageError: an option can't have its value, or the model is not where the project says.
        """
        self.check_model()
        return Job(self.model, board, self.options_for(board), Deployment(self.folder_for(board), port, probe))

    def check_model(self) -> None:
        """Say that the model is not where the project says.

        Raises:
            UsageError: it is not there.
        """
        if not self.model.is_file():
            raise UsageError(
                f"the project's model is not there: {self.model}",
                details=[f"{self.folder / FILE_NAME} names it, in [project]"],
                hint=f"put it there, or mend model = in {FILE_NAME}",
            )


def find(folder: Path | None = None) -> UserProject | None:
    """Return the project that a folder (default: the working folder) lies in, or None.

    Raises:
        UsageError: its `mtool.toml` can't be read, or has a key or value that it can't have.
    """
    read = configuration.load(folder)
    if read.file is None or not read.project:
        if read.file is not None and read.options:
            raise UsageError(f"{read.file} has [options] and no [project]", hint="name the model and the board there")
        return None
    said = _texts(read.file, read.project)
    for key in ("model", "board"):
        if not said.get(key):
            raise UsageError(f"{read.file}: [project] has no {key}", hint=f'add: {key} = ".."')
    kind = said.get("type", "standalone")
    if kind not in get_args(ProjectType):
        raise UsageError(f"{read.file}: type can't be {kind!r}", details=[f"one of {', '.join(get_args(ProjectType))}"])
    root = read.file.parent
    return UserProject(
        folder=root,
        model=root / said["model"],
        board=said["board"],
        test_board=said.get("test_board", "") or said["board"],
        type=TypeAdapter(ProjectType).validate_python(kind),
        options={
            key: _placed(root, key, value) for key, value in checked_options(read.options, str(read.file)).items()
        },
    )


def require(folder: Path | None = None) -> UserProject:
    """Return the project that a folder (default: the working folder) lies in.

    Raises:
        UsageError: it lies in none, or as `find`.
    """
    found = find(folder)
    if found is None:
        where = folder or Path.cwd()
        raise UsageError(
            f"{where} lies in no project of yours",
            details=[f"no {FILE_NAME} with [project], there or above"],
            hint="make one with: mtool new FOLDER --model MODEL --board BOARD",
        )
    return found


def checked_options(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return options of `mtool build` by their names in Python, each of the type that it has there.

    Raises:
        UsageError: one is unknown, or has a value of another type.
    """
    known = {name: one.kind for name, one in OPTIONS.items() if name not in (*OF_DEPLOYMENT, "force", "keep")}
    found = {}
    for key, value in given.items():
        name = _ALIASES.get(key, key.replace("-", "_"))
        if name not in known:
            raise UsageError(
                f"{where}: [options] has no {key!r}",
                details=["it has the options of mtool build, by their names"],
                hint=spelling.did_you_mean(name, known, otherwise="see: mtool build --help"),
            )
        one = [value] if isinstance(value, str) and known[name] == list[str] | None else value
        try:
            found[name] = TypeAdapter(known[name]).validate_python(one, strict=True)
        except ValidationError as wrong:
            many = known[name] == list[str] | None
            message = wrong.errors()[0]["msg"].replace("Input should be", "expected")
            message = "expected a text, or a list of texts" if many else message
            raise UsageError(f"{where}: {key} can't be {value!r}", details=[message]) from None
    return found


def _texts(file: Path, table: Mapping[str, Any]) -> dict[str, str]:
    for key, value in table.items():
        if key not in _KEYS:
            raise UsageError(
                f"{file}: [project] has no {key!r}",
                details=[f"it has: {', '.join(_KEYS)}"],
                hint=spelling.did_you_mean(key, _KEYS),
            )
        if not isinstance(value, str):
            raise UsageError(f"{file}: {key} is no text", details=[f"found {value!r}"])
    return dict(table)


def _placed(root: Path, key: str, value: Any) -> Any:
    """Return an option's value whose paths, which are relative to the project, are so to the working folder."""
    if key == "template" and value not in project.names():
        return str(root / value)
    if key == "tuned":
        return [str(root / one) for one in value]
    if key == "backend":
        return [str(root / one) if (root / one.partition(":")[0]).is_file() else one for one in value]
    if key in ("const", "state"):
        return [_placed_array(root, one) for one in value]
    return value


def _placed_array(root: Path, text: str) -> str:
    name, equals, value = text.partition("=")
    return f"{name}={root / value}" if equals and value.endswith(".npy") else text
