"""A user's choice of a backend: `name`, `name:key=value,…`, `file.py:Class:key=value,…` or `file.toml`.

With `optional` among the options, as in `name:optional`, a backend may compute no operator of the model.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from mtool.base import checked, configuration
from mtool.base.errors import UsageError
from mtool.base.frozen import frozen

COMMON: Mapping[str, str] = {
    "skip": "a node of the model, or several with | between them, that are compiled to C",
    "only": "a node of the model, or several with | between them; all others are compiled to C",
    "regions": "the largest number of regions: those with the most multiply-accumulates",
    "inputs-only": "yes: only regions that read nothing except the model's inputs",
}
"""The options of every backend."""
_PART = re.compile(r"""\s*(?:optional|(?P<key>[\w.-]+)\s*=\s*(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|[^,"']*))\s*(?:,|$)""")
_OPTION = re.compile(r":\s*[\w.-]+\s*=")
_OPTIONAL = re.compile(r"\s*optional\s*(?:,|$)")


@frozen
class BackendSpec:
    """A requested backend.

    where: its name, or the path of a Python file.
    attribute: the class in that file; "": the only backend there.
    options: by name; some are those of every backend.
    optional: it may compute no operator of the model; otherwise that is an error.
    """

    where: str
    attribute: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one has a wrong type or an unknown value.
        """
        checked.fields(self, {})

    @property
    def is_file(self) -> bool:
        """Whether it is the user's Python file."""
        return self.where.endswith(".py")


def parse(text: str) -> BackendSpec:
    """Return the backend that a text describes.

    The parts are separated by colons: the name or the path of a Python file, for a file perhaps its class, then the
    options as key=value with commas between. A value with a comma, a quote or a space at an end is quoted, by "…" (in
    which \\" and \\\\ are a quote and a backslash) or '…'. A path ending in .toml is a file with the keys `backend`,
    perhaps `class`, and a table `options`.

    Raises:
        UsageError: it is malformed, or a file is missing.
    """
    file, colon, flag = text.rpartition(":")
    if colon and file.endswith(".toml") and _OPTIONAL.fullmatch(flag) and not _OPTION.search(file):
        return replace(_from_toml(Path(file)), optional=True)
    if text.endswith(".toml") and not _OPTION.search(text):
        return _from_toml(Path(text))
    where, _, rest = _head(text)
    attribute = ""
    named = rest.split(":", 1)[0]
    if where.endswith(".py") and re.fullmatch(r"[A-Za-z_]\w*", named) and named != "optional":
        attribute, _, rest = rest.partition(":")
    if not where:
        raise _malformed(text, "the name of the backend is missing")
    options: dict[str, str] = {}
    position, optional = 0, False
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None:
            raise _malformed(text, f"{rest[position:]!r} is not a list of key=value, separated by commas")
        key, position = match["key"], match.end()
        if key in options:
            raise _malformed(text, f"{key} is given twice")
        if key is None:
            optional = True
        else:
            options[key] = _unquoted(match["value"])
    return BackendSpec(where, attribute, options, optional)


def _head(text: str) -> tuple[str, str, str]:
    """Split a text at its first colon, or at the one after `.py`, so that a drive letter stays in the path."""
    match = re.match(r"(.*?\.py)(?::|$)", text)
    if match:
        return match[1], ":", text[match.end() :]
    return text.partition(":")


def _unquoted(value: str) -> str:
    value = value.strip()
    if value[:1] == '"':
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value[1:-1] if value[:1] == "'" else value


def _from_toml(path: Path) -> BackendSpec:
    read, _ = configuration.read_toml(path, "--backend ")
    unknown = sorted(read.keys() - {"backend", "class", "options"})
    options = read.get("options", {})
    is_right = isinstance(options, dict) and all(isinstance(read.get(key, ""), str) for key in ("backend", "class"))
    if unknown or not read.get("backend") or not is_right:
        problem = f"unknown {', '.join(unknown)}" if unknown else "missing keys, or values of another type"
        details = ["expected: backend = a string, class = a string, [options] with key = value", f"found: {problem}"]
        raise UsageError(f"--backend {path} does not describe a backend", details=details)
    values = {key: _as_text(value) for key, value in options.items()}
    where = read["backend"]
    if where.endswith(".py") and not Path(where).is_absolute():
        where = str(path.parent / where)
    return BackendSpec(where, read.get("class", ""), values)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "|".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _malformed(text: str, why: str) -> UsageError:
    hint = "for instance: --backend cmsis_nn:path=DIR, --backend './npu.py:MyNpu:skip=conv_2' or --backend npu.toml"
    return UsageError(f"--backend {text}: {why}", hint=hint)
