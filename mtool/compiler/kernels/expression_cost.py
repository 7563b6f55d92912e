"""The cost and dependencies of an expression's parts, and which of them to compute before the rest."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod

from mtool.base.frozen import frozen
from mtool.compiler.ir import DType, Expr
from mtool.compiler.kernels.expressions import SLOW

FUNCTION_CALL = 60  # instructions of a math library function, about;
SHORT = dict.fromkeys(("sqrt", "div", "mod", "quantize"), 15)
SHORT |= dict.fromkeys(("floor", "ceil", "rint", "round", "trunc"), 10)
OTHER = 1  # of another operation,
STORED = 8  # of storing an element and advancing to the next one,
LOADED = 3  # and of loading it

GUARDS = ("where", "and", "or")  # functions of which only the first operand is always computed,
GUARDED = 0.5  # and the assumed probability of the others

ROUND = -1
"""The axis along which the rounds of a loop lie."""


@frozen
class Facts:
    """Facts about a part of an expression.

    axes: the axes on which it depends, without those of reductions in it.
    cost: the instructions of computing it once, about; floats take far more without an FPU.
    is_own: whether it depends on the kernel's accumulator.
    """

    axes: frozenset[int]
    cost: int
    is_own: bool


def facts_of(expr: Expr, changing: Collection[int] = ()) -> dict[int, Facts]:
    """Return the facts about every part, by its identity; `changing` operands differ from round to round."""
    facts: dict[int, Facts] = {}
    for part in expr.parts():
        inside = [facts[id(arg)] for arg in part.args]
        axes = frozenset().union(*(inner.axes for inner in inside))
        cost = sum(inner.cost for inner in inside)
        if part.op == "reduce":
            axes -= {number for number, _ in part.value.axes}
            cost = (cost + LOADED) * prod(size for _, size in part.value.axes)
        elif part.op == "axis":
            axes = frozenset([part.value])
        elif part.op != "const":
            cost += SHORT.get(part.op, FUNCTION_CALL if part.op in SLOW else OTHER)
        if part.op == "acc" or (part.op == "load" and part.value in changing):
            axes |= {ROUND}
        facts[id(part)] = Facts(axes, cost, part.op == "acc" or any(inner.is_own for inner in inside))
    return facts


def cost_of(expr: Expr) -> int:
    """Return the instructions of computing an expression once, about."""
    return facts_of(expr)[id(expr)].cost


def sizes_of(expr: Expr, shape: Collection[int]) -> dict[int, int]:
    """Return the size of each axis of an expression, those of its reductions among them."""
    sizes = dict(enumerate(shape))
    for part in expr.walk(indices=False):
        sizes |= dict(part.value.axes) if part.op == "reduce" else {}
    return sizes


def part_that_pays(
    expr: Expr,
    sizes: Mapping[int, int],
    count: int,
    shapes: Sequence[tuple[int, ...]],
    is_enough: Callable[[Expr, Facts, float, int], bool],
    changing: Collection[int] = (),
) -> tuple[Expr, frozenset[int]] | None:
    """Return the largest part that is worth computing once for each element of its axes, and the axes.

    A part whose loads are in range only under a condition (inside an edge) stays under the condition.

    Args:
        expr: the expression of each element.
        sizes: the sizes of its axes.
        count: the number of elements.
        shapes: the operands' shapes.
        is_enough: whether to move a part, given its facts, the saving, and the number of elements for which it is then
            computed.
        changing: the operands that change from round to round.
    """
    facts = facts_of(expr, changing)
    waiting, seen = deque([(expr, float(count), False)]), set[int]()
    while waiting:
        part, times, is_guarded = waiting.popleft()
        if id(part) in seen or part.op in ("const", "load", "axis", "acc"):
            continue
        seen.add(id(part))
        part_facts = facts[id(part)]
        once = prod(sizes[number] for number in part_facts.axes if number in sizes)
        saved = (times - once) * part_facts.cost - once * STORED - times * LOADED
        is_fact = part.dtype is DType.BOOL  # a condition, which may prove that later indices are in range
        pays = not (part_facts.is_own or is_fact) and is_enough(part, part_facts, saved, once)
        if pays and (not is_guarded or all(_is_inside(inner, sizes, shapes) for inner in part.parts())):
            return part, part_facts.axes
        if part.op == "reduce":
            times *= prod(size for _, size in part.value.axes)
        waiting += [(arg, times, is_guarded) for arg in part.args[: 1 if part.op in GUARDS else None]]
        if part.op in GUARDS:
            waiting += [(arg, times * GUARDED, True) for arg in part.args[1:]]
    return None


def _is_inside(part: Expr, sizes: Mapping[int, int], shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether a part is not a load, or a load that is in range without any condition."""
    if part.op != "load":
        return True
    for index, size in zip(part.args, shapes[part.value], strict=True):
        last = index.value if index.op == "const" else sizes[index.value] - 1 if index.op == "axis" else size
        if not 0 <= last < size:
            return False
    return True
