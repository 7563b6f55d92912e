"""The C of an operator at several sizes becomes its C at any: numbers that differ become formulas of the sizes.

Where a schedule writes other lines for what is left over of whole tiles, the lines of each remainder stand behind a
test of it.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mtool.base.formulas import Point
from mtool.compiler.ir.parametric import DifferError, Joiner
from mtool.compiler.ir.parametric_reals import real_formula

PREFIX = "size_"
"""Of the variables that hold the run-time sizes in a function."""

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFuUlL]*|\s+|.', re.S
)
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_WHOLE = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)")
_NUMBER = re.compile(r"\.?\d")
_ANY_NUMBER = re.compile(r"(?<![\w.])(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFuUlL]*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_UNROLL = re.compile(r"^ *MT_UNROLL\(\d+\)\n", re.M)
_BYTES = ("memcpy", "memset", "memmove", "MT_FLASH_COPY")  # whose last argument is a size_t
_WIDE = {"INT64_C": "(int64_t)", "UINT64_C": "(uint64_t)"}  # macros that take a literal


@dataclass(frozen=True, slots=True)
class JoinedText:
    """A function's body, and the sizes that it depends on, by their symbols."""

    text: str
    symbols: frozenset[str]


def without_hints(texts: Sequence[str]) -> list[str]:
    """Return texts without what comments and hints of unrolling make different; what the C does is the same."""
    plain = list(texts)
    for pattern in (_UNROLL, _COMMENT):
        if len({tuple(pattern.findall(text)) for text in plain}) > 1:
            plain = [pattern.sub("", text) for text in plain]
    return ["\n".join(line for line in text.split("\n") if line.strip()) for text in plain]


def joined_text(joiner: Joiner, texts: Sequence[str], top: Point) -> JoinedText:
    """Return the text that is each of these at its point.

    Args:
        joiner: of the points.
        texts: the body at each point.
        top: the largest sizes, which arrays are declared for.

    Raises:
        DifferError: they differ in more than numbers that follow formulas, or where C wants a constant.
    """
    tokens = [_tokens(text) for text in texts]
    if len({len(one) for one in tokens}) != 1:
        raise DifferError("it has other C at other sizes")
    made, symbols = list(tokens[0]), set[str]()
    for index, column in enumerate(zip(*tokens, strict=True)):
        if len(set(column)) == 1:
            continue
        if not all(_NUMBER.match(token) for token in column):
            raise DifferError(f"it has other C at other sizes: {', '.join(dict.fromkeys(column))}")
        before = tokens[0][:index]
        if _is_declared_length(before):
            made[index] = _longest(joiner, column, top)
            continue
        if _is_static(before):
            raise DifferError("a table in it depends on the size")
        made[index], used = _number(joiner, column, before)
        symbols |= used
        opening = _opening(made, index)
        if opening is not None and opening in _WIDE:
            at = max(n for n in range(index) if made[n] == opening)
            made[at] = _WIDE[opening]
    return JoinedText("".join(made), frozenset(symbols))


@functools.lru_cache(maxsize=100_000)
def skeleton(line: str) -> str:
    """Return a line without what its numbers are."""
    return _ANY_NUMBER.sub("#", line)


@functools.lru_cache(maxsize=10_000)
def _tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text))


def declared_names(text: str) -> set[str]:
    """Return the names that are declared in lines of C, at least."""
    return set(re.findall(r"^ *(?:static )?(?:const )?(?:struct )?\w+ \*?(?:const )?(\w+)(?= =|;|\[)", text, re.M))


def names_in(text: str) -> set[str]:
    """Return all names in lines of C."""
    return {token for token in _tokens(text) if _NAME.fullmatch(token)}


def types_and_functions(text: str) -> set[str]:
    """Return the types and the functions in lines of C."""
    called = re.findall(r"([A-Za-z_]\w*)\(", text)
    return {*called} | {name for name in names_in(text) if name.endswith("_t") or name in ("float", "double", "int")}


