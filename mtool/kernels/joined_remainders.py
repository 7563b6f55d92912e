"""C that is other lines for other remainders of a size: those of each remainder, behind a test of it.

Schedules that compute a tile of rows at a time write what is left over by itself. The lines that all remainders have
in common stand once; the others stand in the branches of an `if`.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtool.formulas import Point
from mtool.ir.joined import DifferError, Joiner
from mtool.kernels.joined_text import PREFIX, JoinedText, declared_names, joined_text, names_in, skeleton

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
    for place in range(len(joiner.names)):
        for period in PERIODS:
            try:
                return _Joining(joiner, place, period, top).text(texts)
            except DifferError as found:
                reason = found
    raise reason


@dataclass(frozen=True, slots=True)
class _Joining:
    """How texts are joined: by the remainders of the size `place` when it is divided by `period`."""

    joiner: Joiner
    place: int
    period: int
    top: Point

    def text(self, texts: Sequence[str]) -> JoinedText:
        """Return the joined text."""
        remainders = self.remainders(texts)
        common = remainders[0].skeletons
        for other in remainders[1:]:
            blocks = difflib.SequenceMatcher(None, common, other.skeletons, autojunk=False).get_matching_blocks()
            common = [common[block.a + n] for block in blocks for n in range(block.size)]
        places = {one.number: _subsequence(one.skeletons, common) for one in remainders}
        return self.joined(remainders, places, len(common))

    def remainders(self, texts: Sequence[str]) -> list[_Remainder]:
        """Return the texts by remainder."""
        found = []
        for number in range(self.period):
            chosen = [
                (point, tuple(text.split("\n")))
                for point, text in zip(self.joiner.points, texts, strict=True)
                if point[self.place] % self.period == number and point[self.place] >= self.period
            ]
            if len({point[self.place] for point, _ in chosen}) < _FEWEST:
                raise DifferError("there are too few sizes to tell how its C follows them")
            if len({tuple(skeleton(line) for line in lines) for _, lines in chosen}) != 1:
                raise DifferError("it has other C at other sizes")
            points, lines = zip(*chosen, strict=True)
            found.append(_Remainder(number, points, lines))
        return found

    def joined(self, remainders: Sequence[_Remainder], places: Mapping[int, Sequence[int]], count: int) -> JoinedText:
        """Return the text: runs of lines that all have, and between them those of each remainder."""
        parts: list[str] = []
        symbols: set[str] = set()
        own: list[str] = []  # lines of remainders alone
        last = dict.fromkeys(places, -1)
        for number in range(count + 1):
            at = {
                key: found[number] if number < count else len(one.lines[0])
                for one in remainders
                for key, found in [(one.number, places[one.number])]
            }
            between = self.between(remainders, {key: (last[key] + 1, at[key]) for key in at})
            parts += between.text.split("\n") if between.text else []
            symbols |= between.symbols
            own += [between.text] if between.text.lstrip().startswith("if") else []
            if number < count:
                line = self.line(remainders, at)
                parts.append(line.text)
                symbols |= line.symbols
            last = at
        inner, outer = (
            declared_names("\n".join(own)),
            [line for line in parts if not any(line in text.split("\n") for text in own)],
        )
        if inner & names_in("\n".join(outer)) & inner - declared_names("\n".join(outer)):
            raise DifferError("what one remainder declares is read outside of it")
        return JoinedText("\n".join(parts), frozenset(symbols))

    def line(self, remainders: Sequence[_Remainder], at: Mapping[int, int]) -> JoinedText:
        """Return a line that all remainders have."""
        points = tuple(point for one in remainders for point in one.points)
        texts = [lines[at[one.number]] for one in remainders for lines in one.lines]
        return joined_text(Joiner(self.joiner.names, points), texts, self.top)

    def between(self, remainders: Sequence[_Remainder], ranges: Mapping[int, tuple[int, int]]) -> JoinedText:
        """Return the lines of each remainder between two that all have."""
        texts: dict[str, list[int]] = {}
        symbols: set[str] = set()
        for one in remainders:
            begin, end = ranges[one.number]
            found = joined_text(
                Joiner(self.joiner.names, one.points), ["\n".join(lines[begin:end]) for lines in one.lines], self.top
            )
            if found.text.count("{") != found.text.count("}"):
                raise DifferError("its loops are others for what is left over")
            texts.setdefault(found.text, []).append(one.number)
            symbols |= found.symbols
        there = [text for text in texts if text]
        if not there:
            return JoinedText("", frozenset())
        if len(there) == 1 and all(_DECLARATION.fullmatch(line) for line in there[0].split("\n")):
            return JoinedText(there[0], frozenset(symbols))
        lines: list[str] = []
        first = there[0].split("\n")[0]
        indent = " " * (len(first) - len(first.lstrip()))
        for text in there:
            lines.append(f"{indent}{'} else ' if lines else ''}if ({self.test(texts[text])}) {{")
            lines += [f"    {line}" for line in text.split("\n")]
        symbols.add(self.joiner.names[self.place])
        return JoinedText("\n".join([*lines, f"{indent}}}"]), frozenset(symbols))

    def test(self, numbers: Sequence[int]) -> str:
        """Return the C that tells whether the remainder is one of these."""
        rest = f"{PREFIX}{self.joiner.names[self.place]} % {self.period}"
        others = [number for number in range(self.period) if number not in numbers]
        if len(others) == 1 and len(numbers) > 1:
            return f"{rest} != {others[0]}"
        return " || ".join(f"{rest} == {number}" for number in numbers)


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
