"""The price of code: how many instructions a byte of it has to save."""

import math
from collections import defaultdict

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.weighted_sum import WeightedSum, remembered

SHARE = 30000  # a byte of code has to save 1/30000 of a model's products, so 1 KB about 3%
LEAST = 10.0  # the least instructions that a byte has to save, in small models: 1 KB 0.4 ms at 25 MHz
SMALL = 4  # times as much if code is to be small


def price_of_code(node: Node, graph: Graph) -> float:
    """Return how many instructions a byte of a node's code has to save each time it runs.

    It depends on the instructions of an inference, and on how often the code runs in one.
    """

    def all_products() -> int:
        sums = (other for other in graph.nodes if isinstance(other.attrs, WeightedSum))
        return sum(graph.types[other.outputs[0]].count * _depth(other, graph)[1] for other in sums)

    products = remembered(graph, "products", "", all_products)
    price = max(LEAST, products * graph.rounds / SHARE) / (node.parts * graph.rounds)
    return price * SMALL if graph.for_size else price


def nodes_alike(node: Node, graph: Graph) -> float:
    """Return the number of layers of the same operator and depth, which share the function of their inner loop."""
    return _layers(graph).get(_depth(node, graph), 1)


def nodes_of_operator(node: Node, graph: Graph) -> float:
    """Return the number of layers of a node's operator."""
    return max(1.0, sum(count for (op, _), count in _layers(graph).items() if op == node.op))


def _layers(graph: Graph) -> dict[tuple[str, int], float]:
    """Return the number of layers of each operator and depth; a layer that is computed in parts counts once."""

    def counted() -> dict[tuple[str, int], float]:
        layers: dict[tuple[str, int], float] = defaultdict(float)
        for node in graph.nodes:
            if isinstance(node.attrs, WeightedSum):
                layers[_depth(node, graph)] += 1 / node.parts
        return layers

    return remembered(graph, "depths", "", counted)


def _depth(node: Node, graph: Graph) -> tuple[str, int]:
    return node.op, math.prod(graph.types[node.inputs[1]].shape[1:])
