"""Scalar expressions: one element of a tensor as a function of loop axes and elements of operands.

A kernel's epilogue and the body of a loop operator are both such expressions. Leaves:

    const   value: a Python number
    axis    value: the number of a loop axis (int32)
    acc     what the kernel computed for this element, before its epilogue
    load    value: the number of the node's input; args: one index expression a dimension

Everything else is a scalar function of `scalar.FUNCTIONS`, or `reduce` (value: Reduction).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from mtool.base.frozen import frozen
from mtool.compiler.ir.types import DType

T = TypeVar("T")
MAX_SHOWN = 200  # parts of an expression in a dump


@frozen
class Reduction:
    """Combine the body over extra axes: kind is the NumPy ufunc "add", "multiply", "maximum" or "minimum".

    careful: compensated summation: the rounding error of each float addition is added up too.
    """

    kind: str
    axes: tuple[tuple[int, int], ...]  # (axis number, size)
    careful: bool = False


def first_of(kind: str, dtype: DType) -> float | int | bool:
    """Return a reduction's neutral element, which is its result for no elements."""
    if kind in ("add", "multiply"):
        return int(kind == "multiply")
    if dtype.is_float:
        return float("-inf") if kind == "maximum" else float("inf")
    low, high = dtype.limits if dtype is not DType.BOOL else (0, 1)
    return low if kind == "maximum" else high


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr:
    """One node of an expression; immutable and hashable.

    Parts may be shared: `fold` and `rewrite` visit each part once, without recursion. `size` counts the nodes, those
    of a shared part each time it occurs, as it is written in C; `depth` is the length of the longest
    path down. Two constants are equal if their bits are: -0.0 is not 0.0, and a NaN is itself. Operators are
    index arithmetic, of int32 that never overflows, with Python numbers on the right.
    """

    op: str
    dtype: DType
    args: tuple["Expr", ...] = ()
    value: Any = None
    size: int = field(init=False)
    depth: int = field(init=False)
    _hash: int = field(init=False)

    def __post_init__(self) -> None:
        size, depth = 1, 0
        for arg in self.args:
            size += arg.size
            depth = max(depth, arg.depth)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "depth", 1 + depth)
        object.__setattr__(self, "_hash", hash((self._key, self.args)))

    @property
    def _key(self) -> tuple[object, ...]:
        value = self.value.hex() if isinstance(self.value, float) else self.value
        return self.op, self.dtype, value, len(self.args)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expr):
            return False
        waiting, equal = [(self, other)], set[tuple[int, int]]()
        while waiting:
            a, b = waiting.pop()
            if a is b or (id(a), id(b)) in equal:
                continue
            if a._hash != b._hash or a._key != b._key:
                return False
            equal.add((id(a), id(b)))
            waiting.extend(zip(a.args, b.args, strict=True))
        return True

    def __repr__(self) -> str:
        if self.size > MAX_SHOWN:
            return f"<{self.op} of {self.size} parts>"
        value = "" if self.value is None else f" {self.value}"
        return f"{self.op}{value}({', '.join(map(repr, self.args))}):{self.dtype.label}"

    def __add__(self, other: "Index") -> "Expr":
        if isinstance(other, int) and other < 0:
            return call("sub", self, number(-other), value="index")
        return call("add", self, number(other), value="index")

    def __sub__(self, other: "Index") -> "Expr":
        if isinstance(other, int) and other <= 0:
            return self + -other
        return call("sub", self, number(other), value="index")

    def __mul__(self, other: "Index") -> "Expr":
        return call("mul", self, number(other), value="index")

    def __floordiv__(self, other: "Index") -> "Expr":
        """Return the quotient of numbers that are not negative."""
        return call("floordiv", self, number(other), value="index")

    def __mod__(self, other: "Index") -> "Expr":
        """Return the remainder of a division of numbers that are not negative."""
        return call("mod", self, number(other), value="index")

    def walk(self, *, indices: bool = True) -> Iterator["Expr"]:
        """Yield every node, this one first; without `indices`, loads' index expressions are left out."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            if indices or node.op != "load":
                waiting.extend(reversed(node.args))

    def operands(self) -> set[int]:
        """Return the numbers of the node inputs that are loaded."""
        return {node.value for node in self.parts() if node.op == "load"}

    def parts(self, leaves: Collection[str] = ()) -> Iterator["Expr"]:
        """Yield every node once, after its arguments; the arguments of ops in `leaves` are left out."""
        is_done, waiting = dict[int, bool](), [self]  # a node waits once more below its arguments
        while waiting:
            node = waiting.pop()
            state = is_done.get(id(node))
            if state is None and node.args and node.op not in leaves:
                is_done[id(node)] = False
                waiting.append(node)
                waiting.extend(reversed(node.args))
            elif not state:
                is_done[id(node)] = True
                yield node

    def fold(self, function: Callable[["Expr", Sequence[T]], T], leaves: Collection[str] = ()) -> T:
        """Return `function` of this node and of its arguments' results; bottom-up, each part once.

        The arguments of ops in `leaves` are not visited. Results are released after their last use.
        """
        order = [*self.parts(leaves)]
        last = {id(arg): node for node in order for arg in node.args}
        results: dict[int, T] = {}
        for node in order:
            args = [] if node.op in leaves else node.args
            results[id(node)] = function(node, [results[id(arg)] for arg in args])
            for arg in args:
                if last[id(arg)] is node:
                    results.pop(id(arg), None)
        return results[id(self)]

    def rewrite(self, function: Callable[["Expr"], "Expr"]) -> "Expr":
        """Rebuild bottom-up, passing each rebuilt node through `function`."""

        def rebuilt(node: "Expr", args: Sequence["Expr"]) -> "Expr":
            same = all(new is old for new, old in zip(args, node.args, strict=True))
            return function(node if same else Expr(node.op, node.dtype, tuple(args), node.value))

        return self.fold(rebuilt)

    def with_part(self, part: "Expr", by: "Expr") -> "Expr":
        """Replace a part wherever it occurs."""
        return self.rewrite(lambda node: by if node == part else node)

    def with_axes(self, axes: Mapping[int, "Expr"]) -> "Expr":
        """Replace loop axes by index expressions."""
        return self.rewrite(lambda node: axes.get(node.value, node) if node.op == "axis" else node)

    def with_operands(self, numbers: Mapping[int, int]) -> "Expr":
        """Renumber the operands of loads."""
        moved = {old: new for old, new in numbers.items() if old != new}

        def renumbered(node: "Expr") -> "Expr":
            return replace(node, value=moved[node.value]) if node.op == "load" and node.value in moved else node

        return self.rewrite(renumbered) if moved else self


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
    """Apply a scalar function; the result has the first argument's type unless `dtype` is given."""
    return simplify(Expr(op, dtype or args[0].dtype, args, value))


