"""The C of loops over axes, and of sums of floats along them, of numbers or of vectors."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Protocol

from mtool.base.frozen import frozen
from mtool.compiler.ir import DType, Expr
from mtool.compiler.ir.expr import Reduction, axis
from mtool.compiler.ir.scalar import ADD, MUL, Text, literal

INDENT = "    "
FOURS = 9
"""The fewest terms along the innermost axis of a float sum that are added four at a time, pair by pair,"""
LARGEST_BODY = 32
"""if a term's expression has at most this many parts."""
FOURS_BLOCK = 16
"""Terms of a block, which is added up from zero,"""
BLOCK = 8
"""if they are not added by fours."""

NAMES = "ijklmnpqrs"  # axis names; beyond them a7, a8, …


def axis_name(number: int) -> str:
    """Return the C of an axis."""
    return NAMES[number] if number < len(NAMES) else f"a{number}"


def indented(lines: Sequence[str]) -> list[str]:
    """Return lines inside a block."""
    return [INDENT + line for line in lines]


def loop(name: str, first: str, last: str, step: int, lines: Sequence[str]) -> list[str]:
    """Return lines in a loop."""
    head = f"for (int32_t {name} = {first}; {name} < {last}; {f'{name} += {step}' if step > 1 else f'++{name}'}) {{"
    return [head, *indented(lines), "}"]


def loops(axes: Sequence[tuple[int, int]], lines: Sequence[str]) -> list[str]:
    """Return lines in a loop over each axis."""
    for number, size in reversed(axes):
        lines = loop(axis_name(number), "0", str(size), 1, lines)
    return [*lines]


def by_fours(number: int, first: str, size: int, terms: Callable[[Sequence[int]], Sequence[str]]) -> list[str]:
    """Return a loop over four terms a round, and one over the rest; `terms` takes their distances from the axis."""
    k, whole, last = axis_name(number), _plus(first, size // 4 * 4), _plus(first, size)
    lines = loop(k, first, whole, 4, terms(range(4)))
    return lines + (loop(k, whole, last, 1, terms([0])) if size % 4 else [])


class SumText(Protocol):
    """The C of a sum's steps."""

    def begin(self, name: str) -> str:
        """Return the declaration of a sum, 0 at first."""

    def add(self, name: str, terms: Sequence[Expr]) -> list[str]:
        """Return the addition of a term, or of four: (a + b) + (c + d)."""

    def add_part(self, name: str, part: str) -> str:
        """Return the addition of a block's sum to another one and its rest."""

    def end(self, name: str) -> str:
        """Return the addition of a sum's rest."""


@frozen
class NumberSum:
    """That of numbers; `text` is the C of a term."""

    dtype: DType
    text: Callable[[Expr], Text]

    @property
    def suffix(self) -> str:
        """The suffix of its functions."""
        return "f64" if self.dtype is DType.FLOAT64 else "f32"

    def begin(self, name: str) -> str:
        """Return the declaration of a sum."""
        return f"{self.dtype.computed} {name} = {literal(0, self.dtype).c};"

    def add(self, name: str, terms: Sequence[Expr]) -> list[str]:
        """Return the addition of one term or four."""
        texts = [self.text(term) for term in terms]
        if len(texts) == 1:
            return [f"{name} += {texts[0].c};"]
        a, b, c, d = (text.at(ADD if n % 2 == 0 else MUL) for n, text in enumerate(texts))
        return [f"{name} += ({a} + {b}) + ({c} + {d});"]

    def add_part(self, name: str, part: str) -> str:
        """Return the addition of a block's sum."""
        return f"mt_add_{self.suffix}(&{name}, &{name}_rest, {part});"

    def end(self, name: str) -> str:
        """Return the addition of the rest."""
        return f"{name} = mt_total_{self.suffix}({name}, {name}_rest);"


def float_sum(how: Reduction, name: str, body: Expr, text: SumText, *, joined: bool = False) -> list[str]:
    """Return the C of a sum of floats, of which `name` is declared: blocks, each from zero, are added up.

    One term after the other, n terms are off by up to n roundings of their sum. With blocks and compensated addition of
    their sums, the bound does not grow with n (docs/verify.md). `joined`: of one structure at all sizes.
    """
    axes = how.axes
    *outer, (inner, size) = axes or [(0, 1)]
    count = prod(size for _, size in axes)
    fours = size >= FOURS and body.size <= LARGEST_BODY and not how.careful and not joined
    most = 1 if how.careful else FOURS_BLOCK if fours else BLOCK

    def terms(total: str, number: int, first: str, length: int) -> list[str]:
        """Return the C that adds up the terms from `first` on along an axis, including all inner axes."""
        behind = axes[[axis for axis, _ in axes].index(number) + 1 :]
        k, last = axis_name(number), _plus(first, length)
        if number != inner:
            inside = terms(total, *behind[-1][:1], "0", size)
            return loop(k, first, last, 1, loops(behind[:-1], inside))
        if not fours or length < 4:
            return loop(k, first, last, 1, text.add(total, [body]))
        parts = [body.with_axes({inner: axis(inner) + n}) for n in range(4)]
        return by_fours(inner, first, length, lambda distances: text.add(total, [parts[n] for n in distances]))

    if count <= most and not joined:
        return loops(outer, terms(name, inner, "0", size)) if axes else text.add(name, [body])
    part, rest = f"{name}_part", text.begin(f"{name}_rest")
    if joined and axes:
        k = axis_name(inner)
        added = loop(k, f"{k}0", f"{k}0 + {most} && {k} < {size}", 1, text.add(part, [body]))
        block = [text.begin(part), *added, text.add_part(name, part)]
        return [rest, *loops(outer, loop(f"{k}0", "0", str(size), most, block)), text.end(name)]
    behind, split = 1, len(axes) - 1  # the terms of the axes behind the one along which the blocks lie
    while behind * axes[split][1] <= most:
        behind, split = behind * axes[split][1], split - 1
    (number, size_split), length = axes[split], most // behind

    def block_of(first: str, length: int) -> list[str]:
        return [text.begin(part), *terms(part, number, first, length), text.add_part(name, part)]

    whole = size_split // length * length
    lines = loop(f"{axis_name(number)}0", "0", str(whole), length, block_of(f"{axis_name(number)}0", length))
    if whole < size_split:
        lines += ["{", *indented(block_of(str(whole), size_split - whole)), "}"]
    return [rest, *loops(axes[:split], lines), text.end(name)]


def _plus(first: str, count: int) -> str:
    return str(int(first) + count) if first.isdigit() else f"{first} + {count}"
