"""A template: a cookiecutter folder and the `template.yaml` that describes it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import yaml
from pydantic import AfterValidator, Field

from mtool.base import records, resources, spelling
from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree, from_folder, is_plain
from mtool.base.option_values import CHANNEL
from mtool.base.records import Strict
from mtool.boards import Board
from mtool.manifest import link_key

if TYPE_CHECKING:
    import jinja2

FILE_NAME = "template.yaml"
_AUTO = "auto"  # of the channel: the board's UART, or semihosting
_DEFINITION = re.compile(r"[A-Za-z_]\w*(=[\w.+-]*)?", re.ASCII)


class Option(Strict):
    """One option of a template: its type, its default, its allowed values and a line of help.

    `choices` are the values of a "choice", `minimum` is the smallest value of an "int". "definitions" are macros for
    the C compiler, NAME or NAME=VALUE; a "folder" is a user's folder, whose files are copied to `extra/`.
    """

    type: Literal["choice", "int", "bool", "text", "definitions", "folder"]
    default: str | int | bool
    help: str
    choices: tuple[str, ...] = ()
    minimum: int | None = None

    def read(self, text: str) -> str | int | bool:
        """Return the value of `text`.

        Raises:
            ValueError: it is not a value of this type; the message says what is expected.
        """
        if self.type == "choice" and text not in self.choices:
            raise ValueError(f"one of {', '.join(self.choices)}")
        wrong = [word for word in text.split() if self.type == "definitions" and not _DEFINITION.fullmatch(word)]
        if wrong:
            raise ValueError(
                f"NAME or NAME=VALUE of letters, digits, _ . + and -, separated by spaces, not {wrong[0]!r}"
            )
        if self.type == "folder" and text and not Path(text).is_dir():
            raise ValueError("an existing folder")
        if self.type == "int":
            if re.fullmatch(r"-?\d+", text) is None or (self.minimum is not None and int(text) < self.minimum):
                raise ValueError("a number" + ("" if self.minimum is None else f" of at least {self.minimum}"))
            return int(text)
        if self.type == "bool":
            if text not in ("true", "false"):
                raise ValueError("true or false")
            return text == "true"
        return text


def _inside(path: str) -> str:
    if not is_plain(path):
        raise ValueError("expected a path inside the project")
    return path


Inside = Annotated[str, AfterValidator(_inside)]


Transport = Literal["process", "emulator", "serial"]


class Folders(Strict):
    """A project's folders for the model's files, the runtime's headers and sources, and mt_build.h.

    `ports` is the folder for the drivers of the board (crt/ports); empty: the template has its own.
    """

    model: Inside = "model"
    headers: Inside = "crt/include"
    sources: Inside = "crt/src"
    build_header: Inside = "include"
    ports: Inside | Literal[""] = ""


class Template(Strict):
    """The contents of `template.yaml`, and its folder; `is_own`: it is mtool's, not a user's.

    `builder` is the build stage's tool, `transport` how the host communicates with the firmware (`transports`: by the
    value of the option `channel`, where it is another one), `firmware` maps a firmware kind ("host_driven",
    "standalone") to the file that a build makes, relative to the project folder and below `build/`, which holds all
    build products. The file's name may depend on the board: it is rendered like the project's texts. `protects`: it
    supports memory protection of models (crt/include/mtool.h) on cores that have it, or that have one of these units
    (mtool/boards/protection.py). `program` is the kind of user's own program that it can build as the standalone
    firmware: C with a main, an Arduino sketch, or none.
    """

    name: str
    folder: Path
    is_own: bool = False
    description: str
    builder: Literal["host", "cmake", "west", "arduino", "zig"]
    transport: Transport
    transports: dict[str, Transport] = Field(default={})
    firmware: dict[str, Annotated[str, Field(pattern=r"^build/")]]
    folders: Folders = Folders()
    program: Literal["c", "sketch", "none"] = "none"
    protects: bool | tuple[str, ...] = False
    options: dict[str, Option] = Field(default={})

    def supports_protection(self, unit: str) -> bool:
        """Return whether it supports memory protection by a unit, by its label ("pmsav7")."""
        return self.protects if isinstance(self.protects, bool) else unit in self.protects

    def read_options(self, texts: Mapping[str, str], board: Board) -> dict[str, str | int | bool]:
        """Return the value of every option: the given one, else the board's default, else the template's.

        Raises:
            UsageError: an option is unknown or its value is wrong; the message lists the choices.
        """
        texts = {**{name: str(value) for name, value in board.options.get(self.name, {}).items()}, **texts}
        for name in texts:
            if name not in self.options and name != link_key.OPTION:  # which every template has: it is a secret
                what = f"the template {self.name} has no option {name!r}"
                details = [f"{option_name}: {option.help}" for option_name, option in sorted(self.options.items())]
                raise UsageError(what, details=details, hint=spelling.did_you_mean(name, self.options))
        values: dict[str, str | int | bool] = {}
        for name, option in sorted(self.options.items()):
            try:
                values[name] = option.read(texts[name]) if name in texts else option.default
            except ValueError as expected:
                what = f"invalid value {texts[name]!r} for option {name} of the template {self.name}"
                raise UsageError(what, details=[f"expected: {expected}", f"{name}: {option.help}"]) from None
        if values.get(CHANNEL) == _AUTO:
            values[CHANNEL] = "uart" if "uart" in board.ports else "semihosting"
        return values


def own_texts(folder: str) -> tuple[FileTree, "jinja2.Environment"]:
    """Return mtool's own texts in a folder of `project_templates`, and the Jinja environment that renders them."""
    import jinja2  # imported only to render

    top = resources.path("project_templates")
    return from_folder(top / folder), jinja2.Environment(
        loader=jinja2.FileSystemLoader([top / folder, top]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def names() -> list[str]:
    """Return the names of mtool's own templates."""
    return sorted(path.parent.name for path in resources.path("project_templates").glob(f"*/{FILE_NAME}"))


def load(template: str) -> Template:
    """Read a template: one of mtool's own by its name, or a user's by the path of its folder.

    Raises:
        UsageError: there is none, or its template.yaml violates the schema; the message has the choices or the key.
    """
    is_own = template in names()
    folder = (resources.path("project_templates") / template if is_own else Path(template)).resolve()
    path = folder / FILE_NAME
    if not path.is_file():
        raise UsageError(
            f"there is no template {template!r}",
            details=[f"mtool's own: {', '.join(names())}", f"as a folder: {path} does not exist"],
            hint=spelling.did_you_mean(template, names()),
        )
    try:
        entry = resources.read_yaml(path)
        if not isinstance(entry, dict):
            raise UsageError(f"{path} is not a mapping", details=["expected: builder, transport, firmware, options"])
        if reserved := {"name", "folder", "is_own"} & {*entry}:
            raise UsageError(
                f"{path} does not match the schema", details=[f"{key}: unknown key" for key in sorted(reserved)]
            )
    except (yaml.YAMLError, ValueError, RecursionError) as invalid:
        raise UsageError(f"{path} is not YAML", details=str(invalid).splitlines()) from None
    facts = {"name": template if is_own else folder.name, "folder": folder, "is_own": is_own}
    return records.read(Template, {**entry, **facts}, f"{path} does not match the schema")
