"""C that is other lines for other remainders of a size: those of each remainder, behind a test of it.

Schedules that compute a tile of rows at a time write what is left over by itself. The lines that all remainders have
in common stand once; the others stand in the branches of an `if`.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtool.base.formulas import Point
from mtool.compiler.ir.parametric import DifferError, Joiner
from mtool.compiler.kernels.parametric_c import PREFIX, JoinedText, declared_names, joined_text, names_in, skeleton

PERIODS = (2, 3, 4)
"""Rows of the tiles that schedules have."""

_FEWEST = 3  # points of a remainder, for a formula with two coefficients
_DECLARATION = re.compile(r" *(?:const )?(?:struct )?\w+ \*?(?:const )?\w+ = [^;]*;")


@dataclass(frozen=True, slots=True)
class _Remainder:
    """The texts of one remainder, as lines: `points` and `lines` belong together."""

    number: int
    points: tuple[Point, ...]
    lines: tuple[tuple[str, ...], ...]

    @property
    def skeletons(self) -> list[str]:
        """Its lines without their numbers, which are the same at all its points."""
        return [skeleton(line) for line in self.lines[0]]


def joined_remainders(joiner: Joiner, texts: Sequence[str], top: Point) -> JoinedText:
    """Return the text that is each of these at its point, by the remainder of one of the sizes.

    Points at which a size is smaller than a tile are left out: what is computed there is what is left over.

    Raises:
        DifferError: they are not of one structure for each remainder either.
    """
    reason = DifferError("it has other C at other sizes")
    for size in range(len(joiner.names)):
        for period in PERIODS:
            try:
                return _Joining(joiner, size, period, top).text(texts)
            except DifferError as found:
                reason = found
    raise reason


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some lines of the joined text, and the sizes that they depend on; `is_branch`: they are a choice by remainder."""

    text: str
    symbols: frozenset[str]
    is_branch: bool = False


@dataclass(frozen=True, slots=True)
class _Joining:
    """How texts are joined: by the remainders of the size number `size` when it is divided by `period`."""

    joiner: Joiner
    size: int
    period: int
    top: Point

    def text(self, texts: Sequence[str]) -> JoinedText:
        """Return the joined text."""
        remainders = self.remainders(texts)
        common = remainders[0].skeletons
        for other in remainders[1:]:
            blocks = difflib.SequenceMatcher(None, common, other.skeletons, autojunk=False).get_matching_blocks()
            common = [common[block.a + n] for block in blocks for n in range(block.size)]
        line_numbers = {one.number: _subsequence(one.skeletons, common) for one in remainders}
        kept = _whole_statements(remainders, line_numbers, list(range(len(common))))
        return self.joined(
            remainders, {key: [found[n] for n in kept] for key, found in line_numbers.items()}, len(kept)
        )

    def remainders(self, texts: Sequence[str]) -> list[_Remainder]:
        """Return the texts by remainder."""
        found = []
        for number in range(self.period):
            chosen = [
                (point, tuple(text.split("\n")))
                for point, text in zip(self.joiner.points, texts, strict=True)
                if point[self.size] % self.period == number and point[self.size] >= self.period
            ]
            if len({point[self.size] for point, _ in chosen}) < _FEWEST:
                raise DifferError("there are too few sizes to tell how its C follows them")
            if len({tuple(skeleton(line) for line in lines) for _, lines in chosen}) != 1:
                raise DifferError("it has other C at other sizes")
            points, lines = zip(*chosen, strict=True)
            found.append(_Remainder(number, points, lines))
        return found

    def joined(
        self, remainders: Sequence[_Remainder], line_numbers: Mapping[int, Sequence[int]], count: int
    ) -> JoinedText:
        """Return the text: runs of lines that all have, and between them those of each remainder."""
        pieces: list[_Piece] = []
        last = dict.fromkeys(line_numbers, -1)
        for number in range(count + 1):
            at = {
                one.number: line_numbers[one.number][number] if number < count else len(one.lines[0])
                for one in remainders
            }
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
                raise DifferError("what one remainder declares is read outside of it")
        symbols = frozenset(symbol for piece in pieces for symbol in piece.symbols)
        return JoinedText("\n".join(piece.text for piece in pieces), symbols)

    def line(self, remainders: Sequence[_Remainder], at: Mapping[int, int]) -> "_Piece":
        """Return a line that all remainders have."""
        points = tuple(point for one in remainders for point in one.points)
        texts = [lines[at[one.number]] for one in remainders for lines in one.lines]
        found = joined_text(Joiner(self.joiner.names, points, self.period, self.joiner.scales), texts, self.top)
        return _Piece(found.text, found.symbols)

    def between(self, remainders: Sequence[_Remainder], ranges: Mapping[int, tuple[int, int]]) -> "_Piece":
        """Return the lines of each remainder between two that all have."""
        longer = [one for one in remainders if ranges[one.number][0] < ranges[one.number][1]]
        if not longer:
            return _Piece("", frozenset())
        declared = self.declarations(longer, ranges)
        if declared is not None:
            return declared
        texts: dict[str, list[int]] = {}
        symbols: set[str] = set()
        for one in remainders:
            begin, end = ranges[one.number]
            found = joined_text(
                Joiner(self.joiner.names, one.points, self.period, self.joiner.scales),
                ["\n".join(lines[begin:end]) for lines in one.lines],
                self.top,
            )
            texts.setdefault(found.text, []).append(one.number)
            symbols |= found.symbols
        there = [text for text in texts if text]
        lines: list[str] = []
        first = there[0].split("\n")[0]
        indent = " " * (len(first) - len(first.lstrip()))
        for text in there:
            lines.append(f"{indent}{'} else ' if lines else ''}if ({self.test(texts[text])}) {{")
            lines += [f"    {line}" for line in text.split("\n")]
        symbols.add(self.joiner.names[self.size])
        return _Piece("\n".join([*lines, f"{indent}}}"]), frozenset(symbols), is_branch=True)

    def declarations(self, longer: Sequence[_Remainder], ranges: Mapping[int, tuple[int, int]]) -> "_Piece | None":
        """Return lines that only declare pointers and numbers, of which others have no need; None: there are others."""
        cut = {one.number: slice(*ranges[one.number]) for one in longer}
        if len({tuple(one.skeletons[cut[one.number]]) for one in longer}) != 1:
            return None
        if not all(_DECLARATION.fullmatch(line) for one in longer for line in one.lines[0][cut[one.number]]):
            return None
        points = tuple(point for one in longer for point in one.points)
        texts = ["\n".join(lines[cut[one.number]]) for one in longer for lines in one.lines]
        try:
            found = joined_text(Joiner(self.joiner.names, points, self.period, self.joiner.scales), texts, self.top)
        except DifferError:
            return None
        return _Piece(found.text, found.symbols)

    def test(self, numbers: Sequence[int]) -> str:
        """Return the C that tells whether the remainder is one of these."""
        name = f"{PREFIX}{self.joiner.names[self.size]}"
        if self.period == 4 and [*numbers] in ([0, 2], [1, 3]):
            return f"{name} % 2 == {numbers[0]}"
        rest = f"{name} % {self.period}"
        others = [number for number in range(self.period) if number not in numbers]
        if len(others) == 1 and len(numbers) > 1:
            return f"{rest} != {others[0]}"
        return " || ".join(f"{rest} == {number}" for number in numbers)


