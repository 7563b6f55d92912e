"""Generalize an operator's C from several sizes to any size: numbers that differ become formulas of the sizes.

If a schedule writes other lines for the remainder after whole tiles, the lines for each remainder are put in a branch.
"""

import difflib
import functools
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from mtool.base.formulas import Point
from mtool.base.frozen import frozen
from mtool.compiler.ir.parametric import DifferError, Joiner, real_formula

PREFIX = "size_"
"""The prefix of the variables that hold the run-time sizes in a function."""
_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFuUlL]*|\s+|.', re.S
)
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_WHOLE = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)")
_NUMBER = re.compile(r"\.?\d")
_ANY_NUMBER = re.compile(r"(?<![\w.])(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFuUlL]*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_UNROLL = re.compile(r"^ *MT_UNROLL\(\d+\)\n", re.M)
_STATEMENTS = ("for", "if", "while", "return", "switch")
_BYTES = ("memcpy", "memset", "memmove", "MT_FLASH_COPY")  # functions whose last argument is a size_t
_WIDE = {"INT64_C": "(int64_t)", "UINT64_C": "(uint64_t)"}  # macros that take a literal


@frozen
class ParametricC:
    """Lines of C, such as a function's body, and the sizes that they depend on, by their symbols.

    is_branch: whether they are a branch on a remainder.
    """

    text: str
    symbols: frozenset[str] = frozenset()
    is_branch: bool = False


def without_hints(texts: Sequence[str]) -> list[str]:
    """Remove comments and unrolling hints, which may differ without changing what the C does."""
    plain = list(texts)
    for pattern in (_UNROLL, _COMMENT):
        if len({tuple(pattern.findall(text)) for text in plain}) > 1:
            plain = [pattern.sub("", text) for text in plain]
    return ["\n".join(line for line in text.split("\n") if line.strip()) for text in plain]


def parametric_c(joiner: Joiner, texts: Sequence[str], top: Point) -> ParametricC:
    """Join texts for several points into one for all sizes.

    Args:
        joiner: the joiner of the points.
        texts: the body at each point.
        top: the largest sizes, for which arrays are declared.

    Raises:
        DifferError: they differ in more than numbers with a formula, or where C needs a constant.
    """
    tokens = [_tokens(text) for text in texts]
    if len({*map(len, tokens)}) != 1:
        raise DifferError("its C differs between sizes")
    joined, symbols = list(tokens[0]), set[str]()
    for index, column in enumerate(zip(*tokens, strict=True)):
        if len(set(column)) == 1:
            continue
        if not all(_NUMBER.match(token) for token in column):
            raise DifferError(f"its C differs between sizes: {', '.join(dict.fromkeys(column))}")
        before = [(number, token) for number, token in enumerate(joined[:index]) if not token.isspace()]
        inside = _Bracket.around(before)
        if inside.is_declared_length:
            joined[index] = _longest(joiner, column, top)
            continue
        if _is_static(before):
            raise DifferError("a table in its C depends on the size")
        joined[index], used = _number(joiner, column, inside)
        symbols |= used
        if before and before[-1][1] == "(" and inside.name in _WIDE:
            joined[before[-2][0]] = _WIDE[inside.name]
    return ParametricC("".join(joined), frozenset(symbols))


# C of several operators that differs only in numbers: each reads its own from a table.


def unrolled(text: str, turns: int) -> str:
    """Return C whose hints are to unroll loops by `turns`; 0: without hints."""
    return _UNROLL.sub(lambda hint: f"{hint[0].partition('(')[0]}({turns})\n" if turns else "", text)


def skeleton_of(text: str) -> str:
    """Return C without comments and hints, with its integers replaced by placeholders."""
    tokens = _signed(_tokens(_COMMENT.sub("", unrolled(text, 0))))
    return "".join("#" if token.lstrip("-").isdecimal() else token for token in tokens)


def _signed(tokens: Sequence[str]) -> list[str]:
    """Return tokens in which a number has its sign."""
    signed, last = list[str](), ""
    for token in tokens:
        if token.isdecimal() and signed and signed[-1] == "-" and last in ("(", ",", "{", "="):
            signed[-1] = f"-{token}"
            continue
        if signed and not signed[-1].isspace():
            last = signed[-1]
        signed.append(token)
    return signed


def token_count(text: str) -> int:
    """Return the number of tokens of C without comments."""
    return sum(not token.isspace() for token in _tokens(_COMMENT.sub("", text)))


def numbers_apart(texts: Sequence[str], table: str, at_run_time: Collection[str]) -> tuple[str, list[tuple[int, ...]]]:
    """Return texts of one `skeleton_of` as one that reads the numbers in which they differ, and these numbers.

    Args:
        texts: the bodies of functions.
        table: the argument that holds the numbers.
        at_run_time: the other functions whose arguments need not be constants.

    Raises:
        DifferError: a number that differs has to be a constant.
    """
    texts = without_hints(texts)
    tokens = [_signed(_tokens(text)) for text in texts]
    joined, columns = list(tokens[0]), dict[tuple[int, ...], int]()
    before: list[tuple[int, str]] = []
    for index, column in enumerate(zip(*tokens, strict=True)):
        first = column[0]
        if first.isspace():
            continue
        if len(set(column)) > 1:
            inside = _Bracket.around(before)
            after = next((token for token in tokens[0][index + 1 :] if not token.isspace()), "")
            is_argument = after in (",", ")") and before[-1][1] in (",", "(")
            is_call = _NAME.fullmatch(inside.name) is not None and inside.name not in (*_STATEMENTS, *_BYTES)
            is_constant = is_argument and is_call and inside.name not in at_run_time
            if (
                is_constant
                or inside.is_declared_length
                or _is_static(before)
                or max(map(abs, map(int, column))) >= 1 << 31
            ):
                raise DifferError(f"a constant of its C differs: {', '.join(dict.fromkeys(column))}")
            number = columns.setdefault(tuple(map(int, column)), len(columns))
            cast = "(size_t)" if inside.name in _BYTES and inside.commas == 2 else ""
            joined[index] = f"{cast}number{number}"
        before.append((index, first))
    read = [f"    const int32_t number{number} = {table}[{number}];\n" for number in range(len(columns))]
    return "".join([*read, *joined]), list(columns)


@functools.lru_cache(maxsize=100_000)
def skeleton(line: str) -> str:
    """Return a line with its numbers replaced by placeholders."""
    return _ANY_NUMBER.sub("#", line)


@functools.lru_cache(maxsize=10_000)
def _tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text))


