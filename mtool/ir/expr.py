"""Scalar expressions: what one element of a tensor is, in terms of loop axes and elements of operands.

An epilogue of a kernel and the body of a loop operator are both such an expression. Leaves:

    const   value: a Python number
    axis    value: the number of a loop axis (int32)
    acc     what the kernel computed for this element, before its epilogue
    load    value: the number of the node's input; args: one index expression a dimension

Everything else is a scalar function of `scalar.FUNCTIONS`, or `reduce` (value: Reduction).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mtool.ir.types import DType


@dataclass(frozen=True, slots=True)
class Reduction:
    """Combine the body over extra axes: kind is the NumPy ufunc "add", "multiply", "maximum" or "minimum"."""

    kind: str
    axes: tuple[tuple[int, int], ...]  # (axis number, size)


def first_of(kind: str, dtype: DType) -> float | int | bool:
    """Return what a reduction of a kind is before its first element: what it is of no elements."""
    if kind in ("add", "multiply"):
        return int(kind == "multiply")
    if dtype.is_float:
        return float("-inf") if kind == "maximum" else float("inf")
    low, high = dtype.limits if dtype is not DType.BOOL else (0, 1)
    return low if kind == "maximum" else high


@dataclass(frozen=True, slots=True)
class Expr:
    """One node of an expression; immutable and hashable."""

    op: str
    dtype: DType
    args: tuple["Expr", ...] = ()
    value: Any = None

    def walk(self) -> Iterator["Expr"]:
        """Yield every node, this one first."""
        yield self
        for arg in self.args:
            yield from arg.walk()

    def operands(self) -> set[int]:
        """Return the numbers of the node inputs that are loaded."""
        return {node.value for node in self.walk() if node.op == "load"}

    def rewrite(self, function: Callable[["Expr"], "Expr"]) -> "Expr":
        """Rebuild bottom-up, passing each rebuilt node through `function`."""
        args = tuple(arg.rewrite(function) for arg in self.args)
        return function(self if args == self.args else replace(self, args=args))

    def with_axes(self, axes: Mapping[int, "Expr"]) -> "Expr":
        """Replace loop axes by index expressions."""
        return self.rewrite(lambda node: axes.get(node.value, node) if node.op == "axis" else node)

    def with_operands(self, numbers: Mapping[int, int]) -> "Expr":
        """Renumber the operands of loads."""
        return self.rewrite(
            lambda node: (
                replace(node, value=numbers[node.value]) if node.op == "load" and node.value in numbers else node
            )
        )


def const(value: float | int | bool, dtype: DType) -> Expr:
    """Return a constant of a type; integers stay exact, floats are rounded to the type."""
    number = dtype.numpy.type(value).item()
    return Expr("const", dtype, value=number)


def axis(number: int) -> Expr:
    """Return a loop axis."""
    return Expr("axis", DType.INT32, value=number)


def acc(dtype: DType) -> Expr:
    """Return the kernel's own result."""
    return Expr("acc", dtype)


def load(operand: int, dtype: DType, index: tuple[Expr, ...]) -> Expr:
    """Return an element of a node input."""
    return Expr("load", dtype, index, operand)


def call(op: str, *args: Expr, dtype: DType | None = None, value: Any = None) -> Expr:
    """Apply a scalar function; the result has the first argument's type unless told."""
    return simplify(Expr(op, dtype or args[0].dtype, args, value))


def identity(rank: int) -> tuple[Expr, ...]:
    """Return the index of the element itself: axes 0 to rank - 1."""
    return tuple(axis(number) for number in range(rank))


def broadcast_index(shape: tuple[int, ...], into: tuple[int, ...]) -> tuple[Expr, ...]:
    """Return the index into an operand of `shape` that is broadcast (NumPy's rule) into the shape `into`."""
    shift = len(into) - len(shape)
    return tuple(
        const(0, DType.INT32) if size == 1 and into[shift + number] != 1 else axis(shift + number)
        for number, size in enumerate(shape)
    )


def _is(expr: Expr, value: int) -> bool:
    return expr.op == "const" and expr.value == value and type(expr.value) is not bool


def simplify(expr: Expr) -> Expr:
    """Fold what is trivial: integer constants, +0, *1, casts to the same type."""
    args = expr.args
    if expr.op == "cast" and args[0].dtype == expr.dtype:
        return args[0]
    if expr.dtype == DType.INT32 and len(args) == 2:
        left, right = args
        if left.op == right.op == "const" and expr.op in _INDEX_FOLD and not (expr.op != "add" and right.value == 0):
            return const(_INDEX_FOLD[expr.op](left.value, right.value), DType.INT32)
        if expr.op == "add" and (_is(left, 0) or _is(right, 0)):
            return right if _is(left, 0) else left
        if expr.op in ("mul", "floordiv") and _is(right, 1):
            return left
        if expr.op == "mul" and _is(right, 0):
            return right
    return expr


_INDEX_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}
