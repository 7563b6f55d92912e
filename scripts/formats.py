"""Write docs/files.md: the files that mtool reads and writes, with every key of their schemas.

scripts/formats.py
"""

import dataclasses
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from mtool import boards, manifest
from mtool.base.configuration import Configuration
from mtool.compiler.tuned import record
from mtool.project import template

RESULT = Path(__file__).parents[1] / "docs" / "files.md"
# ruff: noqa: E501 (rows of a table)
HEAD = """# Files

The files that mtool reads and writes, with every key. `make reference` writes this page from the schemas; don't edit it.
All files refuse unknown keys, and the error suggests the correct one.

| file | written by | contents |
|---|---|---|
| `model.onnx`, `model.tflite` | you | a model, with the files that its external data refer to |
| `X.npz`, `X.npy` | you | inputs: one array per input, named after it or `x0`, `x1`…, with a leading axis of samples ([quantize.md](quantize.md#the-data)); with `y0`, `y1`…: a golden file ([verify.md](verify.md)) |
| `mtool.toml` | you | [settings](#mtooltoml) of a folder and its subfolders |
| `boards.yaml`, `my_boards.yaml` | you | [boards](#boardsyaml): [add a board](add-a-board.md) |
| `template.yaml` | you | [your own template](#templateyaml): [add a template](add-a-template.md) |
| `mtool.json` | mtool | [the description](#mtooljson) of a compiled model and its project |
| `.mtool/files.json` | mtool | the files that mtool wrote to a folder, with their SHA-256 ([projects.md](projects.md)) |
| `tuning.jsonl` | mtool | [a tuning log](#tuningjsonl): [tune.md](tune.md) |
| `report.html` | mtool | a self-contained page: `mtool report` |
| a backend's device file | you | TOML: [backends.md](backends.md) |
| a backend's regions | mtool | JSON: [backends-json.md](backends-json.md) |
| RPC messages | mtool | `crt/PROTOCOL.md` in the repository |

**JSON output of commands.** With `--json`, stdout has one object: `schema_version`, `command`, and the command's
results or `error` ([errors.md](errors.md)).
"""
FILES = (
    (
        "mtool.toml",
        """mtool reads it from the working folder or the nearest parent folder that has one. Because it can name programs to run,
mtool refuses a file that another user owns or can write to.""",
        (Configuration,),
    ),
    ("boards.yaml", "Maps board names to entries.", (boards.Board,)),
    ("template.yaml", "", (template.Template,)),
    ("mtool.json", "", (manifest.Firmware,)),
    (
        "tuning.jsonl",
        "One JSON object per line. mtool only appends lines. Logs of several computers can be concatenated.",
        (record.Measurement, record.WholePlan),
    ),
)
_SECTION = re.compile(r"^(Args|Returns|Raises|Attributes|Yields):$")
_ITEM = re.compile(r"^(\*{0,2}[A-Za-z_][\w.]*(?:, [A-Za-z_]\w*)*): (.*)$")
WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", typing.Any: "anything"}


def markdown(of: object) -> list[str]:
    """Return a docstring's lines as Markdown: its sections' entries are items of a list."""
    lines: list[str] = []
    section = False
    items = False
    for line in escaped(inspect.getdoc(of) or "").splitlines():
        if _SECTION.match(line):
            lines += [line, ""] if line != "Args:" else []
            section, items = True, False
            continue
        section = section and (not line or line.startswith(" "))
        entry = _ITEM.match(line[4:] if section else line)
        begins = items or not lines or not lines[-1]
        if entry is not None and (not line.startswith("     ") if section else entry[1].islower() and begins):
            if not items and lines and lines[-1]:
                lines.append("")
            lines.append(f"- {_names(entry[1])}: {entry[2]}")
            items = True
        elif items and line.startswith(" "):
            lines.append(f"  {line.strip()}")
        else:
            items = False
            lines.append(line.strip() if section else line)
    return lines


def _names(text: str) -> str:
    return ", ".join(f"`{name.strip()}`" for name in text.split(","))


def escaped(text: str) -> str:
    """Return text in which Markdown finds no tags: `<model>` outside of code."""
    parts = text.split("`")
    return "`".join(part if index % 2 else part.replace("<", "\\<") for index, part in enumerate(parts))


def records(*of: type) -> list[type]:
    """Return records and those that their keys hold, each once, in the order in which a reader meets them."""
    found = list(of)
    for one in found:
        inner = [field.annotation for field in one.model_fields.values()] if issubclass(one, BaseModel) else []
        while inner:
            kind = inner.pop(0)
            inner = [*typing.get_args(kind), *inner]
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in found:
                found.append(kind)
    return found


def rows(of: type) -> list[str]:
    """Return a row for each key of a record: its name, type, and default."""
    found: list[tuple[str, str, str]] = []
    if issubclass(of, BaseModel):
        for name, field in of.model_fields.items():
            default = "required" if field.is_required() else shown(field.default)
            found.append((field.alias or name, kind(field.annotation), default))
    elif dataclasses.is_dataclass(of):
        hints = typing.get_type_hints(of)
        found = [(one.name, kind(hints[one.name]), "") for one in dataclasses.fields(of) if one.name != "file"]
    return [f"| `{name}` | {what} | {default} |" for name, what, default in found]


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
        return ", ".join(f"`{one}`" for one in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(kind(one) for one in inner if one is not type(None))
    if origin in (tuple, list, frozenset):
        several = [kind(one) for one in inner if one is not Ellipsis]
        return f"list of {several[0]}" if len(several) == 1 or Ellipsis in inner else f"[{', '.join(several)}]"
    if origin in (dict, Mapping):
        return f"mapping to {kind(inner[1])}"
    return WORDS.get(of) or of.__name__


def page() -> str:
    """Return the page."""
    lines: list[str] = []
    for name, said, roots in FILES:
        lines += ["", f"## {name}", "", said, ""]
        for one in records(*roots):
            lines += [] if one is roots[0] else [f"### {one.__name__} of {name}", ""]
            lines += [*markdown(one), "", "| key | type | default |", "|---|---|---|", *rows(one), ""]
    text = "\n".join(line.rstrip() for line in lines)
    return HEAD + re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


if __name__ == "__main__":
    RESULT.write_text(page())
    sys.stdout.write(f"{RESULT}\n")