def declared_names(text: str) -> set[str]:
    """Return (at least) the names that are declared in lines of C."""
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
    formula = joiner.formula([_integer(token) for token in column])
    if formula is None:
        raise DifferError(f"no formula gives the length of an array: {', '.join(dict.fromkeys(column))}")
    longest = formula.at(dict(zip(joiner.names, top, strict=True)))
    for token, point in zip(column, joiner.points, strict=True):
        if _integer(token) > longest and all(size <= most for size, most in zip(point, top, strict=True)):
            raise DifferError("an array would be longest at a smaller size")
    return str(longest)


def _number(joiner: Joiner, column: Sequence[str], inside: "_Bracket") -> tuple[str, set[str]]:
    if all(_WHOLE.fullmatch(token) for token in column):
        suffixes = {token.lstrip("0123456789") for token in column}
        formula = joiner.formula([_integer(token) for token in column])
        if formula is None or len(suffixes) != 1:
            raise DifferError(f"a number in its C follows no formula: {', '.join(dict.fromkeys(column))}")
        cast = {"": "", "u": "(uint32_t)", "ll": "(int64_t)", "ull": "(uint64_t)"}[suffixes.pop().lower()]
        if not cast and inside.name in _BYTES and inside.commas == 2:
            cast = "(size_t)"
        return f"{cast}{formula.c(PREFIX)}", formula.names
    is_single = all(token.endswith(("f", "F")) for token in column)
    kind = np.float32 if is_single else np.float64
    values = [float(kind(token.rstrip("fF"))) for token in column]
    real = real_formula(joiner.formula, joiner.names, joiner.points, values, joiner.scales)
    if real is None or (real.is_inverse and real.is_single != is_single):
        raise DifferError(f"a number in its C follows no formula: {', '.join(dict.fromkeys(column))}")
    return real.c(PREFIX, is_single=is_single), real.formula.names


