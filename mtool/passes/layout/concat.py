"""Concatenations of transposed values."""

from mtool.ir import Node
from mtool.ir.graph import Rewriter
from mtool.ops.lowering import NCHW_OF_NHWC
from mtool.passes.layout.rule import Change, State, inverse


def sink_concat(state: State, node: Node) -> Change | None:
    """concat(transpose(a), transpose(b)) = transpose(concat(a, b)); loops and constants beside them are turned."""
    if node.op != "concat":
        return None
    makers = {value: state.maker(value, "transpose") for value in node.inputs}
    sources = {value: maker.inputs[0] for value, maker in makers.items() if maker}
    perms = {maker.attrs["perm"] for maker in makers.values() if maker}
    if len(perms) != 1:
        return None
    perm = perms.pop()
    # Towards the kernels' layout only: the other way would undo it.
    others = [value for value in makers if value not in sources]
    if others and (perm != NCHW_OF_NHWC or not all(_turns(value, state) for value in others)):
        return None

    def sunk(r: Rewriter, n: Node) -> None:
        back = inverse(perm)

        def turned(value: str) -> str:
            kind = r.types[r.resolve(value)]
            other = r.value(f"{value}.s", kind.dtype, [kind.shape[place] for place in back])
            r.node("transpose", [r.resolve(value)], [other], {"perm": back}, like=n)
            return other

        parts = {value: r.resolve(sources[value]) if value in sources else turned(value) for value in n.inputs}
        kind = r.types[n.outputs[0]]
        made = r.value(f"{n.outputs[0]}.s", kind.dtype, [kind.shape[place] for place in back])
        attrs = {**n.attrs, "axis": perm[n.attrs["axis"]]}
        r.node("concat", [parts[value] for value in n.inputs], [made], attrs, like=n)
        r.node("transpose", [made], n.outputs, {"perm": perm}, like=n)

    return sunk


def _turns(value: str, state: State) -> bool:
    """Whether a value may as well be made transposed: by a loop that nothing else reads, or once for all."""
    if value in state.graph.constants:
        return True
    readers = {reader.name for reader in state.consumers[value]}
    return state.maker(value, "loop") is not None and len(readers) == 1 and value not in state.graph.outputs
