"""Quantise before elements are moved: q(move(x)) is move(q(x)), number for number, and no float is moved or stored."""

from dataclasses import replace
from functools import partial

from mtool.compiler.ir import Expr, Graph, Node
from mtool.compiler.ir.editor import Editor
from mtool.compiler.ir.expr import identity, load
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.loop.node import Loop

MOST = 2  # times the elements that are left to quantise, where a move leaves some out


def quantise_before_moves(graph: Graph) -> Graph:
    """Let loops that make smaller elements of what was concatenated, cut or repeated do so before that.

    Each step brings a loop nearer to the inputs; a move that only it reads is passed once.
    """
    editor = Editor(graph)
    waiting = editor.in_order()[::-1]
    while waiting:
        node = waiting.pop()
        move = _move_before(node, editor)
        if move is not None:
            made = editor.change(move, partial(_exchanged, loop=node), without=node)
            waiting += reversed(made[:-1])
    return editor.finish()


def _move_before(node: Node, editor: Editor) -> Node | None:
    """Return the move of elements that a loop can be exchanged with; None: there is none."""
    maker = editor.makers.get(node.inputs[0]) if node.inputs else None
    if maker is None or not _moves(maker, editor) or not _is_narrowing(node, editor):
        return None
    return maker if editor.only_reader(maker.outputs[0]) is node else None


def _moves(node: Node, graph: Editor) -> bool:
    """Whether a node only moves elements, and not a small part of them."""
    if isinstance(node.attrs, Loop) and node.attrs.expr.op == "load":
        read = graph.types[node.inputs[node.attrs.expr.value]]
        return read.count <= MOST * graph.types[node.outputs[0]].count
    return isinstance(node.attrs, Concat)


def _is_narrowing(node: Node, graph: Editor) -> bool:
    """Whether a loop makes of each element of its one operand a smaller one."""
    if not isinstance(node.attrs, Loop) or len(node.inputs) != 1:
        return False
    read, made = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    plain = all(
        part.op not in ("axis", "reduce") and (part.op != "load" or part.args == identity(len(made.shape)))
        for part in node.attrs.expr.walk(indices=False)
    )
    return plain and read.shape == made.shape and made.dtype.size < read.dtype.size


def _exchanged(editor: Editor, move: Node, loop: Node) -> None:
    """Append the loop at each input of the move, then the move."""
    dtype = editor.types[loop.outputs[0]].dtype
    attrs, sources = move.attrs, move.inputs
    if isinstance(attrs, Loop):
        attrs = replace(attrs, expr=replace(attrs.expr, dtype=dtype))
        sources = (move.inputs[attrs.expr.value],)
    made = {}
    for value in dict.fromkeys(sources):
        made[value] = editor.value(f"{value}.q", dtype, editor.types[value].shape)
        rank = len(editor.types[value].shape)  # a move may leave out a dimension
        expr = Loop.of(loop).expr.rewrite(partial(_at_rank, rank=rank))
        editor.node("loop", [value], [made[value]], replace(Loop.of(loop), expr=expr), like=loop)
    inputs = [made.get(value, value) for value in move.inputs]
    editor.node(move.op, inputs, loop.outputs, attrs, like=move, origins=loop.origins)


def _at_rank(part: Expr, rank: int) -> Expr:
    """Return a load of the element itself, of a tensor of so many dimensions; other parts as they are."""
    return load(part.value, part.dtype, identity(rank)) if part.op == "load" else part
