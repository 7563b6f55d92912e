"""Ranges of integer expressions, whatever the data: they prove that an index stays inside a tensor."""

from collections.abc import Callable, Mapping, Sequence

from mtool.base.frozen import frozen
from mtool.compiler.ir.expr import Expr, Reduction
from mtool.compiler.ir.types import DType

Range = tuple[int, int]  # the smallest and the largest
SMALL = 16  # nodes of a branch up to which it is analysed again with its condition


class Ranges:
    """The ranges of a node's expressions.

    Args:
        expr: the whole expression, whose reductions have axes of their own.
        shape: the node's output's, whose dimensions are the other axes.
        operands: the range of each operand's elements; None: they may be anything of their type.
    """

    def __init__(self, expr: Expr, shape: Sequence[int], operands: Sequence[Range | None]) -> None:
        self.axes, self.operands = dict(enumerate(shape)), operands
        for part in expr.walk():
            for number, size in part.value.axes if part.op == "reduce" else ():
                self.axes[number] = max(size, self.axes.get(number, 0))

    def of(self, expr: Expr, ranges: Mapping[Expr, Range] | None = None) -> Range | None:
        """Return the range of an expression; None: it is not an integer. `ranges` has the ranges of its parts."""
        facts = ranges or {}
        return expr.fold(lambda part, args: common(self._of(part, args), facts.get(part)))

    def _of(self, part: Expr, args: Sequence[Range | None]) -> Range | None:
        limits = _limits(part.dtype)
        if limits is None:
            return None
        bounds = self._leaf(part) or self._combined(part, args)
        if bounds is None or bounds[0] < limits[0] or bounds[1] > limits[1]:
            return limits
        return bounds

    def _leaf(self, part: Expr) -> Range | None:
        if part.op == "const":
            return int(part.value), int(part.value)
        if part.op == "axis" and part.value in self.axes:
            return 0, max(self.axes[part.value] - 1, 0)
        return self.operands[part.value] if part.op == "load" else None

    def _combined(self, part: Expr, args: Sequence[Range | None]) -> Range | None:
        if part.op == "where":
            return self._chosen(part, args)
        if part.op == "reduce":
            reduced: Reduction = part.value
            return args[0] if reduced.kind in ("minimum", "maximum") and all(size for _, size in reduced.axes) else None
        if not args or any(arg is None for arg in args):
            return None
        form = _FORMS.get(part.op)
        return form(*args) if form else None

    def _chosen(self, part: Expr, args: Sequence[Range | None]) -> Range | None:
        """Return the range of a choice: small branches are analysed under its condition, unreachable ones ignored."""
        condition, *branches = part.args
        reach: list[Range] = []
        for branch, plain, holds in zip(branches, args[1:], (True, False), strict=True):
            facts = ranges_implied_by(condition, holds=holds)
            if branch.size <= SMALL and facts:
                parts = {key: common(self.of(key), fact) for key, fact in facts.items() if key.size <= SMALL}
                if any(fact is not None and fact[0] > fact[1] for fact in parts.values()):
                    continue
                plain = self.of(branch, {key: fact for key, fact in parts.items() if fact is not None})
            if plain is None:
                return None
            reach.append(plain)
        return (min(low for low, _ in reach), max(high for _, high in reach)) if reach else None


def ranges_implied_by(condition: Expr, *, holds: bool = True) -> dict[Expr, Range]:
    """Return the ranges of the expressions that a condition compares with constants, if it holds or does not."""
    implied: dict[Expr, Range] = {}
    waiting = [condition]
    while waiting:
        part = waiting.pop()
        if part.op == "and" and holds:
            waiting += part.args
        elif part.op in _TESTS and part.args[1].op == "const" and part.args[0].dtype.is_integer:
            subject, bound = part.args
            low, high = _TESTS[part.op][0 if holds else 1]
            least, most = subject.dtype.limits
            fact = least if low is None else bound.value + low, most if high is None else bound.value + high
            implied[subject] = overlap(implied.get(subject, fact), fact)
    return implied


Limits = tuple[int | None, int | None]
"""Added to a constant to get the smallest and the largest number; None: no limit."""
_TESTS: dict[str, tuple[Limits, Limits]] = {
    "less": ((None, -1), (0, None)),
    "less_equal": ((None, 0), (1, None)),
    "greater": ((1, None), (None, 0)),
    "greater_equal": ((0, None), (None, -1)),
    "equal": ((0, 0), (None, None)),
}
"""The bounds that a comparison with a constant implies for its left side if it holds, and if it does not."""


def overlap(a: Range, b: Range) -> Range:
    """Return the intersection of two ranges."""
    return max(a[0], b[0]), min(a[1], b[1])


def common(a: Range | None, b: Range | None) -> Range | None:
    """Return the intersection of two ranges; None: unbounded."""
    return a or b if a is None or b is None else overlap(a, b)


def _limits(dtype: DType) -> Range | None:
    if dtype is DType.BOOL:
        return 0, 1
    return dtype.limits if dtype.is_integer else None


def _product(a: Range, b: Range) -> Range:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: Range, b: Range) -> Range | None:
    """Return the range of C's division by a positive constant, which rounds towards zero."""
    if b[0] != b[1] or b[0] <= 0:
        return None
    low, high = (end // b[0] if end >= 0 else -(-end // b[0]) for end in a)
    return low, high


def _remainder(a: Range, b: Range) -> Range | None:
    """Return the range of C's remainder of a division by a positive constant; it has the dividend's sign."""
    if b[0] != b[1] or b[0] <= 0:
        return None
    return (0 if a[0] >= 0 else 1 - b[0]), min(max(a[1], 0), b[0] - 1)


_FORMS: dict[str, Callable[..., Range | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "floordiv": _quotient,
    "mod": _remainder,
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "cast": lambda a: a,
}


# Indices that are linear in the axes.


@frozen
class Affine:
    """An index that is a sum of axes, each multiplied by a number."""

    first: int
    steps: Mapping[int, int]

    def plus(self, other: "Affine", factor: int = 1) -> "Affine":
        """Return the sum with a multiple of another one."""
        axes = {*self.steps, *other.steps}
        steps = {axis: self.steps.get(axis, 0) + factor * other.steps.get(axis, 0) for axis in axes}
        return Affine(self.first + factor * other.first, steps)


def affine(expr: Expr) -> Affine | None:
    """Return an index expression as an affine index; None: it is not affine."""
    if expr.op == "const":
        return Affine(expr.value, {})
    if expr.op == "axis":
        return Affine(0, {expr.value: 1})
    if expr.op not in ("add", "sub", "mul"):
        return None
    left, right = (affine(arg) for arg in expr.args)
    if left is None or right is None:
        return None
    if expr.op != "mul":
        return left.plus(right, 1 if expr.op == "add" else -1)
    for factor, other in ((left, right), (right, left)):
        if not any(factor.steps.values()):
            return Affine(0, {}).plus(other, factor.first)
    return None