def _integer(token: str) -> int:
    match = _WHOLE.fullmatch(token)
    if match is None:
        raise DifferError(f"{token} is not an integer")
    return int(match[1], 0) if match[1].lower().startswith("0x") else int(match[1])


@frozen
class _Bracket:
    """The innermost open bracket: the tokens before it, the last first, and the number of commas after it."""

    opening: str
    names: Sequence[str]
    commas: int

    @classmethod
    def around(cls, before: Sequence[tuple[int, str]]) -> "_Bracket":
        """Return the bracket that is open after some tokens."""
        depth, commas = 0, 0
        tokens = [token for _, token in reversed(before)]
        for number, token in enumerate(tokens):
            if token in ")]}":
                depth += 1
            elif token in "([{" and depth:
                depth -= 1
            elif token in "([{":
                return cls(token, tokens[number + 1 :], commas)
            commas += token == "," and not depth
        return cls("", (), commas)

    @property
    def name(self) -> str:
        """The called function, if the bracket is a call."""
        return self.names[0] if self.opening == "(" and self.names else ""

    @property
    def is_declared_length(self) -> bool:
        """Whether it is in the declaration of an array."""
        names = list(self.names)
        while names and names[0] == "]":  # a dimension before it
            del names[: names.index("[") + 1]
        is_typed = len(names) > 1 and all(_NAME.fullmatch(name) for name in names[:2])
        return self.opening == "[" and is_typed and names[1] not in ("return", "else")


def _is_static(before: Sequence[tuple[int, str]]) -> bool:
    """Whether the next token is part of a static variable's initializer."""
    return next((token for _, token in reversed(before) if token in (";", "static")), ";") == "static"


# C whose lines depend on the remainder of a size: a branch for each remainder.
#
# Schedules that compute a tile of rows at a time write the remaining rows separately. Lines that all remainders have in
# common are written once; the others go into the branches of an `if`.


PERIODS = (2, 3, 4)
"""Rows of the tiles that schedules have."""
_FEWEST = 3  # points of a remainder, for a formula with two coefficients
_DECLARATION = re.compile(r" *(?:const )?(?:struct )?\w+ \*?(?:const )?\w+ = [^;]*;")


@frozen
class _Remainder:
    """The texts of one remainder, as lines: `points` and `lines` belong together."""

    number: int
    points: tuple[Point, ...]
    lines: tuple[tuple[str, ...], ...]

    @property
    def skeletons(self) -> list[str]:
        """Its lines without their numbers, which are the same at all its points."""
        return [skeleton(line) for line in self.lines[0]]


def joined_remainders(joiner: Joiner, texts: Sequence[str], top: Point) -> ParametricC:
    """Join texts for several points into one for all sizes, with branches on the remainder of one size.

    Points at which a size is smaller than a tile are left out: there, only the remainder is computed.

    Raises:
        DifferError: the structures differ even for equal remainders.
    """
    reason = DifferError("the structure of its C differs between sizes")
    for size in range(len(joiner.names)):
        for period in PERIODS:
            try:
                return _Joining(joiner, size, period, top).text(texts)
            except DifferError as error:
                reason = error
    raise reason