def _longest(joiner: Joiner, column: Sequence[str], top: Point) -> str:
    """Return the length of an array that suffices for all sizes up to the largest."""
    formula = joiner.formula([_whole(token) for token in column])
    if formula is None:
        raise DifferError(f"the length of an array follows no formula: {', '.join(dict.fromkeys(column))}")
    longest = formula.at(dict(zip(joiner.names, top, strict=True)))
    for token, point in zip(column, joiner.points, strict=True):
        if _whole(token) > longest and all(size <= most for size, most in zip(point, top, strict=True)):
            raise DifferError("an array would be longest at a smaller size")
    return str(longest)


def _number(joiner: Joiner, column: Sequence[str], before: Sequence[str]) -> tuple[str, set[str]]:
    if all(_WHOLE.fullmatch(token) for token in column):
        suffixes = {token.lstrip("0123456789") for token in column}
        formula = joiner.formula([_whole(token) for token in column])
        if formula is None or len(suffixes) != 1:
            raise DifferError(f"a number in its C follows no formula: {', '.join(dict.fromkeys(column))}")
        cast = {"": "", "u": "(uint32_t)", "ll": "(int64_t)", "ull": "(uint64_t)"}[suffixes.pop().lower()]
        if not cast and _called(before) in _BYTES and _arguments(before) == 2:
            cast = "(size_t)"
        return f"{cast}{formula.c(PREFIX)}", formula.names
    is_single = all(token.endswith(("f", "F")) for token in column)
    kind = np.float32 if is_single else np.float64
    values = [float(kind(token.rstrip("fF"))) for token in column]
    real = real_formula(joiner.formula, joiner.names, joiner.points, values, joiner.scales)
    if real is None or (real.is_inverse and real.is_single != is_single):
        raise DifferError(f"a number in its C follows no formula: {', '.join(dict.fromkeys(column))}")
    return real.c(PREFIX, is_single=is_single), real.formula.names


def _whole(token: str) -> int:
    found = _WHOLE.fullmatch(token)
    if found is None:
        raise DifferError(f"{token} is no whole number")
    return int(found[1], 0) if found[1].lower().startswith("0x") else int(found[1])


def _significant(tokens: Sequence[str], index: int) -> Iterator[tuple[int, str]]:
    """Yield the tokens before an index, the last first, without blanks."""
    for number in range(index - 1, -1, -1):
        if not tokens[number].isspace():
            yield number, tokens[number]


def _is_declared_length(before: Sequence[str]) -> bool:
    """Whether what comes next stands in the brackets of an array's declaration."""
    depth = 0
    for index, token in _significant(before, len(before)):
        if token in ";{}" and not depth:
            return False
        if token == "]":
            depth += 1
        elif token == "[" and depth:
            depth -= 1
        elif token == "[":
            names = [name for _, name in _significant(before, index)]
            while names and names[0] == "]":  # a dimension before it
                del names[: names.index("[") + 1]
            is_typed = len(names) > 1 and all(_NAME.fullmatch(name) for name in names[:2])
            return is_typed and names[1] not in ("return", "else")
    return False


def _is_static(before: Sequence[str]) -> bool:
    """Whether what comes next is a part of a static variable's initialiser."""
    for _, token in _significant(before, len(before)):
        if token == ";":
            return False
        if token == "static":
            return True
    return False


def _opening(tokens: Sequence[str], index: int) -> str | None:
    """Return the name before the parenthesis that was just opened."""
    near = [token for _, token in zip(range(2), (token for _, token in _significant(tokens, index)), strict=False)]
    return near[1] if len(near) == 2 and near[0] == "(" else None


def _called(before: Sequence[str]) -> str:
    """Return the function in whose arguments what comes next stands."""
    depth = 0
    for index, token in _significant(before, len(before)):
        if token == ")":
            depth += 1
        elif token == "(" and depth:
            depth -= 1
        elif token == "(":
            return next((name for _, name in _significant(before, index)), "")
    return ""


def _arguments(before: Sequence[str]) -> int:
    """Return how many arguments of a call stand before what comes next."""
    depth, count = 0, 0
    for _, token in _significant(before, len(before)):
        if token in ")]":
            depth += 1
        elif token in "([" and depth:
            depth -= 1
        elif token in "([":
            return count
        elif token == "," and not depth:
            count += 1
    return count
