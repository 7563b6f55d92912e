"""The order of operators: one with the smallest peak of all valid orders, if all can be tried."""

import itertools
import random

from mtool.compiler.ir import DType, Graph, Node, TensorType
from mtool.compiler.plan.memory import read_states_before_writes
from mtool.compiler.plan.order import beam_search


def network(seed: int, count: int = 6) -> Graph:
    """Return nodes that each make one value of what a few before them made."""
    chance = random.Random(seed)
    types = {"x": TensorType(DType.INT8, (chance.randrange(1, 60),))}
    nodes = []
    for number in range(count):
        read = chance.sample([*types], min(len(types), chance.choice([1, 1, 2])))
        nodes.append(Node("loop", f"n{chance.randrange(900)}_{number}", tuple(read), (f"v{number}",)))
        types[f"v{number}"] = TensorType(DType.INT8, (chance.randrange(1, 100),))
    outputs = [value for value in types if not any(value in node.inputs for node in nodes)]
    return Graph("test", ("x",), tuple(outputs), tuple(nodes), types, {})


def peak(graph: Graph, nodes: tuple[Node, ...]) -> int | None:
    """Return the most bytes that live at one time; None: a value is read before it is made."""
    there, most = {"x"}, 0
    for number, node in enumerate(nodes):
        if not {*node.inputs} <= there:
            return None
        there |= {*node.outputs}
        most = max(most, sum(graph.types[value].bytes for value in there))
        later = {*graph.outputs}.union(*(other.inputs for other in nodes[number + 1 :]))
        there &= later
    return most


def test_the_peak_is_the_smallest_that_there_is() -> None:
    worse = 0
    for seed in range(40):
        graph = network(seed)
        peaks = [found for order in itertools.permutations(graph.nodes) if (found := peak(graph, order)) is not None]
        found = peak(graph, beam_search(graph))
        assert found is not None
        worse += found > min(peaks)
    assert worse == 0


def test_an_order_is_the_same_on_every_run() -> None:
    for seed in range(10):
        graph = network(seed, 30)
        assert beam_search(graph) == beam_search(network(seed, 30))


def test_without_states_the_order_stays() -> None:
    for seed in range(10):
        graph = network(seed, 12)
        assert read_states_before_writes(graph) == graph.nodes