def _whole_statements(
    remainders: Sequence[_Remainder], line_numbers: Mapping[int, Sequence[int]], kept: list[int]
) -> list[int]:
    """Return which common lines stay common, so that what stands between them is whole statements everywhere."""
    while True:
        for gap in range(len(kept) + 1):
            before, after = kept[gap - 1] if gap else None, kept[gap] if gap < len(kept) else None
            parts = []
            for one in remainders:
                begin = line_numbers[one.number][before] + 1 if before is not None else 0
                end = line_numbers[one.number][after] if after is not None else len(one.lines[0])
                parts.append(one.lines[0][begin:end])
            if not any(parts):
                continue
            lines = remainders[0].lines[0]
            head = lines[line_numbers[remainders[0].number][before]] if before is not None else "{"
            tail = lines[line_numbers[remainders[0].number][after]] if after is not None else "}"
            if not head.rstrip().endswith(("{", ";", "}", "*/")) or any(_closes_more(part) for part in parts):
                del kept[gap - 1]
                break
            if tail.lstrip().startswith(("else", "} else")) or not all(_is_whole(part) for part in parts):
                if after is None and before is None:
                    raise DifferError("it has other C at other sizes")
                del kept[gap if after is not None else gap - 1]
                break
        else:
            return kept


def _closes_more(lines: Sequence[str]) -> bool:
    """Whether lines close a block that was opened before them, or go on with a choice."""
    depth = 0
    for line in lines:
        if depth + line.count("{") - line.count("}") < 0 or (not depth and line.lstrip().startswith(("}", "else"))):
            return True
        depth += line.count("{") - line.count("}")
    return False


def _is_whole(lines: Sequence[str]) -> bool:
    """Whether lines are whole statements."""
    if not lines:
        return True
    text = "\n".join(lines)
    return text.count("{") == text.count("}") and text.rstrip().endswith((";", "}", "*/"))


def _subsequence(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return where the wanted lines stand among others, in order, by the longest match."""
    blocks = difflib.SequenceMatcher(None, wanted, lines, autojunk=False).get_matching_blocks()
    found = [block.b + n for block in blocks for n in range(block.size)]
    if len(found) != len(wanted):
        found, start = [], 0
        for line in wanted:
            found.append(lines.index(line, start))
            start = found[-1] + 1
    return found
