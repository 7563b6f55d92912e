import networks
import numpy as np
from graphs import model
from onnx import helper
from single_pass import assert_same, pairs

from mtool.compiler.ir import Graph
from mtool.compiler.passes.copies import copy_outputs
from mtool.compiler.passes.lower import lower


def writers(graph: Graph) -> list[str]:
    """Return for each output the value that it is a view of, checked to be made by an operator."""
    makers, roots = graph.producers(), []
    for output in graph.outputs:
        while makers[output].op == "view":
            output = makers[output].inputs[0]
        roots.append(output)
    return roots


def test_random_networks_stay_the_same() -> None:
    for kind, count in (("float", 40), ("int8", 15)):
        for before, after in pairs("copy_outputs", kind, count):
            assert len({*writers(after)}) == len(after.outputs)
            assert_same(before, after)


def test_inputs_constants_and_one_value_twice_are_copied() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["flat"]),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["c"], ["constant"]),
    ]
    constants = {"shape": np.array([4]), "c": np.float32([1, 2])}
    proto = model(nodes, {"x": (np.float32, (2, 2))}, ["r", "flat", "same", "constant"], constants)
    graph = lower(networks.imported(proto))
    owned = copy_outputs(graph)
    assert len({*writers(owned)}) == 4
    copies = [node for node in owned.nodes if getattr(node.attrs, "label", "") == "copy"]
    assert len(copies) == 3
    assert_same(graph, owned)
