"""Insert copies: of constants that are read as activations, and of outputs that no operator writes."""

from dataclasses import replace

from mtool.compiler.ir import Control, Graph, Node, Rewriter, View, const, identity, load, rewritten
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.registry import SPECIFICATIONS


def copy_constant_inputs(graph: Graph) -> Graph:
    """Copy the constants that kernels read as their activations, such as a tensor without elements that is padded."""

    def copied(rewriter: Rewriter, node: Node) -> Node:
        inputs, operands = list(node.inputs), SPECIFICATIONS[node.op].fixed_operands(node)
        for index, value in enumerate(inputs):
            in_arena = isinstance(node.attrs, Control) or (index < len(operands) and operands[index].is_in_arena)
            if in_arena and value in graph.constants:
                inputs[index] = _copy_of(rewriter, value, is_read=True)
        return replace(node, inputs=tuple(inputs))

    return rewritten(graph, copied)


def _copy_of(rewriter: Rewriter, value: str, *, is_read: bool) -> str:
    kind = rewriter.types[value]
    copy = rewriter.like(f"{value}.copy", kind)
    element = load(0, kind.dtype, identity(len(kind.shape))) if is_read else const(0, kind.dtype)
    rewriter.node("loop", [value] if is_read else [], [copy], Loop(expr=element, label="copy"))
    return copy


def copy_outputs(graph: Graph) -> Graph:
    """Copy outputs that are also an input, a constant, or the same bytes as another output."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewriter.keep(node)
    root: dict[str, str] = {}
    for node in graph.nodes:
        if isinstance(node.attrs, View):
            root[node.outputs[0]] = root.get(node.inputs[0], node.inputs[0])
    seen, outputs = set[str](), []
    makers = {value for node in graph.nodes if not isinstance(node.attrs, View) for value in node.outputs}
    for output in graph.outputs:
        viewed = root.get(output, output)
        is_written = viewed in makers and viewed not in seen
        seen.add(viewed)
        outputs.append(output if is_written else _copy_of(rewriter, output, is_read=graph.types[output].count > 0))
    rewriter.outputs = tuple(outputs)
    return rewriter.finish()
