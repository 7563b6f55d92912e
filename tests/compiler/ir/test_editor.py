"""The editor and the rewriter produce the same graphs; new names are the smallest free ones."""

import random

import networks
import pytest
from single_pass import pairs

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.editor import Editor
from mtool.compiler.ir.graph import Names, Rewriter, verify
from mtool.compiler.ir.node import View


def rebuilt(graph: Graph, name: str, change) -> Graph:  # type: ignore[no-untyped-def]
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.name == name:
            change(rewriter, node)
        else:
            rewriter.keep(node)
    return rewriter.finish()


def copied(r: Rewriter, n: Node) -> None:
    """Compute a value twice: through an unused view of it, and another one for the readers."""
    kind = r.types[n.outputs[0]]
    r.node("view", [n.outputs[0]], [r.value(f"{n.outputs[0]}.idle", kind.dtype, kind.shape)], View(), like=n)
    made = r.value(f"{n.outputs[0]}.s", kind.dtype, kind.shape)
    r.node(n.op, n.inputs, [made], n.attrs, like=n)
    r.node("view", [made], n.outputs, View(), like=n)


def skipped(r: Rewriter, n: Node) -> None:
    r.rename(n.outputs[0], n.inputs[0])


@pytest.mark.product(3)
@pytest.mark.parametrize("seed", range(20))
def test_changes_in_place_equal_a_rebuilt_graph(seed: int) -> None:
    (graph, _) = [*pairs("simplify_layout", "float", 2 * (seed + 1))][seed]
    chance = random.Random(seed)
    editor = Editor(graph)
    for _ in range(30):
        nodes = editor.in_order()
        node = chance.choice(nodes)
        same = bool(node.inputs) and graph_type(editor, node.inputs[0]) == graph_type(editor, node.outputs[0])
        change = skipped if same and chance.random() < 0.7 else copied
        if change is skipped and node.outputs[0] in editor.outputs and node.inputs[0] not in editor.makers:
            continue
        if node.op == "template":
            continue
        graph = rebuilt(graph, node.name, change)
        editor.change(node, change)
        verify(graph)
        other = editor.finish()
        assert [str(node) for node in other.nodes] == [str(node) for node in graph.nodes]
        assert [node.name for node in other.nodes] == [node.name for node in graph.nodes]
        assert (other.outputs, {*other.types}, {*other.constants}, {*other.sources}) == (
            graph.outputs, {*graph.types}, {*graph.constants}, {*graph.sources}
        )  # fmt: skip
        assert editor.makers == other.producers()
        for value, readers in other.consumers().items():
            assert {node.name for node in editor.readers(value)} == {node.name for node in readers}
            assert {*editor.reader_ops(value)} == {node.op for node in readers}
            alone = len({node.name for node in readers}) == 1 and value not in other.outputs
            assert (editor.only_reader(value) is not None) == (alone and value != "")
        graph = other


def graph_type(editor: Editor, value: str) -> object:
    return editor.types[value]


def test_names_are_the_smallest_that_are_free() -> None:
    chance = random.Random(0)
    for _ in range(50):
        taken: set[str] = set()
        names = Names(taken.__contains__)
        for _ in range(120):
            stem = chance.choice(["a", "a.1", "a.s", "b"])
            if taken and chance.random() < 0.4:
                gone = chance.choice(sorted(taken))
                taken.remove(gone)
                names.release(gone)
                continue
            wanted = next(name for n in range(999) if (name := f"{stem}.{n}" if n else stem) not in taken)
            assert names.take(stem) == wanted
            taken.add(wanted)


def test_random_numbers_fit_their_inputs() -> None:
    for before, _ in pairs("simplify_layout", "int8", 2):
        (fed,) = networks.feeds_of(before, 0)
        assert {*fed} == {*before.caller_inputs}
