"""What a user asks of backends: `name`, `name:key=value,…`, `file.py:Class:key=value,…` or `file.toml`.

With `optional` among the options, as in `name:optional`, a backend may compute nothing of the model.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mtool.base import checked, configuration
from mtool.base.errors import UsageError

COMMON: Mapping[str, str] = {
    "skip": "a node of the model, or several behind |, that stay C",
    "only": "a node of the model, or several behind |; all others stay C",
    "regions": "how many regions it gets at most: those of the most multiply-accumulates",
    "inputs-only": "yes: only regions that read nothing but inputs of the model",
}
"""The options of every backend."""
_PART = re.compile(r"""\s*(?:optional|(?P<key>[\w.-]+)\s*=\s*(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|[^,"']*))\s*(?:,|$)""")
_OPTION = re.compile(r":\s*[\w.-]+\s*=")
_OPTIONAL = re.compile(r"\s*optional\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """A backend that is asked for.

    where: its name, or the path of a Python file.
    attribute: the class in that file; "": the only backend there.
    options: by name; some are those of every backend.
    optional: it may compute nothing of the model; otherwise that is an error.
    """

    where: str
    attribute: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one is of another type, or none of those that there are.
        """
        checked.fields(self, {})

    @property
    def is_file(self) -> bool:
        """Whether it is a Python file of the user's own."""
        return self.where.endswith(".py")


def parse(text: str) -> BackendSpec:
    """Return the backend that a text asks for.

    The parts stand behind colons: the name or the path of a Python file, for a file perhaps the class in it, then the
    options as key=value with commas between. A value with a comma, a quote or a space at an end is quoted, by "…" (in
    which \\" and \\\\ are a quote and a backslash) or '…'. What ends in .toml is a file with the keys `backend`,
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
        raise _malformed(text, "it names no backend")
    options: dict[str, str] = {}
    position, optional = 0, False
    while position < len(rest):
        found = _PART.match(rest, position)
        if found is None:
            raise _malformed(text, f"{rest[position:]!r} is not key=value, with commas between")
        key, position = found["key"], found.end()
        if key in options:
            raise _malformed(text, f"{key} stands twice")
        if key is None:
            optional = True
        else:
            options[key] = _unquoted(found["value"])
    return BackendSpec(where, attribute, options, optional)


def _head(text: str) -> tuple[str, str, str]:
    """Split a text at its first colon, or at that behind `.py`; a drive's letter is no part of its own."""
    found = re.match(r"(.*?\.py)(?::|$)", text)
    if found:
        return found[1], ":", text[found.end() :]
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
        found = f"it has {', '.join(unknown)}" if unknown else "they are missing, or of another type"
        details = ["expected: backend = a text, class = a text, [options] with key = value", f"found: {found}"]
        raise UsageError(f"--backend {path} is not one of a backend", details=details)
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
