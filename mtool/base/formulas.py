"""Formulas: whole numbers that depend on the run-time sizes of a model, such as 64 * n, n * n or (n + 1) // 2."""

import ast
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mtool.base.frozen import frozen

if TYPE_CHECKING:
    import numpy as np

Point = tuple[int, ...]
"""A value for each run-time size of a model, in their order."""

_DIVISORS = (*range(2, 17), 32, 64)
_STEPS = 4  # the least number of values of a quotient at the points
_SPARE = 2  # points more than the formula has coefficients
_WORST = 1e-3  # the largest deviation of a fitted coefficient from a whole number


@frozen
class Factor:
    """(size + add) // divisor, for a run-time size given by name."""

    size: str
    add: int = 0
    divisor: int = 1

    def at(self, sizes: Mapping[str, int]) -> int:
        """Return its value."""
        return (sizes[self.size] + self.add) // self.divisor

    def text(self, division: str, prefix: str) -> str:
        """Return it as Python ("//") or as C ("/")."""
        name = prefix + self.size
        moved = f"({name} {'-' if self.add < 0 else '+'} {abs(self.add)})" if self.add else name
        return f"{moved} {division} {self.divisor}" if self.divisor != 1 else moved


@frozen
class Formula:
    """A sum of products, each of a coefficient and factors."""

    terms: tuple[tuple[int, tuple[Factor, ...]], ...]

    def at(self, sizes: Mapping[str, int]) -> int:
        """Return its value."""
        total = 0
        for coefficient, factors in self.terms:
            for factor in factors:
                coefficient *= factor.at(sizes)
            total += coefficient
        return total

    @property
    def names(self) -> set[str]:
        """The run-time sizes that it depends on."""
        return {factor.size for _, factors in self.terms for factor in factors}

    @property
    def quotients(self) -> set[Factor]:
        """Its factors with a divisor."""
        return {factor for _, factors in self.terms for factor in factors if factor.divisor > 1}

    def c(self, prefix: str) -> str:
        """Return it as C, in parentheses unless it is a name; `prefix` precedes the names of the sizes."""
        text = self._text("/", prefix)
        return text if text.isidentifier() else f"({text})"

    def __str__(self) -> str:
        return self._text("//", "")

    def _text(self, division: str, prefix: str) -> str:
        text = ""
        for coefficient, factors in sorted(self.terms, key=lambda term: -len(term[1])):
            parts = [factor.text(division, prefix) for factor in factors]
            several = len(parts) > 1 or abs(coefficient) != 1
            parts = [f"({part})" if division in part and several else part for part in parts]
            if abs(coefficient) != 1 or not parts:
                parts.insert(0, str(abs(coefficient)))
            sign = ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
            text += sign + " * ".join(parts)
        return text or "0"


def parsed(text: str) -> Formula:
    """Parse a formula in the form that `str` writes.

    Raises:
        ValueError: it is not a formula.
    """
    try:
        return Formula(tuple(_terms(ast.parse(text, mode="eval").body)))
    except (SyntaxError, RecursionError) as failed:
        raise ValueError(f"{text!r} is not a formula") from failed


