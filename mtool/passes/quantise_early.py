"""Quantise before elements are moved: q(move(x)) is move(q(x)), number for number, and no float is moved or stored."""

from dataclasses import replace

from mtool.ir import Graph, Node
from mtool.ir.expr import identity
from mtool.ir.graph import Rewriter

MOST = 2  # times the elements that are left to quantise, where a move leaves some out


def quantise_before_moves(graph: Graph) -> Graph:
    """Let loops that make smaller elements of what was concatenated, cut or repeated do so before that."""
    while (moved := _one(graph)) is not None:
        graph = moved
    return graph


def _one(graph: Graph) -> Graph | None:
    producers, consumers = graph.producers(), graph.consumers()
    for node in graph.nodes:
        maker = producers.get(node.inputs[0]) if node.inputs else None
        if maker is None or not _moves(maker, graph) or not _is_narrowing(node, graph):
            continue
        (value,) = maker.outputs
        if value not in graph.outputs and {reader.name for reader in consumers[value]} == {node.name}:
            return _exchanged(graph, maker, node)
    return None


def _moves(node: Node, graph: Graph) -> bool:
    """Whether a node only moves elements, and not a small part of them."""
    if node.op == "loop" and node.attrs["expr"].op == "load":
        read = graph.types[node.inputs[node.attrs["expr"].value]]
        return read.count <= MOST * graph.types[node.outputs[0]].count
    return node.op == "concat"


def _is_narrowing(node: Node, graph: Graph) -> bool:
    """Whether a loop makes of each element of its one operand a smaller one."""
    if node.op != "loop" or len(node.inputs) != 1:
        return False
    read, made = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    plain = all(
        part.op not in ("axis", "reduce") and (part.op != "load" or part.args == identity(len(made.shape)))
        for part in node.attrs["expr"].walk(indices=False)
    )
    return plain and read.shape == made.shape and made.dtype.size < read.dtype.size


def _exchanged(graph: Graph, move: Node, loop: Node) -> Graph:
    """Rebuild the graph with the loop at each input of the move."""
    rewriter = Rewriter(graph)
    dtype = graph.types[loop.outputs[0]].dtype
    attrs, sources = move.attrs, move.inputs
    if move.op == "loop":
        attrs = {**attrs, "expr": replace(attrs["expr"], dtype=dtype)}
        sources = (move.inputs[attrs["expr"].value],)
    for node in graph.nodes:
        if node.name == move.name:
            made = {}
            for value in dict.fromkeys(sources):
                made[value] = rewriter.value(f"{value}.q", dtype, graph.types[value].shape)
                rewriter.node("loop", [value], [made[value]], loop.attrs, like=loop)
            inputs = [made.get(value, value) for value in move.inputs]
            rewriter.node(move.op, inputs, loop.outputs, attrs, like=move, origins=loop.origins)
        elif node.name != loop.name:
            rewriter.keep(node)
    return rewriter.finish()
