"""Fuse loops into the kernel or loop that makes what they read."""

from collections.abc import Iterator
from dataclasses import replace

from mtool.ir import Expr, Graph, Node
from mtool.ir.graph import Rewriter
from mtool.ir.scalar import FUNCTIONS
from mtool.ops.ctext import LIBM

CHEAP = 5  # functions an element up to which a loop is computed again for each of its readers


def fuse(graph: Graph) -> Graph:
    """Fuse loops into loops until none applies, then into kernels.

    In this order, so that a dequantisation is computed by its readers, from integers, before it
    could make a kernel write floats.
    """
    for into in (_dequantisations, _into_loops, _into_kernels):
        while (fused := into(graph)) is not None:
            graph = fused
    return graph


def _makers(graph: Graph) -> Iterator[tuple[Node, Node, list[Expr]]]:
    """Yield (maker, loop, the loop's loads of the maker's value), latest maker first."""
    producers = graph.producers()
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op != "loop":
            continue
        makers = [producers[value] for value in dict.fromkeys(node.inputs) if value in producers]
        for maker in sorted(makers, key=lambda made: -place[made.name]):
            value = maker.outputs[0]
            parts = node.attrs["expr"].walk()
            loads = [part for part in parts if part.op == "load" and node.inputs[part.value] == value]
            if loads:
                yield maker, node, loads


def _only_reader(graph: Graph, value: str, node: Node) -> bool:
    readers = {other.name for other in graph.nodes if value in other.inputs}
    return readers == {node.name} and value not in graph.outputs


def _dequantisations(graph: Graph) -> Graph | None:
    """Let readers compute what is no larger than what it is made of, before it takes in what makes that."""
    for maker, node, loads in _makers(graph):
        if maker.op == "loop" and _shrinks(maker, graph) and _may_inline(maker, node, loads, graph, single=False):
            return _inline(graph, maker, node)
    return None


def _into_loops(graph: Graph) -> Graph | None:
    for maker, node, loads in _makers(graph):
        single = _only_reader(graph, maker.outputs[0], node)
        if maker.op == "loop" and _may_inline(maker, node, loads, graph, single):
            return _inline(graph, maker, node)
    return None


def _into_kernels(graph: Graph) -> Graph | None:
    producers = graph.producers()
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    for maker, node, loads in _makers(graph):
        value = maker.outputs[0]
        if (
            "epilogue" in maker.attrs
            and _only_reader(graph, value, node)
            and _is_last(maker, node, producers, place)
            and _elementwise(loads, node, graph, value)
        ):
            return _into_epilogue(graph, maker, node)
    return None


def _elementwise(loads: list[Expr], node: Node, graph: Graph, value: str) -> bool:
    """Whether the loop reads `value` only at its own element, and reduces nothing."""
    shape = graph.types[value].shape
    plain = all(
        (index.op == "axis" and index.value == number) or shape[number] == 1
        for load in loads
        for number, index in enumerate(load.args)
    )
    reduces = any(part.op == "reduce" for part in node.attrs["expr"].walk())
    return plain and not reduces and shape == graph.types[node.outputs[0]].shape


def _is_last(maker: Node, node: Node, producers: dict[str, Node], place: dict[str, int]) -> bool:
    """Whether everything else that the loop reads is there before `maker` runs."""
    others = [producers[v] for v in node.inputs if v in producers and v != maker.outputs[0]]
    return all(place[other.name] < place[maker.name] for other in others)


def _may_inline(maker: Node, node: Node, loads: list[Expr], graph: Graph, single: bool) -> bool:
    expr: Expr = maker.attrs["expr"]
    parts = list(expr.walk())
    functions = [part for part in parts if part.op in FUNCTIONS]
    if _narrows(maker, graph):
        return False  # a quantisation belongs to what makes its floats
    if any(part.op == "reduce" for part in parts):
        return single and _elementwise(loads, node, graph, maker.outputs[0]) and len(loads) == 1
    cheap = len(functions) <= CHEAP and not any(part.op in LIBM or part.op == "div" for part in functions)
    inside_reduce = any(part.op == "reduce" for part in node.attrs["expr"].walk())
    if cheap and (single or _shrinks(maker, graph)):
        return True
    return single and len(set(loads)) == 1 and not inside_reduce


