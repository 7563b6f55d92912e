"""The functions of generated C: their length in tokens, and the functions that they call."""

import itertools
from collections.abc import Iterable, Mapping

from mtool.base.frozen import frozen
from mtool.compiler.codegen.c_text import Part, tokens, without_comments

SIZES = {"uint8_t": 1, "int8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "float": 4,
         "int64_t": 8, "uint64_t": 8, "double": 8, "DLTensor": 40, "mt_value": 8}  # fmt: skip
_LARGEST = 64  # bytes of a structure that is not listed


@frozen
class Function:
    """A function's length in tokens, and whether it computes with 64 bits."""

    tokens: int
    is_wide: bool


@frozen
class CSource:
    """Functions, calls and data in a model's C.

    Attributes:
        functions: each function's length, by its name.
        called: every name followed by a parenthesis.
        macros: functions that a macro of the runtime defines: its first argument.
        is_wide: there is 64-bit arithmetic.
        has_float: there is floating-point arithmetic.
        data_bytes: the variables' bytes, without the arena.
        table_bytes: constants other than weights: descriptors of tensors and functions, names, the graph's JSON.
        included: the included headers, without ".h".
    """

    functions: Mapping[str, Function]
    called: frozenset[str]
    macros: frozenset[str]
    is_wide: bool
    has_float: bool
    data_bytes: int = 0
    table_bytes: int = 0
    included: frozenset[str] = frozenset()


def sources(files: Iterable[str]) -> list[str]:
    """Return the names of a model's C files that contain functions."""
    return sorted(name for name in files if name.endswith(".c") and not name.endswith("_weights.c"))


def read(parts: Iterable[Part]) -> CSource:
    """Analyze the parts of a model's C files, without its weights."""
    functions: dict[str, Function] = {}
    words, called, macros, included = set[str](), set[str](), set[str](), set[str]()
    data_bytes = table_bytes = 0
    for part in parts:
        if part.kind == "include":
            included.add(part.name.removesuffix(".h"))
            continue
        text = without_comments(part)
        code = tokens(text)
        words |= {*code}
        called |= {name for name, after in itertools.pairwise(code) if after == "("}
        if part.kind == "text":
            macros |= {code[n + 2] for n, name in enumerate(code[:-2]) if name.isupper() and code[n + 1] == "("}
        strings = text.replace("\\\\", "__").replace('\\"', "__").split('"')[1::2]
        table_bytes += sum(len(string) + 1 for string in strings)
        if part.kind == "function":
            body = code[code.index("{") + 1 : -1]
            functions[part.name] = Function(len(body), _is_wide(body))
        elif part.kind == "object" and "const" in code[:2]:
            is_list = code[code.index("=") + 1] == "{"
            table_bytes += (8 if "int64_t" in code else 4) * (code.count(",") + 1) * is_list
        elif part.kind == "object" and part.is_static and code[2] != "{":
            count = int(code[code.index("[") + 1]) if "[" in code else 1
            data_bytes += count * SIZES.get(code[code.index(part.name) - 1], _LARGEST)
    has_float = any("float" in token or "double" in token for token in words)
    return CSource(
        functions, frozenset(called), frozenset(macros), _is_wide(words), has_float, data_bytes, table_bytes,
        frozenset(included),
    )  # fmt: skip


def _is_wide(tokens: Iterable[str]) -> bool:
    return any("int64_t" in token or "double" in token for token in tokens)
