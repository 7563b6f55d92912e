"""Quantise before a concatenation: concat(q(a), q(b)) is q(concat(a, b)), number for number, and no float is stored."""

from mtool.ir import Expr, Graph, Node
from mtool.ir.expr import identity
from mtool.ir.graph import Rewriter


def quantise_before_concat(graph: Graph) -> Graph:
    """Move loops that make smaller elements of a concatenation's result to its inputs, until there is none."""
    while (moved := _one(graph)) is not None:
        graph = moved
    return graph


def _one(graph: Graph) -> Graph | None:
    producers, consumers = graph.producers(), graph.consumers()
    for node in graph.nodes:
        maker = producers.get(node.inputs[0]) if node.inputs else None
        if maker is None or maker.op != "concat" or not _is_narrowing(node, graph):
            continue
        (value,) = maker.outputs
        if value not in graph.outputs and {reader.name for reader in consumers[value]} == {node.name}:
            return _split(graph, maker, node)
    return None


def _is_narrowing(node: Node, graph: Graph) -> bool:
    """Whether a loop makes of each element of its one operand a smaller one."""
    if node.op != "loop" or len(node.inputs) != 1:
        return False
    read, made = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    plain = all(
        part.op not in ("axis", "reduce") and (part.op != "load" or part.args == identity(len(made.shape)))
        for part in _outside_indices(node)
    )
    return plain and read.shape == made.shape and made.dtype.size < read.dtype.size


def _outside_indices(node: Node) -> list[Expr]:
    def parts(expr: Expr) -> list[Expr]:
        return [expr] if expr.op == "load" else [expr, *(part for arg in expr.args for part in parts(arg))]

    return parts(node.attrs["expr"])


def _split(graph: Graph, concat: Node, loop: Node) -> Graph:
    """Rebuild the graph with the loop at each input of the concatenation."""
    rewriter = Rewriter(graph)
    dtype = graph.types[loop.outputs[0]].dtype
    for node in graph.nodes:
        if node.name == concat.name:
            made = {}
            for value in map(rewriter.resolve, dict.fromkeys(concat.inputs)):
                made[value] = rewriter.value(f"{value}.q", dtype, graph.types[value].shape)
                rewriter.node("loop", [value], [made[value]], loop.attrs, like=loop)
            inputs = [made[rewriter.resolve(value)] for value in concat.inputs]
            rewriter.node("concat", inputs, loop.outputs, concat.attrs, like=concat, origins=loop.origins)
        elif node.name != loop.name:
            rewriter.keep(node)
    return rewriter.finish()