@frozen
class _Joining:
    """How texts are joined: by the remainders of the size number `size` when it is divided by `period`."""

    joiner: Joiner
    size: int
    period: int
    top: Point

    def text(self, texts: Sequence[str]) -> ParametricC:
        """Return the joined text."""
        remainders = self.remainders(texts)
        common = remainders[0].skeletons
        for other in remainders[1:]:
            blocks = difflib.SequenceMatcher(None, common, other.skeletons, autojunk=False).get_matching_blocks()
            common = [common[block.a + n] for block in blocks for n in range(block.size)]
        line_numbers = {remainder.number: _subsequence(remainder.skeletons, common) for remainder in remainders}
        indices = _whole_statements(remainders, line_numbers, list(range(len(common))))
        return self.joined(
            remainders, {key: [numbers[n] for n in indices] for key, numbers in line_numbers.items()}, len(indices)
        )

    def remainders(self, texts: Sequence[str]) -> list[_Remainder]:
        """Return the texts by remainder."""
        remainders = []
        for number in range(self.period):
            chosen = [
                (point, tuple(text.split("\n")))
                for point, text in zip(self.joiner.points, texts, strict=True)
                if point[self.size] % self.period == number and point[self.size] >= self.period
            ]
            if len({point[self.size] for point, _ in chosen}) < _FEWEST:
                raise DifferError("there are too few sizes to derive how its C depends on them")
            if len({tuple(skeleton(line) for line in lines) for _, lines in chosen}) != 1:
                raise DifferError("its C differs between sizes")
            points, lines = zip(*chosen, strict=True)
            remainders.append(_Remainder(number, points, lines))
        return remainders

    def joined(
        self, remainders: Sequence[_Remainder], line_numbers: Mapping[int, Sequence[int]], count: int
    ) -> ParametricC:
        """Return the text: runs of common lines, and between them those of each remainder."""
        pieces: list[ParametricC] = []
        last = dict.fromkeys(line_numbers, -1)
        for number in range(count + 1):
            at = {r.number: line_numbers[r.number][number] if number < count else len(r.lines[0]) for r in remainders}
            pieces.append(self.between(remainders, {key: (last[key] + 1, at[key]) for key in at}))
            if number < count:
                pieces.append(self.line(remainders, at))
            last = at
        pieces = [piece for piece in pieces if piece.text]
        common = "\n".join(piece.text for piece in pieces if not piece.is_branch)
        for piece in (piece for piece in pieces if piece.is_branch):
            local = declared_names(piece.text) - declared_names(common)
            others = (other.text for other in pieces if other.is_branch and other is not piece)
            if local & names_in(common) or any(local & names_in(text) - declared_names(text) for text in others):
                raise DifferError("a variable that is declared for one remainder is read elsewhere")
        symbols = frozenset(symbol for piece in pieces for symbol in piece.symbols)
        return ParametricC("\n".join(piece.text for piece in pieces), symbols)

    def line(self, remainders: Sequence[_Remainder], at: Mapping[int, int]) -> ParametricC:
        """Return a line that is common to all remainders."""
        points = [point for remainder in remainders for point in remainder.points]
        texts = [lines[at[remainder.number]] for remainder in remainders for lines in remainder.lines]
        return self.parametric(points, texts)

    def parametric(self, points: Sequence[Point], texts: Sequence[str]) -> ParametricC:
        """Join texts for several points, for their remainders."""
        return parametric_c(Joiner(self.joiner.names, tuple(points), self.period, self.joiner.scales), texts, self.top)

    def between(self, remainders: Sequence[_Remainder], ranges: Mapping[int, tuple[int, int]]) -> ParametricC:
        """Return the lines of each remainder between two common lines."""
        longer = [remainder for remainder in remainders if ranges[remainder.number][0] < ranges[remainder.number][1]]
        if not longer:
            return ParametricC("")
        declared = self.declarations(longer, ranges)
        if declared is not None:
            return declared
        texts: dict[str, list[int]] = {}
        symbols: set[str] = set()
        for remainder in remainders:
            begin, end = ranges[remainder.number]
            branch = self.parametric(remainder.points, ["\n".join(lines[begin:end]) for lines in remainder.lines])
            texts.setdefault(branch.text, []).append(remainder.number)
            symbols |= branch.symbols
        branches = [text for text in texts if text]
        lines: list[str] = []
        first = branches[0].split("\n")[0]
        indent = " " * (len(first) - len(first.lstrip()))
        for text in branches:
            lines.append(f"{indent}{'} else ' if lines else ''}if ({self.test(texts[text])}) {{")
            lines += [f"    {line}" for line in text.split("\n")]
        symbols.add(self.joiner.names[self.size])
        return ParametricC("\n".join([*lines, f"{indent}}}"]), frozenset(symbols), is_branch=True)

    def declarations(self, longer: Sequence[_Remainder], ranges: Mapping[int, tuple[int, int]]) -> ParametricC | None:
        """Return lines that only declare pointers and numbers, harmless elsewhere; None: some do more."""
        cut = {r.number: slice(*ranges[r.number]) for r in longer}
        if len({tuple(r.skeletons[cut[r.number]]) for r in longer}) != 1:
            return None
        if not all(_DECLARATION.fullmatch(line) for r in longer for line in r.lines[0][cut[r.number]]):
            return None
        points = [point for r in longer for point in r.points]
        texts = ["\n".join(lines[cut[r.number]]) for r in longer for lines in r.lines]
        try:
            return self.parametric(points, texts)
        except DifferError:
            return None

    def test(self, numbers: Sequence[int]) -> str:
        """Return a C condition: the remainder is one of these."""
        name = f"{PREFIX}{self.joiner.names[self.size]}"
        if self.period == 4 and [*numbers] in ([0, 2], [1, 3]):
            return f"{name} % 2 == {numbers[0]}"
        rest = f"{name} % {self.period}"
        others = [number for number in range(self.period) if number not in numbers]
        if len(others) == 1 and len(numbers) > 1:
            return f"{rest} != {others[0]}"
        return " || ".join(f"{rest} == {number}" for number in numbers)


