"""Index arithmetic: int32 expressions that never overflow, with Python numbers allowed on either side."""

from collections.abc import Iterable

from mtool.compiler.ir.expr import Expr, call, const
from mtool.compiler.ir.types import DType

Index = Expr | int


def number(value: Index) -> Expr:
    """Return an index as an expression."""
    return value if isinstance(value, Expr) else const(value, DType.INT32)


def plus(a: Index, b: Index) -> Expr:
    """Return a + b."""
    if isinstance(b, int) and b < 0:
        return call("sub", number(a), number(-b), value="index")
    return call("add", number(a), number(b), value="index")


def minus(a: Index, b: Index) -> Expr:
    """Return a - b."""
    if isinstance(b, int) and b <= 0:
        return plus(a, -b)
    return call("sub", number(a), number(b), value="index")


def times(a: Index, b: Index) -> Expr:
    """Return a * b."""
    return call("mul", number(a), number(b), value="index")


def over(a: Index, b: Index) -> Expr:
    """Return a / b, of numbers that are not negative."""
    return call("floordiv", number(a), number(b), value="index")


def modulo(a: Index, b: Index) -> Expr:
    """Return the rest of a / b, of numbers that are not negative."""
    return call("mod", number(a), number(b), value="index")


def least(a: Index, b: Index) -> Expr:
    """Return the smaller one."""
    return call("minimum", number(a), number(b))


def most(a: Index, b: Index) -> Expr:
    """Return the larger one."""
    return call("maximum", number(a), number(b))


def compare(op: str, a: Index, b: Index) -> Expr:
    """Return whether a is "less", "less_equal", "greater", "greater_equal" or "equal" to b."""
    return call(op, number(a), number(b), dtype=DType.BOOL)


def every(conditions: Iterable[Expr]) -> Expr | None:
    """Return whether all conditions hold; None if there are none."""
    total: Expr | None = None
    for condition in conditions:
        total = condition if total is None else call("and", total, condition)
    return total


def inside(index: Expr, size: int) -> list[Expr]:
    """Return the conditions under which 0 <= index < size."""
    return [compare("greater_equal", index, 0), compare("less", index, size)]


def choose(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """Return one of two values; the other is not computed."""
    return call("where", condition, yes, no, dtype=yes.dtype)


def integer(value: Expr) -> Expr:
    """Return a number as an index."""
    return call("cast", value, dtype=DType.INT32)


def wrapped(value: Expr, size: int) -> Expr:
    """Return an index that counts from the end if it is negative."""
    index = integer(value)
    return choose(compare("less", index, 0), plus(index, size), index)
