"""Settle layouts: transpositions and views sink through loops and cancel against each other.

Kernels want NHWC, ONNX says NCHW, so lowering puts a transposition on either side of each kernel.
The rules below are applied until none fits; what is left really has to be done.
"""

from collections.abc import Sequence

from mtool.ir import Graph
from mtool.passes.layout.concat import sink_concat
from mtool.passes.layout.rule import Rule, State
from mtool.passes.layout.transposes import absorb_transposes, permute_weights, sink_transpose, store_transposed
from mtool.passes.layout.views import compose, sink_view, view_of_units

_RULES: Sequence[Rule] = (
    compose,
    view_of_units,
    permute_weights,
    sink_transpose,
    sink_view,
    store_transposed,
    sink_concat,
)


def settle_layout(graph: Graph) -> Graph:
    """Apply the layout rules until none fits."""
    changed: Graph | None = graph
    while changed is not None:
        graph = changed
        changed = _changed(graph)
    return absorb_transposes(graph)


def _changed(graph: Graph) -> Graph | None:
    """Apply the first rule that fits, at the first node where it does; None: none fits."""
    state = State.of(graph)
    for rule in _RULES:
        for node in graph.nodes:
            change = rule(state, node)
            if change is not None:
                return state.rebuilt(node, change)
    return None
