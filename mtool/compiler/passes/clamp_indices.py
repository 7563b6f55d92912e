"""Clamp indices that depend on data: whatever the data, no load reads outside its tensor.

This is the only place that does so for expressions, and so for every loop and epilogue. An index computed only from
loop axes and constants is right by construction. An index that depends on data is left unchanged where its range is
proven: by the element's type, by constants, by a condition around it, by the loop that computed it (an ArgMax). The
result for an index out of range is unspecified (docs/limits.md).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mtool.compiler.ir import Computation, Expr, Graph, Node, Rewriter, rewritten
from mtool.compiler.ir.expr import const, least, most
from mtool.compiler.ir.ranges import Range, Ranges, common, ranges_implied_by
from mtool.compiler.kernels.loop import Loop

Facts = tuple[tuple[Expr, Range], ...]


def clamp_indices(graph: Graph) -> Graph:
    """Clamp every index of a load that depends on data and may be out of range."""
    proven: dict[str, Range] = {
        name: (int(data.min()), int(data.max()))
        for name, data in graph.constants.items()
        if data.size and graph.types[name].dtype.is_integer
    }

    def clamped(_: Rewriter, node: Node) -> Node:
        attrs, output = Computation.of(node), graph.types[node.outputs[0]]
        ranges = Ranges(attrs.expr, output.shape, [proven.get(value) for value in node.inputs])
        expr = _with_clamps(attrs.expr, node, graph, ranges)
        reach = ranges.of(expr) if isinstance(attrs, Loop) and output.dtype.is_integer else None
        if reach is not None:
            proven[node.outputs[0]] = reach
        return node if expr is attrs.expr else replace(node, attrs=replace(attrs, expr=expr))

    return rewritten(graph, clamped, Computation)


def _is_computed(index: Expr) -> bool:
    """Whether an index depends on more than loop axes."""
    return any(part.op in ("load", "acc", "reduce") for part in index.walk())


def _with_clamps(expr: Expr, node: Node, graph: Graph, ranges: Ranges) -> Expr:
    """Return the expression with unproven indices clamped."""
    loads = {part for part in expr.walk() if part.op == "load" and any(map(_is_computed, part.args))}
    shapes = {part: graph.types[node.inputs[part.value]].shape for part in loads}
    reach = {part: [ranges.of(index) for index in part.args] for part in loads}
    unproven = {
        part
        for part, facts in _guarded(expr)
        if part in loads and not _is_inside(part, shapes[part], reach[part], facts)
    }
    if not unproven:
        return expr

    def rebuilt(part: Expr, args: Sequence[Expr]) -> Expr:
        if part in unproven:
            if 0 in shapes[part]:
                return const(0, part.dtype)  # there is nothing to read
            args = [_clamped(*triple) for triple in zip(args, shapes[part], reach[part], strict=True)]
        same = all(new is old for new, old in zip(args, part.args, strict=True))
        return part if same else replace(part, args=tuple(args))

    return expr.fold(rebuilt)


def _guarded(expr: Expr) -> Iterator[tuple[Expr, Facts]]:
    """Yield each part with the facts that conditions around it imply; once for each distinct set of facts."""
    waiting: list[tuple[Expr, Facts]] = [(expr, ())]
    seen = set()
    while waiting:
        part, facts = waiting.pop()
        if (id(part), facts) in seen:
            continue
        seen.add((id(part), facts))
        yield part, facts
        if part.op == "where":
            condition, yes, no = part.args
            waiting += [(condition, facts), (no, facts), (yes, (*facts, *ranges_implied_by(condition).items()))]
        else:
            waiting += [(arg, facts) for arg in part.args]


def _is_inside(load: Expr, shape: Sequence[int], reach: Sequence[Range | None], facts: Facts) -> bool:
    for index, size, bounds in zip(load.args, shape, reach, strict=True):
        for subject, fact in facts:
            bounds = common(bounds, fact) if subject == index else bounds
        if size != 1 and (bounds is None or bounds[0] < 0 or bounds[1] >= size):  # a dimension of 1 has no index in C
            return False
    return True


def _clamped(index: Expr, size: int, reach: Range | None) -> Expr:
    if size == 1 or not _is_computed(index):
        return index
    low, high = reach or (-1, size)
    if high >= size:
        index = least(index, size - 1)
    return most(index, 0) if low < 0 else index
