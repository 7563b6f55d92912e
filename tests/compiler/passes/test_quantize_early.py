import networks
import numpy as np
from graphs import HOST, model
from onnx import helper
from single_pass import assert_same, ops, pairs

from mtool.compiler import passes
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.operators.verification import verify


def moved_after(graph: Graph) -> list[Node]:
    """Return the loops that make smaller elements of what was only moved, for them alone."""
    makers, readers = graph.producers(), graph.consumers()
    found = []
    for node in graph.nodes:
        maker = makers.get(node.inputs[0]) if node.op == "loop" and len(node.inputs) == 1 else None
        if maker is None or maker.op != "concat" or len({n.name for n in readers[maker.outputs[0]]}) != 1:
            continue
        if maker.outputs[0] in graph.outputs or Loop.of(node).expr.op not in ("quantize", "cast"):
            continue
        if graph.types[node.outputs[0]].dtype.size < graph.types[node.inputs[0]].dtype.size:
            found.append(node)
    return found


def test_random_networks_stay_the_same() -> None:
    exchanged = 0
    for before, after in pairs("quantize_before_moves", "int8", 40):
        exchanged += len(moved_after(before))
        assert not moved_after(after)
        assert ops(after).count("concat") == ops(before).count("concat")
        assert_same(before, after)
    assert exchanged >= 5


def test_a_move_that_leaves_out_a_dimension() -> None:
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["g"], axis=1),
        helper.make_node("QuantizeLinear", ["g", "s", "z"], ["y"]),
    ]
    constants = {"i": np.array(-1), "s": np.array(0.03, np.float32), "z": np.array(3, np.int8)}
    graph = networks.imported(model(nodes, {"x": (np.float32, (3, 2, 4))}, ["y"], constants))
    passed = passes.run(graph, HOST)
    verify(passed)
    assert_same(graph, passed)


def test_floats_are_left_alone() -> None:
    for before, after in pairs("quantize_before_moves", "float", 15):
        assert [str(node) for node in before.nodes] == [str(node) for node in after.nodes]
