"""Move work above broadcasts: what is the same for many elements of a loop or epilogue is computed once, before it.

Fusion writes what a loop reads into the loop, and a model may broadcast before it computes: either way an expensive
function may be computed again for each element along an axis on which its operands do not depend. Such a part of an
expression becomes another loop over the axes on which it does depend, where that saves enough for the arena
that its result takes.
"""

from collections.abc import Collection
from dataclasses import replace
from math import prod

from mtool.compiler.ir import Expr, Graph, Node
from mtool.compiler.ir.expr import axis, const, load
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.node import Computation
from mtool.compiler.ir.types import DType
from mtool.compiler.kernels.expression_cost import Facts, part_that_pays, sizes_of
from mtool.compiler.kernels.loop.node import Loop
from mtool.compiler.kernels.registry import SPECIFICATIONS

LEAST_SAVED = 200  # instructions: another loop takes flash and a call,
LEAST_SAVED_PER_BYTE = 16  # and its result takes arena


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
    shapes = [rewriter.types[value].shape for value in node.inputs]
    found = part_that_pays(attrs.expr, sizes_of(attrs.expr, shape), prod(shape), shapes, is_enough)
    return None if found is None else with_part_before(rewriter, node, *found)


def is_enough(part: Expr, facts: Facts, saved: float, once: int) -> bool:
    """Whether a part saves what a loop of its own takes."""
    return saved >= max(LEAST_SAVED, LEAST_SAVED_PER_BYTE * once * part.dtype.size)


def with_part_before(rewriter: Rewriter, node: Node, part: Expr, axes: Collection[int]) -> tuple[Node, Node]:
    """Return a loop that computes a part of a node's expression for each element of its axes, and the node after it."""
    attrs, shape = Computation.of(node), rewriter.types[node.outputs[0]].shape
    rank, sizes = len(shape), sizes_of(attrs.expr, shape)
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
