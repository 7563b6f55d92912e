"""Write docs/files.md: the files that mtool reads and writes, with every key of their schemas.

scripts/formats.py
"""

import dataclasses
import json
import re
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parent))

import docstrings

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
        Configuration,
    ),
    ("boards.yaml", "Maps board names to entries.", boards.Board),
    ("template.yaml", "", template.Template),
    ("mtool.json", "", manifest.Firmware),
    (
        "tuning.jsonl",
        "One JSON object per line. mtool only appends lines. Logs of several computers can be concatenated.",
        record.Measurement,
    ),
)
WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", typing.Any: "anything"}


def records(of: type) -> list[type]:
    """Return a record and those that its keys hold, each once, in the order in which a reader meets them."""
    found = [of]
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
    for name, said, root in FILES:
        lines += ["", f"## {name}", "", said, ""]
        for one in records(root):
            lines += [] if one is root else [f"### {one.__name__} of {name}", ""]
            lines += [*docstrings.markdown(one), "", "| key | type | default |", "|---|---|---|", *rows(one), ""]
    text = "\n".join(line.rstrip() for line in lines)
    return HEAD + re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


if __name__ == "__main__":
    RESULT.write_text(page())
    sys.stdout.write(f"{RESULT}\n")