def _whole_statements(
    remainders: Sequence[_Remainder], line_numbers: Mapping[int, Sequence[int]], indices: list[int]
) -> list[int]:
    """Return the common lines to keep, so that the lines between them are whole statements everywhere."""
    while True:
        for gap in range(len(indices) + 1):
            before, after = indices[gap - 1] if gap else None, indices[gap] if gap < len(indices) else None
            parts = []
            for remainder in remainders:
                begin = line_numbers[remainder.number][before] + 1 if before is not None else 0
                end = line_numbers[remainder.number][after] if after is not None else len(remainder.lines[0])
                parts.append(remainder.lines[0][begin:end])
            if not any(parts):
                continue
            lines = remainders[0].lines[0]
            head = lines[line_numbers[remainders[0].number][before]] if before is not None else "{"
            tail = lines[line_numbers[remainders[0].number][after]] if after is not None else "}"
            if not head.rstrip().endswith(("{", ";", "}", "*/")) or any(_closes_more(part) for part in parts):
                del indices[gap - 1]
                break
            if tail.lstrip().startswith(("else", "} else")) or not all(_is_whole(part) for part in parts):
                if after is None and before is None:
                    raise DifferError("its C differs between sizes")
                del indices[gap if after is not None else gap - 1]
                break
        else:
            return indices


def _closes_more(lines: Sequence[str]) -> bool:
    """Whether lines close a block that was opened before them, or go on with a choice."""
    depth = 0
    for line in lines:
        is_end = not depth and line.lstrip().startswith(("}", "else"))
        depth += line.count("{") - line.count("}")
        if is_end or depth < 0:
            return True
    return False


def _is_whole(lines: Sequence[str]) -> bool:
    """Whether lines are whole statements."""
    if not lines:
        return True
    text = "\n".join(lines)
    return text.count("{") == text.count("}") and text.rstrip().endswith((";", "}", "*/"))


def _subsequence(lines: Sequence[str], selected: Sequence[str]) -> list[int]:
    """Return the positions of the selected lines among others, in order, by the longest match."""
    blocks = difflib.SequenceMatcher(None, selected, lines, autojunk=False).get_matching_blocks()
    positions = [block.b + n for block in blocks for n in range(block.size)]
    if len(positions) != len(selected):
        positions, start = [], 0
        for line in selected:
            positions.append(lines.index(line, start))
            start = positions[-1] + 1
    return positions
