"""Options of the project: its folder and its template."""

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from mtool.base.errors import UsageError

_option = functools.partial(typer.Option, rich_help_panel="The project")


def _folder(text: str) -> Path:
    """Read a folder's name. None at all is no name of the working folder: a shell's variable that is not set."""
    if not text:
        raise UsageError("--output-dir is empty", hint="give a folder, or leave the option out")
    return Path(text)


def output_dir(meaning: str, *others: str) -> Any:
    """Return the option -d with its help; `others` are further names of it."""
    return _option("--output-dir", "-d", *others, metavar="DIR", parser=_folder, help=meaning, show_default=False)


OutputDir = Annotated[Path | None, output_dir("The project folder; default: build/<model>-<board>.")]
SourceDir = Annotated[Path | None, output_dir("The folder to write to; default: build/<model>-<board>-<format>.")]
BuiltDir = Annotated[
    Path | None, output_dir("A project folder, whose build is measured; default: build/<model>-<board>.")
]
TemplateName = Annotated[
    str,
    _option("--template", "-t", metavar="NAME|DIR", help="A template; default: the board's first.", show_default=False),
]
TemplateOptions = Annotated[
    list[str] | None,
    _option("--option", metavar="NAME=VALUE", help="An option of the template; may be repeated.", show_default=False),
]
ListOptions = Annotated[
    bool, _option("--options", help="List what --option takes for this board and template, and do nothing else.")
]
TrustTemplate = Annotated[
    bool, _option("--trust-template", help="Let a template of your own load Python code (SECURITY.md).")
]
Force = Annotated[
    bool, _option("--force", help="Overwrite or remove files in the output folder that mtool did not write.")
]
Keep = Annotated[bool, _option("--keep", help="Leave files in the output folder that you edited as they are.")]

TakesModules = Annotated[
    bool, _option("--modules", help="The firmware takes models at run time, as modules (docs/modules.md).")
]
ModuleKey = Annotated[
    Path | None,
    _option(
        "--module-key",
        metavar="FILE",
        help="With --modules: the public key of those who sign them (`mtool key`).",
        show_default=False,
    ),
]
UnsignedModules = Annotated[
    bool, _option("--unsigned-modules", help="With --modules: those that nobody has signed, too; for development.")
]