def identity(rank: int) -> tuple[Expr, ...]:
    """Return the index of the element itself: axes 0 to rank - 1."""
    return tuple(axis(number) for number in range(rank))


def broadcast_index(shape: tuple[int, ...], into: tuple[int, ...]) -> tuple[Expr, ...]:
    """Return the index into an operand of `shape` that is broadcast (NumPy's rule) into the shape `into`.

    Raises:
        ValueError: the shapes do not broadcast.
    """
    shift = len(into) - len(shape)
    if shift < 0 or any(size not in (1, into[shift + number]) for number, size in enumerate(shape)):
        raise ValueError(f"{list(shape)} does not broadcast to {list(into)}")
    return tuple(
        const(0, DType.INT32) if size == 1 and into[shift + number] != 1 else axis(shift + number)
        for number, size in enumerate(shape)
    )


def _is(expr: Expr, value: int) -> bool:
    return expr.op == "const" and expr.value == value and type(expr.value) is not bool


def simplify(expr: Expr) -> Expr:
    """Simplify integer constants, +0, *1, and casts to the same type."""
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


# Indices: int32 expressions, with Python numbers allowed on either side.


Index = Expr | int


def number(value: Index) -> Expr:
    """Return an index as an expression."""
    return value if isinstance(value, Expr) else const(value, DType.INT32)


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
    return choose(compare("less", index, 0), index + size, index)