def _shrinks(maker: Node, graph: Graph) -> bool:
    """Whether its readers would rather read its input: that is no larger (a dequantisation)."""
    read = [value for value in maker.inputs if value not in graph.constants]
    return len(read) == 1 and graph.types[read[0]].bytes < graph.types[maker.outputs[0]].bytes


def _narrows(maker: Node, graph: Graph) -> bool:
    """Whether it makes smaller elements from larger ones."""
    read = [graph.types[value].dtype.size for value in maker.inputs if value not in graph.constants]
    return graph.types[maker.outputs[0]].dtype.size < max(read, default=0)


def _merged_inputs(base: Node, more: Node, dropped: str) -> tuple[list[str], dict[int, int]]:
    """Return base's inputs followed by more's, and how more's numbers change."""
    inputs = list(base.inputs)
    numbers: dict[int, int] = {}
    fixed = 3 if base.op == "pool2d" else base.own_inputs  # a kernel's own are not shared with its epilogue's
    for number, value in enumerate(more.inputs):
        if value == dropped:
            continue
        later = [i for i, name in enumerate(inputs) if name == value and i >= fixed]
        if not later:
            inputs.append(value)
        numbers[number] = later[0] if later else len(inputs) - 1
    return inputs, numbers


def _labels(*nodes: Node) -> str:
    words = [word for node in nodes for word in str(node.attrs.get("label", "")).split("+") if word]
    return "+".join(dict.fromkeys(words))


def _inline(graph: Graph, maker: Node, node: Node) -> Graph:
    """Substitute one loop's expression for the loads of its value in another loop."""
    value = maker.outputs[0]
    base = replace(node, inputs=tuple("" if name == value else name for name in node.inputs))
    inputs, numbers = _merged_inputs(base, maker, "")
    body: Expr = maker.attrs["expr"].with_operands(numbers)

    def substitute(part: Expr) -> Expr:
        if part.op == "load" and part.value < len(node.inputs) and node.inputs[part.value] == value:
            return body.with_axes(dict(enumerate(part.args))) if part.args else body
        return part

    expr = node.attrs["expr"].rewrite(substitute)
    used = sorted(expr.operands())
    expr = expr.with_operands({old: new for new, old in enumerate(used)})
    merged = replace(
        node,
        inputs=tuple(inputs[number] for number in used),
        attrs={**node.attrs, "expr": expr, "label": _labels(maker, node)},
        origins=tuple(dict.fromkeys([*maker.origins, *node.origins])),
    )
    return _replaced(graph, {node.name: merged})


def _into_epilogue(graph: Graph, kernel: Node, node: Node) -> Graph:
    """Let a kernel's epilogue go on with what a loop does to its output."""
    value = kernel.outputs[0]
    inputs, numbers = _merged_inputs(kernel, node, value)
    epilogue: Expr = kernel.attrs["epilogue"]
    body = node.attrs["expr"].with_operands({old: -1 - new for old, new in numbers.items()})

    def substitute(part: Expr) -> Expr:
        if part.op != "load":
            return part
        if part.value < 0:
            return replace(part, value=-1 - part.value)
        return epilogue

    merged = replace(
        kernel,
        inputs=tuple(inputs),
        outputs=node.outputs,
        attrs={**kernel.attrs, "epilogue": body.rewrite(substitute), "label": _labels(kernel, node)},
        origins=tuple(dict.fromkeys([*kernel.origins, *node.origins])),
    )
    return _replaced(graph, {kernel.name: merged, node.name: None})


def _replaced(graph: Graph, changes: dict[str, Node | None]) -> Graph:
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        changed = changes.get(node.name, node)
        if changed is not None:
            rewriter.keep(changed)
    return rewriter.finish()
