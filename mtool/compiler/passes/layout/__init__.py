"""Simplify layouts: transpositions and views sink through loops and cancel against each other.

Kernels want NHWC, ONNX says NCHW, so lowering puts a transposition on either side of each kernel.
The rules below are applied until none fits; what is left really has to be done.
"""

from collections.abc import Sequence

from mtool.compiler.ir import Graph
from mtool.compiler.ir.editor import Editor
from mtool.compiler.passes.layout.concat import sink_concat
from mtool.compiler.passes.layout.rule import Rule
from mtool.compiler.passes.layout.transposes import (
    absorb_transposes,
    permute_weights,
    sink_transpose,
    store_transposed,
)
from mtool.compiler.passes.layout.views import compose, sink_view, view_of_units
from mtool.compiler.passes.layout.worklist import Worklist

_RULES: Sequence[Rule] = (
    compose,
    view_of_units,
    permute_weights,
    sink_transpose,
    sink_view,
    store_transposed,
    sink_concat,
)


def simplify_layout(graph: Graph) -> Graph:
    """Apply the layout rules until none fits."""
    editor = Editor(graph)
    worklist = Worklist(editor, _RULES)
    while (found := worklist.next()) is not None:
        editor.change(*found)
        worklist.note_change()
    return absorb_transposes(editor.finish())
