"""The parameters of commands: single ones, and groups that become one argument.

Nothing here loads the compiler: `--help` and a shell's completion read it.
"""

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtool.base import flash_runners, resources
from mtool.base.errors import UsageError
from mtool.base.option_table import Option, of_group

if TYPE_CHECKING:
    from mtool.commands import Deployment, Options

HOST = "host"  # the board that is always there
_NAME = re.compile(r"^(\w[\w.-]*):", re.MULTILINE)


def complete_boards(incomplete: str) -> list[str]:
    """Return the boards whose names begin so: the keys of boards.yaml that are not indented.

    The schema of boards is not read: that takes longer than a key press may.
    """
    return _keys(resources.path("boards.yaml"), incomplete)


def complete_runners(incomplete: str) -> list[str]:
    """Return the flash runners whose names begin so."""
    return _keys(flash_runners.FILE, incomplete)


def _keys(path: Path, incomplete: str) -> list[str]:
    try:
        return [name for name in _NAME.findall(path.read_text(encoding="utf-8")) if name.startswith(incomplete)]
    except (OSError, ValueError):
        return []


def _folder(text: str) -> Path:
    """Read a folder's name. An empty one is not the working folder: it is a shell's variable that is not set."""
    if not text:
        raise UsageError("--output-dir is empty", hint="give a folder, or leave the option out")
    return Path(text)


def _model(text: str) -> Path:
    """Read a model's path; an empty one is not a path."""
    if not text:
        raise UsageError("the model's path is empty", hint="give the path of an .onnx or .tflite file")
    return Path(text)


_READERS = {"model": _model, "folder": _folder}
_COMPLETIONS = {"boards": complete_boards, "runners": complete_runners}


def annotation_of(one: Option, kind: Any) -> Any:
    """Return the annotation of a parameter: its type, and an option or argument of the table as typer takes it."""
    settings: dict[str, Any] = {
        "help": one.help,
        "rich_help_panel": one.section or None,
        "metavar": one.metavar or None,
        "min": one.least,
        "max": one.most,
        "parser": _READERS.get(one.reads),
        "autocompletion": _COMPLETIONS.get(one.completes),
    }
    return Annotated[kind, typer.Argument(**settings) if one.argument else typer.Option(*one.flags, **settings)]


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Several options of the command line that become one argument of a command.

    Attributes:
        name: which options of the table they are.
        reader: the function of mtool.stages that makes the argument of their values.
        of_models: there is one argument for each model that the command is given.
    """

    name: str
    reader: str = "options.parse"
    of_models: bool = False

    def read(self, values: Mapping[str, Any]) -> Any:
        """Return the argument that the values of the options make."""
        module, _, function = self.reader.partition(".")
        return getattr(importlib.import_module(f"mtool.stages.{module}"), function)(**values)

    @property
    def parameters(self) -> dict[str, tuple[Any, Any]]:
        """Each option's annotation and default by its name."""
        return {one.name: (annotation_of(one, one.kind), one.default) for one in of_group(self.name)}


ProjectDeployment = Annotated["Deployment", OptionGroup("run", "deployment.parse")]
"""The project folder, and the device that runs it."""
FlashDeployment = Annotated["Deployment", OptionGroup("flash", "deployment.parse")]
"""And the commands that flash it and cycle its power."""
TrialsDeployment = Annotated["Deployment", OptionGroup("trials", "deployment.parse")]
"""The same, with a folder for many projects."""
ShapeOptions = Annotated["Options", OptionGroup("quantize")]
"""What a model's shapes follow from."""
SourceOptions = Annotated["Sequence[Options]", OptionGroup("compile", of_models=True)]
"""What each model is, and how it becomes C, in a folder."""
PartitionOptions = Annotated["Options", OptionGroup("partition")]
"""Which model and which backends, in a folder."""
FitOptions = Annotated["Sequence[Options]", OptionGroup("check", of_models=True)]
"""How each model becomes C and a firmware, on any board; nothing is written, and no compiler asked for its version."""
TuningOptions = Annotated["Options", OptionGroup("tune")]
"""What the model is, and how it becomes a firmware; of the schedules those that are not to be tuned."""
GivenOptions = Annotated["Mapping[str, Any]", OptionGroup("new", "options.parse_given")]
"""Options of a project that are stored, not used: those that differ from their defaults, by their names."""
ModuleOptions = Annotated["Options", OptionGroup("module")]
"""How a model becomes the C of a module."""
_OF_A_PROJECT = OptionGroup("project", of_models=True)
ProjectOptions = Annotated["Options", _OF_A_PROJECT]
"""How a model becomes C, and a project, by a template, in a folder."""
FirmwareOptions = Annotated["Sequence[Options]", _OF_A_PROJECT]
"""The same, of each model of the firmware."""