def _terms(node: ast.expr, sign: int = 1) -> Iterator[tuple[int, tuple[Factor, ...]]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _terms(node.left, sign)
        yield from _terms(node.right, -sign if isinstance(node.op, ast.Sub) else sign)
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _number(node) is None:
        yield from _terms(node.operand, -sign)
        return
    coefficient, factors = sign, []
    for part in _parts(node):
        number = _number(part)
        if number is None:
            factors.append(_factor(part))
        else:
            coefficient *= number
    yield coefficient, tuple(factors)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from _parts(node.left)
        yield from _parts(node.right)
    else:
        yield node


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _factor(node: ast.expr) -> Factor:
    divisor: int | None = 1
    add: int | None = 0
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        divisor = _number(node.right)
        node = node.left
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        add = _number(node.right)
        node = node.left
    if not isinstance(node, ast.Name) or add is None or divisor is None or divisor < 1:
        raise ValueError("not a formula")
    return Factor(node.id, add, divisor)


def fitted(names: Sequence[str], points: Sequence[Point], values: Sequence[int], period: int = 1) -> Formula | None:
    """Return the simplest formula that has these values at these points; None: none is found, or several.

    There are always more points than coefficients, and a quotient takes several values at them, so that a match is not
    a coincidence. If no point leaves a remainder of 1, (n + 1) // 3 and (n + 2) // 3 are the same there: then None is
    returned.

    Args:
        names: the names of the sizes.
        points: values of the sizes.
        values: the formula's value at each point.
        period: the formula only has to hold for sizes with the same remainders, divided by it, as the points.
    """
    return _fitted(tuple(names), tuple(points), tuple(values), period)


@functools.lru_cache(maxsize=100_000)
def _fitted(names: tuple[str, ...], points: tuple[Point, ...], values: tuple[int, ...], period: int) -> Formula | None:
    if len(set(values)) == 1:
        return Formula(((values[0], ()),))
    first: Formula | None = None
    size = 0
    for basis, columns in _bases(names, points):
        if first is not None and len(basis) != size:
            continue
        formula = _of_basis(basis, columns, names, points, values)
        if formula is None:
            continue
        if not formula.quotients:
            return formula
        if first is not None and not _is_same(first, formula, names, points, period):
            return None
        first, size = first or formula, len(basis)
    return first


Basis = tuple[tuple[Factor, ...], ...]


def _of_basis(
    basis: Basis, columns: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", names: tuple[str, ...],
    points: tuple[Point, ...], values: tuple[int, ...],
) -> Formula | None:  # fmt: skip
    """Return the sum of these products with these values at these points."""
    import numpy as np  # imported only to find formulas

    solution, _, rank, _ = np.linalg.lstsq(columns, np.array(values, np.float64), rcond=None)
    integers = np.rint(solution)
    if rank < len(basis) or np.abs(solution - integers).max() > _WORST * max(1.0, float(np.abs(integers).max())):
        return None
    formula = Formula(tuple((int(number), factors) for number, factors in zip(integers, basis, strict=True) if number))
    at = (formula.at(dict(zip(names, point, strict=True))) for point in points)
    return formula if all(computed == value for computed, value in zip(at, values, strict=True)) else None


def _is_same(formula: Formula, other: Formula, names: tuple[str, ...], points: tuple[Point, ...], period: int) -> bool:
    """Whether two formulas agree from the smallest to the largest value of each size."""
    columns = dict(zip(names, zip(*points, strict=True), strict=True))
    top = {name: max(column) for name, column in columns.items()}
    for name, column in columns.items():
        remainders = {size % period for size in column}
        for size in (size for size in range(min(column), top[name] + 1) if size % period in remainders):
            at = {**top, name: size}
            if formula.at(at) != other.at(at):
                return False
    return True


@functools.lru_cache(maxsize=64)
def _bases(
    names: tuple[str, ...], points: tuple[Point, ...]
) -> list[tuple[Basis, "np.ndarray[tuple[int, int], np.dtype[np.float64]]"]]:
    """Return the products that a formula may be a sum of, the simplest first, and their values at the points."""
    import numpy as np

    bases = []
    for basis in _candidates(names):
        factors = {factor for product in basis for factor in product}
        quotients = [factor for factor in factors if factor.divisor > 1]
        is_linear = not quotients and all(len(product) < 2 for product in basis)
        if len(points) < len(basis) + (1 if is_linear else _SPARE):
            continue
        sizes = [dict(zip(names, point, strict=True)) for point in points]
        if any(len({factor.at(at) for at in sizes}) < _STEPS for factor in quotients):
            continue
        rows = [[Formula(((1, product),)).at(at) for product in basis] for at in sizes]
        bases.append((basis, np.array(rows, np.float64)))
    return bases


def _candidates(names: tuple[str, ...]) -> Iterator[Basis]:
    plain = [Factor(name) for name in names]
    for factor in plain:
        yield ((factor,),)
        yield (), (factor,)
        yield (factor, factor), (factor,), ()
    for count in range(2, len(names) + 1):
        for chosen in itertools.combinations(plain, count):
            yield (chosen,)
            for degree in (1, 2):
                powers = itertools.product(range(degree + 1), repeat=count)
                yield tuple(
                    tuple(factor for factor, power in zip(chosen, each, strict=True) for _ in range(power))
                    for each in powers
                )
    parts = [Factor(name, add, divisor) for name in names for divisor in _DIVISORS for add in range(divisor)]
    for part in parts:
        yield ((part,),)
        yield (), (part,)
        for other in (other for other in plain if other.size != part.size):
            yield ((part, other),)
            yield (part, other), (other,)
    for part in parts:  # the remaining parts
        yield (Factor(part.size),), (part,)
        yield (Factor(part.size),), (part,), ()
