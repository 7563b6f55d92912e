"""Concatenations of transposed values."""

from dataclasses import replace

from mtool.compiler.ir import Node
from mtool.compiler.ir.editor import Editor
from mtool.compiler.ir.node import Transpose
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.operators.lowering import NCHW_OF_NHWC
from mtool.compiler.passes.layout.rule import Change, inverse


def sink_concat(graph: Editor, node: Node) -> Change | None:
    """concat(transpose(a), transpose(b)) = transpose(concat(a, b)); loops and constants beside them are turned."""
    if not isinstance(node.attrs, Concat):
        return None
    makers = {value: graph.maker(value, "transpose") for value in node.inputs}
    sources = {value: maker.inputs[0] for value, maker in makers.items() if maker}
    perms = {Transpose.of(maker).perm for maker in makers.values() if maker}
    if len(perms) != 1:
        return None
    perm = perms.pop()
    # Towards the kernels' layout only: the other way would undo it.
    others = [value for value in makers if value not in sources]
    if others and (perm != NCHW_OF_NHWC or not all(_turns(value, graph) for value in others)):
        return None

    def sunk(r: Editor, n: Node) -> None:
        back = inverse(perm)

        def turned(value: str) -> str:
            kind = r.types[value]
            other = r.value(f"{value}.s", kind.dtype, [kind.shape[dim] for dim in back])
            r.node("transpose", [value], [other], Transpose(perm=back), like=n)
            return other

        parts = {value: sources[value] if value in sources else turned(value) for value in n.inputs}
        kind = r.types[n.outputs[0]]
        made = r.value(f"{n.outputs[0]}.s", kind.dtype, [kind.shape[dim] for dim in back])
        attrs = replace(Concat.of(n), axis=perm[Concat.of(n).axis])
        r.node("concat", [parts[value] for value in n.inputs], [made], attrs, like=n)
        r.node("transpose", [made], n.outputs, Transpose(perm=perm), like=n)

    return sunk


def _turns(value: str, graph: Editor) -> bool:
    """Whether a value may as well be made transposed: by a loop that nothing else reads, or once for all."""
    return value in graph.constants or (graph.maker(value, "loop") is not None and bool(graph.only_reader(value)))
