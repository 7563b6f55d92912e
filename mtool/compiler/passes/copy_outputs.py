"""Copy outputs that no operator writes, so that each output of the model has an operator that writes it."""

from mtool.compiler.ir import Graph
from mtool.compiler.ir.expr import const, identity, load
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.node import View
from mtool.compiler.kernels.loop.node import Loop


def copy_outputs(graph: Graph) -> Graph:
    """Copy outputs that are an input, a constant, or the same bytes as another output."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewriter.keep(node)
    root: dict[str, str] = {}
    for node in graph.nodes:
        if isinstance(node.attrs, View):
            root[node.outputs[0]] = root.get(node.inputs[0], node.inputs[0])
    made = {value for node in graph.nodes if not isinstance(node.attrs, View) for value in node.outputs}
    taken: set[str] = set()
    outputs = []
    for output in graph.outputs:
        viewed = root.get(output, output)
        if viewed in made and viewed not in taken:
            taken.add(viewed)
            outputs.append(output)
            continue
        kind = graph.types[output]
        copy = rewriter.value(f"{output}.copy", kind.dtype, kind.shape)
        element = load(0, kind.dtype, identity(len(kind.shape))) if kind.count else const(0, kind.dtype)
        rewriter.node("loop", [output] if kind.count else [], [copy], Loop(expr=element, label="copy"))
        outputs.append(copy)
    rewriter.outputs = tuple(outputs)
    return rewriter.finish()
