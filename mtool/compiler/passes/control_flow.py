"""Control flow: remove unread values from the graphs of control nodes, and run passes over these graphs."""

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from mtool.compiler.ir import Branches, Control, Graph, Node, Rewriter, Rounds, has_bodies


def prune(graph: Graph, *, deep: bool = True) -> Graph:
    """Remove unread outputs of control nodes, and inputs that their graphs no longer read.

    A carried value is removed if neither a value that is read nor the end of the rounds depends on it. Not `deep`: the
    nodes' graphs are pruned already, each for all its outputs.
    """
    return _pruned(graph, deep=deep) if has_bodies(graph) else graph


def _pruned(graph: Graph, *, deep: bool) -> Graph:
    needed = {*graph.outputs}
    nodes = []
    for node in reversed(graph.nodes):
        if not needed & {*node.outputs}:
            continue
        if isinstance(node.attrs, Branches):
            node = _pruned_branches(node, node.attrs, needed, deep=deep)
        elif isinstance(node.attrs, Rounds):
            node = _pruned_rounds(node, node.attrs, needed, deep=deep)
        nodes.append(node)
        needed.update(node.inputs)
    rewriter = Rewriter(graph)
    rewriter.nodes = nodes[::-1]
    return rewriter.finish()


def _pruned_body(body: Graph, outputs: Sequence[str], *, deep: bool) -> Graph:
    """Return a body with fewer outputs; a body that is pruned already and keeps all outputs is unchanged."""
    if not deep and body.outputs == tuple(outputs):
        return body
    return _pruned(replace(body, outputs=tuple(outputs)), deep=deep)


def map_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Return a graph with `change` applied to its nodes' graphs, which keep their inputs and outputs."""
    if not has_bodies(graph):
        return graph
    nodes = [
        replace(node, attrs=node.attrs.with_bodies([change(body) for body in node.attrs.bodies]))
        if isinstance(node.attrs, Control)
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes))


def _pruned_branches(node: Node, attrs: Branches, needed: Collection[str], *, deep: bool) -> Node:
    used = [number for number, value in enumerate(node.outputs) if value in needed]
    bodies = [_pruned_body(body, [body.outputs[number] for number in used], deep=deep) for body in attrs.bodies]
    reads = [_read_in(body) for body in bodies]
    pairs = enumerate(zip(*(body.inputs for body in bodies), strict=True))
    read = [number for number, values in pairs if any(map(set.__contains__, reads, values))]
    bodies = [_with_inputs(body, [body.inputs[number] for number in read]) for body in bodies]
    inputs = (node.inputs[0], *(node.inputs[1 + number] for number in read))
    return replace(node, inputs=inputs, outputs=tuple(node.outputs[n] for n in used), attrs=attrs.with_bodies(bodies))


def _pruned_rounds(node: Node, attrs: Rounds, needed: Collection[str], *, deep: bool) -> Node:
    body, count, places = attrs.body, len(attrs.carried), attrs.places
    ins, outs = body.inputs[len(body.inputs) - count :], body.outputs[len(body.outputs) - count :]
    inner_rows = body.outputs[attrs.goes_on : len(body.outputs) - count]
    results = sum(item.is_output for item in attrs.carried)
    rows, counts = node.outputs[results : results + len(inner_rows)], attrs.counts and node.outputs[-1] in needed
    is_used = [last >= 0 and node.outputs[last] in needed for _, last in places]
    used_rows = [number for number, value in enumerate(rows) if value in needed]
    first_outputs = [*body.outputs[: attrs.goes_on], *(inner_rows[number] for number in used_rows)]
    carried = sorted(_carried_by(body, [*first_outputs, *itertools.compress(outs, is_used)], ins, outs))
    pruned = _pruned_body(body, [*first_outputs, *(outs[number] for number in carried)], deep=deep)
    others = node.inputs[attrs.first_row :]
    reads = _read_in(pruned)
    read = [number for number in range(len(others)) if body.inputs[number] in reads]
    round_number = body.inputs[len(others)]
    inner = [*(body.inputs[number] for number in read), round_number, *(ins[number] for number in carried)]
    inputs = [
        *node.inputs[: attrs.first_carried],
        *(node.inputs[places[number][0]] for number in carried if attrs.carried[number].is_given),
        *(others[number] for number in read),
    ]
    backwards = tuple(attrs.backwards[number] for number in read if number < len(attrs.backwards))
    outputs = [
        *(node.outputs[places[number][1]] for number in carried if is_used[number]),
        *(rows[number] for number in used_rows),
        *(node.outputs[-1:] if counts else ()),
    ]
    changed = replace(
        attrs,
        bodies=(_with_inputs(pruned, inner),),
        carried=tuple(replace(attrs.carried[number], is_output=is_used[number]) for number in carried),
        backwards=backwards,
        reversed=tuple(attrs.reversed[number] for number in used_rows),
        counts=counts,
    )
    return replace(node, inputs=tuple(inputs), outputs=tuple(outputs), attrs=changed)


def _carried_by(body: Graph, values: Sequence[str], ins: Sequence[str], outs: Sequence[str]) -> set[int]:
    """Return the numbers of the carried values that a body's outputs depend on, in this round or a later one."""
    makers, numbers = body.producers(), {value: number for number, value in enumerate(ins)}
    waiting, seen = [*values], {*values}
    while waiting:
        value = waiting.pop()
        node = makers.get(value)
        read = list(node.inputs) if node is not None else [outs[numbers[value]]] if value in numbers else []
        waiting += [source for source in dict.fromkeys(read) if source not in seen]
        seen.update(read)
    return {number for number, (before, after) in enumerate(zip(ins, outs, strict=True)) if {before, after} & seen}


def _with_inputs(body: Graph, inputs: Sequence[str]) -> Graph:
    removed = {*body.inputs} - {*inputs}
    types = {value: kind for value, kind in body.types.items() if value not in removed}
    return replace(body, inputs=tuple(inputs), types=types)


def _read_in(body: Graph) -> set[str]:
    """Return all values that a body reads or outputs."""
    return {*body.outputs, *(value for node in body.nodes for value in node.inputs)}
