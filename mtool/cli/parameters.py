"""The parameters of commands: single ones, and groups that become one argument.

Nothing here loads the compiler: `--help` and a shell's completion read it.
"""

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from mtool.base import flash_runners, resources
from mtool.base.errors import UsageError
from mtool.base.frozen import frozen
from mtool.base.option_table import Option, of_group

if TYPE_CHECKING:
    from mtool.commands import Deployment, Options

HOST = "host"  # the board that always exists
_NAME = re.compile(r"^(\w[\w.-]*):", re.MULTILINE)


def complete_boards(incomplete: str) -> list[str]:
    """Return the boards whose names begin with a text: the unindented keys of boards.yaml.

    The boards are not parsed: that would take too long for a key press.
    """
    return _keys(resources.path("boards.yaml"), incomplete)


def complete_runners(incomplete: str) -> list[str]:
    """Return the flash runners whose names begin with a text."""
    return _keys(flash_runners.FILE, incomplete)


def _keys(path: Path, incomplete: str) -> list[str]:
    try:
        return [name for name in _NAME.findall(path.read_text(encoding="utf-8")) if name.startswith(incomplete)]
    except (OSError, ValueError):
        return []


def _folder(text: str) -> Path:
    """Read a folder's name. An empty one is refused: it is most likely an unset shell variable."""
    if not text:
        raise UsageError("--output-dir is empty", hint="give a folder, or leave the option out")
    return Path(text)


def _model(text: str) -> Path:
    if not text:
        raise UsageError("the model's path is empty", hint="give the path of an .onnx or .tflite file")
    return Path(text)


def _placeholder(kind: Any) -> str | None:
    """Return the placeholder of a number in --help; None: the values of another type are listed."""
    return next((placeholder for of, placeholder in _NUMBERS.items() if of in (kind, *get_args(kind))), None)


_NUMBERS = {int: "N", float: "NUMBER"}
_READERS = {"model": _model, "folder": _folder}
_COMPLETIONS = {"boards": complete_boards, "runners": complete_runners}


def annotation_of(option: Option, kind: Any) -> Any:
    """Return the annotation of a parameter: its type, and the table's option or argument in typer's form."""
    settings: dict[str, Any] = {
        "help": option.help,
        "rich_help_panel": option.section or None,
        "metavar": option.metavar or _placeholder(kind),
        "min": option.least,
        "max": option.most,
        "parser": _READERS.get(option.reads),
        "autocompletion": _COMPLETIONS.get(option.completes),
    }
    return Annotated[kind, typer.Argument(**settings) if option.argument else typer.Option(*option.flags, **settings)]


@frozen
class OptionGroup:
    """Several options of the command line that become one argument of a command.

    Attributes:
        name: the group's name in the table.
        reader: the function of mtool.stages that turns their values into the argument.
        of_models: the command gets one such argument for each model.
    """

    name: str
    reader: str = "options.parse"
    of_models: bool = False

    def read(self, values: Mapping[str, Any]) -> Any:
        """Return the argument for these option values."""
        module, _, function = self.reader.partition(".")
        return getattr(importlib.import_module(f"mtool.stages.{module}"), function)(**values)

    @property
    def parameters(self) -> dict[str, tuple[Any, Any]]:
        """Each option's annotation and default by its name."""
        return {option.name: (annotation_of(option, option.kind), option.default) for option in of_group(self.name)}

    @property
    def rare(self) -> set[str]:
        """The names of the options that only --help-all shows."""
        return {option.name for option in of_group(self.name) if option.is_rare_in(self.name)}


ProjectDeployment = Annotated["Deployment", OptionGroup("run", "deployment.parse")]
"""The project folder, and the device that runs it."""
FlashDeployment = Annotated["Deployment", OptionGroup("flash", "deployment.parse")]
"""The same, with the commands that flash the device and power-cycle it."""
TrialsDeployment = Annotated["Deployment", OptionGroup("trials", "deployment.parse")]
"""The same as for flashing, with a folder for many projects."""
ShapeOptions = Annotated["Options", OptionGroup("quantize")]
"""What determines a model's shapes."""
FrontOptions = Annotated["Options", OptionGroup("preprocess")]
"""What determines a model's shapes, and its states."""
SourceOptions = Annotated["Sequence[Options]", OptionGroup("compile", of_models=True)]
"""How each model is read and becomes C in a folder."""
PartitionOptions = Annotated["Options", OptionGroup("partition")]
"""How a model is read, its backends, and the folder."""
FitOptions = Annotated["Sequence[Options]", OptionGroup("check", of_models=True)]
"""How each model becomes C and a firmware, on any board; nothing is written, and no compiler's version is looked up."""
TuningOptions = Annotated["Options", OptionGroup("tune")]
"""How the model is read and becomes a firmware; its schedules are those that are not tuned."""
ChangedOptions = Annotated["Mapping[str, Any]", OptionGroup("new", "options.parse_changed")]
"""Options that a new project stores: those that differ from their defaults, by name."""
ModuleOptions = Annotated["Options", OptionGroup("module")]
"""How a model becomes the C of a module."""
_OF_A_PROJECT = OptionGroup("project", of_models=True)
ProjectOptions = Annotated["Options", _OF_A_PROJECT]
"""How a model becomes C and a project, with a template, in a folder."""
FirmwareOptions = Annotated["Sequence[Options]", _OF_A_PROJECT]
"""The same, for each model of the firmware."""
