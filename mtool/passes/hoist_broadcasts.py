"""Move work above broadcasts: what is the same for many elements of a loop or epilogue is computed once, before it.

Fusion writes what a loop reads into the loop, and a model may broadcast before it computes: either way an expensive
function may be computed again for each element along an axis on which its operands do not depend. Such a part of an
expression becomes another loop over the axes on which it does depend, where that saves enough for the arena
that its result takes.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from mtool.ir import Expr, Graph, Node
from mtool.ir.expr import axis, const, load
from mtool.ir.graph import Rewriter
from mtool.ir.node import Computation
from mtool.ir.types import DType
from mtool.kernels.expressions import SLOW
from mtool.ops import SPECIFICATIONS
from mtool.ops.loop.node import Loop

FUNCTION_CALL = 60  # instructions of a function of the mathematical library, about;
SHORT = {
    "sqrt": 15,
    "floor": 10,
    "ceil": 10,
    "rint": 10,
    "round": 10,
    "trunc": 10,
    "div": 15,
    "mod": 15,
    "quantise": 15,
}
OTHER = 1  # of another operation,
STORED = 8  # of storing an element and going on to the next one,
LOADED = 3  # and of loading it
LEAST_SAVED = 200  # instructions: another loop takes flash and a call,
LEAST_SAVED_PER_BYTE = 16  # and its result takes arena

GUARDS = ("where", "and", "or")  # of which only the first operand is always computed


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a part of an expression.

    axes: on which it depends; those of a reduction in it are its own.
    cost: the instructions of computing it once, about; of floats there may be far more without an FPU.
    is_own: whether it depends on what a kernel computed.
    """

    axes: frozenset[int]
    cost: int
    is_own: bool


def hoist_broadcasts(graph: Graph) -> Graph:
    """Compute parts of loops and epilogues before them, once, where that costs less."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        waiting = [node]
        while waiting:  # what is moved out may have parts of which the same is true
            current = waiting.pop()
            moved = _moved(rewriter, current) if isinstance(current.attrs, Computation) else None
            if moved is None:
                rewriter.keep(current)
            else:
                waiting += [moved[1], moved[0]]
    return rewriter.finish()


def _moved(rewriter: Rewriter, node: Node) -> tuple[Node, Node] | None:
    """Return a loop that computes a part of a node's expression, and the node that reads it; None: none pays."""
    attrs, shape = Computation.of(node), rewriter.types[node.outputs[0]].shape
    rank = len(shape)
    sizes = dict(enumerate(shape))
    for part in attrs.expr.walk(indices=False):
        sizes |= dict(part.value.axes) if part.op == "reduce" else {}
    found = _part_that_pays(attrs.expr, sizes, prod(shape))
    if found is None:
        return None
    part, axes = found
    extra = sorted(number for number in axes if number >= rank)
    kept = [size if number in axes else 1 for number, size in enumerate(shape)]
    value = rewriter.value(f"{node.outputs[0]}.part", part.dtype, [*kept, *(sizes[number] for number in extra)])
    body = part.with_axes({number: axis(rank + behind) for behind, number in enumerate(extra)})
    operands = sorted(body.operands())
    made = Node(
        "loop", rewriter.unique(node.name), tuple(node.inputs[number] for number in operands), (value,),
        Loop(expr=body.with_operands({old: new for new, old in enumerate(operands)}), label=_label(attrs, part)),
        node.origins,
    )  # fmt: skip
    first = [axis(number) if number in axes else const(0, DType.INT32) for number in range(rank)]
    element = load(len(node.inputs), part.dtype, (*first, *(axis(number) for number in extra)))
    rest = attrs.expr.rewrite(lambda other: element if other == part else other)
    return made, _without_unread(replace(node, inputs=(*node.inputs, value), attrs=replace(attrs, expr=rest)))


def _part_that_pays(expr: Expr, sizes: Mapping[int, int], count: int) -> tuple[Expr, frozenset[int]] | None:
    """Return the largest part that is worth computing once for each element of its axes, and these.

    What a condition keeps from being computed (an element beyond an edge, a division by zero) stays behind it.
    """
    facts = _facts(expr)
    waiting, seen = deque([(expr, count)]), set[int]()
    while waiting:
        part, times = waiting.popleft()
        if id(part) in seen or part.op in ("const", "load", "axis", "acc"):
            continue
        seen.add(id(part))
        own = facts[id(part)]
        once = prod(sizes[number] for number in own.axes)
        saved = (times - once) * own.cost - once * STORED - times * LOADED
        is_fact = part.dtype is DType.BOOL  # which proves that indices behind it lie inside
        if not (own.is_own or is_fact) and saved >= max(LEAST_SAVED, LEAST_SAVED_PER_BYTE * once * part.dtype.size):
            return part, own.axes
        if part.op == "reduce":
            times *= prod(size for _, size in part.value.axes)
        waiting += [(arg, times) for arg in part.args[: 1 if part.op in GUARDS else None]]
    return None


def _facts(expr: Expr) -> dict[int, Facts]:
    """Return the facts about every part, by its identity."""
    found: dict[int, Facts] = {}
    for part in expr.parts():
        inside = [found[id(arg)] for arg in part.args]
        axes = frozenset().union(*(one.axes for one in inside))
        cost = sum(one.cost for one in inside)
        if part.op == "reduce":
            axes -= {number for number, _ in part.value.axes}
            cost = (cost + LOADED) * prod(size for _, size in part.value.axes)
        elif part.op == "axis":
            axes = frozenset([part.value])
        elif part.op != "const":
            cost += SHORT.get(part.op, FUNCTION_CALL if part.op in SLOW else OTHER)
        found[id(part)] = Facts(axes, cost, part.op == "acc" or any(one.is_own for one in inside))
    return found


def _label(attrs: Computation, part: Expr) -> str:
    """Return the ONNX operators that a part stands for: those of the node's that have its functions' names."""
    functions = {inner.op for inner in part.walk(indices=False)}
    words = [word for word in attrs.label.split("+") if word in functions]
    return "+".join(words) or attrs.label


def _without_unread(node: Node) -> Node:
    """Return a node without the operands that its expression no longer reads; a kernel's own stay."""
    expr, own = Computation.of(node).expr, len(SPECIFICATIONS[node.op].own(node))
    kept = [number for number in range(len(node.inputs)) if number < own or number in expr.operands()]
    moved = expr.with_operands({old: new for new, old in enumerate(kept)})
    attrs = replace(Computation.of(node), expr=moved)
    return replace(node, inputs=tuple(node.inputs[number] for number in kept), attrs=attrs)
