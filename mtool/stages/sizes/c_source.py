"""The functions of generated C: their length in tokens, and the functions that they call."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|[^\s\w]")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(r"^(?:MT_ALONE |static )*[\w ]+?\*?(\w+)\([^{;]*\)\n\{\n(.*?)^\}$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"\b([A-Za-z_]\w*) ?\(")
_VARIABLE = re.compile(r"^static (?!const)((?:struct |union )?\w+) \w+(?:\[(\d+)\])?(?: =.*)?;", re.MULTILINE)
_TABLE = re.compile(r"^(?:static )?const ([\w ]+?) \w+(?:\[\w*\])? = \{(.*?)\};", re.MULTILINE | re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_INCLUDE = re.compile(r'^#include "(\w+)\.h"$', re.MULTILINE)
_SIZES = {"uint8_t": 1, "int8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "float": 4,
          "int64_t": 8, "uint64_t": 8, "double": 8, "DLTensor": 40, "union mt_value": 8}  # fmt: skip
_LARGEST = 64  # bytes of a structure that is not listed


@dataclass(frozen=True, slots=True)
class Function:
    """A function's length: the tokens of its body; and whether it computes with 64 bits."""

    tokens: int
    is_wide: bool


@dataclass(frozen=True, slots=True)
class CSource:
    """Functions, calls and data in the C of a model.

    Attributes:
        functions: each function's length, by its name.
        called: every name that is followed by a parenthesis.
        is_wide: there is arithmetic of 64 bits.
        has_float: there is arithmetic of floats.
        data_bytes: variables besides the arena.
        table_bytes: constants that are no weights: descriptors of tensors and functions, names, the graph's JSON.
        included: the headers that it includes, without ".h".
    """

    functions: Mapping[str, Function]
    called: frozenset[str]
    is_wide: bool
    has_float: bool
    data_bytes: int = 0
    table_bytes: int = 0
    included: frozenset[str] = frozenset()


def sources(files: Iterable[str]) -> list[str]:
    """Return the names of a model's C files that hold functions."""
    return sorted(name for name in files if name.endswith(".c") and not name.endswith("_weights.c"))


def read(texts: Iterable[str]) -> CSource:
    """Read the C files of a model, its weights left out."""
    functions: dict[str, Function] = {}
    called: set[str] = set()
    is_wide = has_float = False
    data_bytes = table_bytes = 0
    included: set[str] = set()
    for source in texts:
        text = _COMMENT.sub(" ", source)
        for name, body in _FUNCTION.findall(text):
            functions[name] = Function(len(_TOKEN.findall(body)), _is_wide(body))
        called |= set(_CALL.findall(text))
        is_wide = is_wide or _is_wide(text)
        has_float = has_float or "float" in text or "double" in text
        data_bytes += sum(_SIZES.get(kind, _LARGEST) * int(count or 1) for kind, count in _VARIABLE.findall(text))
        table_bytes += sum((8 if "int64" in kind else 4) * (body.count(",") + 1) for kind, body in _TABLE.findall(text))
        table_bytes += sum(len(string) + 1 for string in _STRING.findall(_INCLUDE.sub("", text)))
        included |= set(_INCLUDE.findall(text))
    return CSource(functions, frozenset(called), is_wide, has_float, data_bytes, table_bytes, frozenset(included))


def _is_wide(text: str) -> bool:
    return "int64_t" in text or "double" in text
