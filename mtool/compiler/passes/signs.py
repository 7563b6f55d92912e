"""Find the layers whose inputs are all of one magnitude, as those of binary networks."""

from dataclasses import replace

from mtool.compiler.ir import DType, Expr, Graph, Node, Rewriter, View, rewritten
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.pool2d import Pool2d
from mtool.compiler.kernels.weighted_sum import WeightedSum

Values = frozenset[int] | None
"""All values that elements may have; None: unknown."""


def mark_signs(graph: Graph) -> Graph:
    """Set `magnitude` of weighted sums."""
    value_sets: dict[str, Values] = {}
    for node in graph.nodes:
        signs = _values(node, graph, value_sets)
        value_sets |= dict.fromkeys(node.outputs, signs if signs and len(signs) <= 2 else None)

    def marked(_: Rewriter, node: Node) -> Node:
        values = value_sets.get(node.inputs[0]) or frozenset()
        magnitudes = {abs(value) for value in values}
        is_signs = len(magnitudes) == 1 and graph.types[node.inputs[0]].dtype is DType.INT8
        magnitude = max(magnitudes) if is_signs else 0
        return replace(node, attrs=replace(WeightedSum.of(node), magnitude=magnitude)) if magnitude else node

    return rewritten(graph, marked, WeightedSum)


def _values(node: Node, graph: Graph, value_sets: dict[str, Values]) -> Values:
    """Return the values of a node's output."""
    attrs = node.attrs
    if isinstance(attrs, View | Concat):
        return _union([value_sets.get(value) for value in node.inputs])
    if isinstance(attrs, Pool2d):
        is_moved = attrs.kind == "max" and attrs.expr.op == "acc" and not any(attrs.pads)
        return value_sets.get(node.inputs[0]) if is_moved else None
    return _values_of(attrs.expr, node, value_sets) if isinstance(attrs, Loop | WeightedSum) else None


def _values_of(expr: Expr, node: Node, value_sets: dict[str, Values]) -> Values:
    if expr.op == "const" and expr.dtype.is_integer:
        return frozenset([expr.value])
    if expr.op == "load":
        return value_sets.get(node.inputs[expr.value])
    if expr.op in ("where", "maximum", "minimum"):
        return _union([_values_of(arg, node, value_sets) for arg in expr.args[-2:]])
    return None


def _union(parts: list[Values]) -> Values:
    sets = [part for part in parts if part is not None]
    return frozenset().union(*sets) if len(sets) == len(parts) else None
