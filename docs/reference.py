"""Directives of the reference pages, which document from the code what the page's name says.

`commands`: each command with all of its options. `keys`: the keys of a file's records. `schedules`: each schedule with
its knobs. `statuses`: the status codes of the C runtime. `tflite`: TFLite's operators.
"""

import contextlib
import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from pydoc import locate

import tflite
import typer
from docutils import nodes
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mtool.cli import app
from mtool.compiler.frontend.tflite.builtins import BUILTINS
from mtool.compiler.frontend.tflite.rewriting import COPY, ROW
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.discovery import INSTRUCTION_SETS, instruction_set
from mtool.compiler.kernels.schedule import Schedule
from mtool.device.rpc import protocol

ROOT = Path(__file__).parents[1]
WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", typing.Any: "anything"}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, without the columns that are empty in every row."""
    if not rows:
        return []
    used = [any(cells) for cells in zip(*rows, strict=True)]
    written = [[text.replace("|", "\\|") for text, is_used in zip(row, used, strict=True) if is_used]
               for row in (head, *rows)]  # fmt: skip
    lines = [f"| {' | '.join(row)} |" for row in written]
    return [*lines[:1], "|---" * sum(used) + "|", *lines[1:], ""]


def prose(text: str) -> str:
    """Return text of the code as Markdown: `<model>` is not a tag, and pages that it names are links."""
    parts = [part if index % 2 else re.sub(r"[<*]", r"\\\g<0>", part) for index, part in enumerate(text.split("`"))]
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", "`".join(parts))


class _Help:
    """Writes a command's help as Markdown, where --help-all writes it for a terminal."""

    def __init__(self) -> None:
        self.lines: list[str] = []

        self.title = ""
        self.of_every_command: list[str] = []

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.title = name
        yield

    def write_dl(self, rows: Sequence[tuple[str, str]]) -> None:
        lines = table((self.title, ""), [(f"`{name}`", prose(meaning)) for name, meaning in rows])
        if self.title == app.OF_EVERY_COMMAND:
            self.of_every_command = lines
        else:
            self.lines += lines


def commands() -> list[str]:
    """Return each command: what it does, its usage, arguments and options; and the options of every command."""
    lines: list[str] = []
    for name in app.COMMANDS:
        command = app.command_of(name)
        context = typer.Context(command, info_name=name, **command.context_settings)
        context.meta[app.ALL] = True
        written = _Help()
        command.format_options(context, written)
        usage = " ".join(["mtool", name, *command.collect_usage_pieces(context)])
        lines += [f"## mtool {name}", "", f"`{usage}`", "", prose(inspect.getdoc(app.load(name)) or ""), ""]
        lines += written.lines
    return ["## Every command", "", *written.of_every_command, *lines]


def statuses() -> list[str]:
    """Return the status codes of the runtime."""
    rows = [(str(int(code)), *protocol.describe(code).split(": ", 1)) for code in protocol.Status]
    return table(("code", "name", "meaning"), [(code, f"`{name}`", meaning) for code, name, meaning in rows])


def keys(name: str, described: list[type]) -> list[str]:
    """Return the keys of a record and of the records in it, without those that the page has described already."""
    root = locate(name)
    assert isinstance(root, type), name
    found = [root]
    for one in found:
        inner = [field.annotation for field in one.model_fields.values()] if issubclass(one, BaseModel) else []
        while inner:
            of = inner.pop(0)
            inner = [*typing.get_args(of), *inner]
            if isinstance(of, type) and issubclass(of, BaseModel) and of not in (*found, *described):
                found.append(of)
    lines: list[str] = []
    for one in found:
        text, rows = record(one)
        lines += [f"### {one.__name__}", "", prose(text), "", *table(("key", "type", "default", "meaning"), rows)]
    described += found
    return lines


def record(of: type) -> tuple[str, list[tuple[str, str, str, str]]]:
    """Return a record's description, and a row for each of its keys: name, type, default, meaning."""
    if issubclass(of, BaseModel):
        fields = {
            field.alias or name: (kind(field.annotation), "required" if field.is_required() else shown(field.default))
            for name, field in of.model_fields.items()
        }
    else:
        hints = typing.get_type_hints(of)
        fields = {one.name: (kind(hints[one.name]), "") for one in dataclasses.fields(of) if one.name != "file"}
    meanings: dict[str, str] = {}

    def take(found: re.Match[str]) -> str:
        names = found[2].split(", ")
        if not {*names} <= {*fields, "file"}:
            return found[0]
        meanings.update(dict.fromkeys(names, " ".join(found[3].split())))
        return ""

    text = re.sub(r"^( *)(\w+(?:, \w+)*): (.+(?:\n\1 +.+)*)\n?", take, inspect.getdoc(of) or "", flags=re.MULTILINE)
    text = re.sub(r"^(Attributes:|Args:)\n*", "", text, flags=re.MULTILINE)
    return text.strip(), [(f"`{name}`", *rest, prose(meanings.get(name, ""))) for name, rest in fields.items()]


def shown(default: object) -> str:
    """Return a default as a file would have it."""
    plain = list(default) if isinstance(default, tuple | frozenset) else default
    return "" if plain is None or isinstance(plain, BaseModel) else f"`{json.dumps(plain)}`"


def kind(of: typing.Any) -> str:
    """Return a type in the words of a file: text, a number, a list of something."""
    origin, inner = typing.get_origin(of), typing.get_args(of)
    if origin is typing.Annotated:
        return kind(inner[0])
    if origin is typing.Literal:
        return ", ".join(f"`{one}`" if one != "" else '`""`' for one in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(kind(one) for one in inner if one is not type(None))
    if origin in (tuple, list, frozenset):
        several = [kind(one) for one in inner if one is not Ellipsis]
        return f"list of {several[0]}" if len(several) == 1 or Ellipsis in inner else f"[{', '.join(several)}]"
    if origin in (dict, Mapping):
        return f"mapping to {kind(inner[1])}"
    if of in WORDS:
        return WORDS[of]
    return f"[{of.__name__}](#{of.__name__.lower()})"


def schedules() -> list[str]:
    """Return each schedule by operator: where it can be used, its file, what it does, its knobs."""
    lines: list[str] = []
    for op, kernel in registry.KERNELS.items():
        lines += [f"## {op}", ""] if kernel.schedules else []
        for schedule in kernel.schedules:
            supports = inspect.getdoc(getattr(schedule, "fits", schedule.supports)) or ""
            if type(schedule).supports is Schedule.supports:
                supports = "Everything."
            file = Path(inspect.getfile(type(schedule))).relative_to(ROOT)
            lines += [f"### `{schedule.name}` ({INSTRUCTION_SETS[instruction_set(schedule)]})", ""]
            lines += [f"Supports: {supports.splitlines()[0]}", "", f"File: `{file}`", ""]
            lines += [inspect.getdoc(type(schedule)) or "", ""]
            lines += table(("knob", "values", "meaning"), [
                (f"`{name}`", ", ".join(f"`{knob.written(value)}`" for value in knob.values), knob.meaning)
                for name, knob in schedule.knobs().items()
            ])  # fmt: skip
    return lines


def tflite_operators() -> list[str]:
    """Return the names of TFLite's operators: which mtool reads, which it does not."""
    read = {name for name in BUILTINS if name not in (COPY, ROW)} | {"STABLEHLO_COMPOSITE"}
    builtin = {name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
    groups = {
        "Built in": read & builtin,
        "Custom": {name.removeprefix("CUSTOM ") for name in read - builtin},
        "Not read": builtin - read - {"CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"},
    }
    return [f"**{title}.** {' '.join(f'`{name}`' for name in sorted(names))}\n" for title, names in groups.items()]


WRITERS = {"commands": commands, "schedules": schedules, "statuses": statuses, "tflite": tflite_operators}


class Reference(SphinxDirective):
    """Insert what one of the functions above returns."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes."""
        self.env.note_reread()
        if self.name == "keys":
            lines = keys(self.arguments[0], self.env.temp_data.setdefault("described", []))
        else:
            lines = WRITERS[self.name]()
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup(site: Sphinx) -> dict[str, bool]:
    """Add the directives."""
    for name in ("keys", *WRITERS):
        site.add_directive(name, Reference)
    return {"parallel_read_safe": True}
