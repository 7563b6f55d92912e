"""Parameters that several commands take: single ones, and groups that become one argument of a command.

Nothing here loads the compiler: `--help` and a shell's completion read it.
"""

import functools
import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtool.base import flash_runners, resources
from mtool.base.errors import UsageError
from mtool.base.option_table import OPTIONS, of_group

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


def option(usage: str, help: str, **settings: Any) -> Any:
    """Return an option of a command.

    Args:
        usage: its flags, and what stands for its value: "--golden -g G.npz".
        help: what --help says.
        settings: as of `typer.Option`.
    """
    words = usage.split()
    flags = [word for word in words if word.startswith("-")]
    return typer.Option(*flags, metavar=" ".join(words[len(flags) :]) or None, help=help, **settings)


def argument(metavar: str, help: str, **settings: Any) -> Any:
    """Return an argument of a command: what stands for it in --help, and what it is."""
    return typer.Argument(metavar=metavar, help=help, **settings)


def _of_table(name: str, help: str = "", *more_flags: str) -> Any:
    """Return an option of the table as the command line takes it; `help` and `more_flags` are a command's own."""
    one = OPTIONS[name]
    least, most = one.limits
    return typer.Option(
        *one.spelled,
        *more_flags,
        help=help or one.help,
        rich_help_panel=one.section,
        metavar=one.metavar or None,
        min=least,
        max=most,
        parser=_folder if name == "output_dir" else None,
    )


def output_dir(meaning: str, *others: str) -> Any:
    """Return the option -d with its help; `others` are further names of it."""
    return _of_table("output_dir", meaning, *others)


def boards(meaning: str) -> Any:
    """Return the option -b of a command that means something else by it than the board to build for."""
    return _board_option("--board -b BOARD", meaning, autocompletion=complete_boards)


def output_file(metavar: str, meaning: str) -> Any:
    """Return the option -o with its help."""
    return option(f"--output -o {metavar}", meaning)


def repeat(meaning: str) -> Any:
    """Return the option --repeat with its help."""
    return option("--repeat", meaning, min=1)


_board_option = functools.partial(option, rich_help_panel="The board")

ModelFile = Annotated[Path, argument("MODEL", "The model, .onnx or .tflite.", parser=_model)]
ModelFiles = Annotated[
    list[Path], argument("MODEL...", "The model, .onnx or .tflite; several share one firmware.", parser=_model)
]
ModelOrProject = Annotated[
    Path, argument("MODEL|PROJECT", "The model, .onnx or .tflite, or a project's folder.", parser=_model)
]
ModelsOrProject = Annotated[
    list[Path],
    argument(
        "MODEL...|PROJECT",
        "The model, .onnx or .tflite, of which several share one firmware; or a project's folder.",
        parser=_model,
    ),
]
SEVERAL = {ModelFile: ModelFiles, ModelOrProject: ModelsOrProject}
"""What stands for the model of a command that is done for each of several."""

BoardName = Annotated[
    str, _board_option("--board -b BOARD", "The board; `mtool boards` lists them.", autocompletion=complete_boards)
]
BoardOrProjects = Annotated[str, boards("The board; `mtool boards` lists them; default: a project's own, else host.")]
OnDevice = Annotated[
    Path | None,
    _board_option(
        "--on PROJECT", "The folder of a firmware that has the model as a module (`mtool load`): that is what runs."
    ),
]
Port = Annotated[str, _of_table("port")]
Probe = Annotated[str, _of_table("probe")]
FlashCommand = Annotated[str, _of_table("flash_command")]
PowerCommand = Annotated[str, _of_table("power")]
DryRun = Annotated[bool, _board_option("--dry-run", "Print the commands that would be run, and run none.")]

OutputDir = Annotated[Path | None, _of_table("output_dir")]
SourceDir = Annotated[Path | None, output_dir("The folder to write to; default: build/<model>-<board>-<format>.")]
BuiltDir = Annotated[
    Path | None, output_dir("A project folder, whose build is measured; default: build/<model>-<board>.")
]
Force = Annotated[bool, _of_table("force")]
Keep = Annotated[bool, _of_table("keep")]
ListOptions = Annotated[
    bool,
    option(
        "--options",
        "List what --option takes for this board and template, and do nothing else.",
        rich_help_panel="The project",
    ),
]

Seed = Annotated[int, option("--seed", "The seed of the inputs that are drawn.", min=0)]
_MOST_SAMPLES = 100_000  # all of them are drawn before the first is run
SampleCount = Annotated[int, option("--samples", "The number of inputs to draw.", min=1, max=_MOST_SAMPLES)]
Fill = Annotated[
    str,
    option(
        "--fill zeros|ones|random|FILE",
        "What the inputs are filled with: a pattern, arrays (.npz, .npy), or the bytes of all inputs in order.",
    ),
]

_farm_option = functools.partial(option, rich_help_panel="A board farm")
Scheduler = Annotated[
    str,
    _farm_option(
        "--scheduler ADDRESS",
        "Measure on the boards of a farm: those of the workers of this Dask scheduler, HOST:PORT (docs/farm.md).",
    ),
]
TlsCa = Annotated[Path | None, _farm_option("--tls-ca FILE", "The certificate of who signs those of a board farm.")]
TlsCertificate = Annotated[
    Path | None, _farm_option("--tls-cert FILE", "This computer's certificate, for a board farm.")
]
TlsKey = Annotated[Path | None, _farm_option("--tls-key FILE", "The key of --tls-cert.")]


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Several options of the command line that become one argument of a command.

    Attributes:
        name: which options of the table they are.
        reader: the function of mtool.stages that makes the argument of their values.
        of_models: there is one argument for each model that the command is given.
        help: of options that mean something else in these commands.
    """

    name: str
    reader: str = "options.parse"
    of_models: bool = False
    help: Mapping[str, str] = field(default_factory=dict)

    def read(self, values: Mapping[str, Any]) -> Any:
        """Return the argument that the values of the options make."""
        module, _, function = self.reader.partition(".")
        return getattr(importlib.import_module(f"mtool.stages.{module}"), function)(**values)

    @property
    def parameters(self) -> dict[str, tuple[Any, Any]]:
        """Each option's annotation and default by its name."""
        return {
            name: (Annotated[OPTIONS[name].kind, _of_table(name, self.help.get(name, ""))], OPTIONS[name].default)
            for name in of_group(self.name)
        }


ProjectDeployment = Annotated["Deployment", OptionGroup("run", "deployment.parse")]
"""The project folder, and the device that runs it."""
FlashDeployment = Annotated["Deployment", OptionGroup("flash", "deployment.parse")]
"""And the commands that flash it and cycle its power."""
TrialsDeployment = Annotated[
    "Deployment",
    OptionGroup(
        "trials",
        "deployment.parse",
        help={"output_dir": "The folder for the trials' projects; default: build/tune-<model>-<board>."},
    ),
]
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
