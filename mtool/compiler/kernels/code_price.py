"""What code is worth: how many instructions a byte of it has to save."""

import math
from collections import defaultdict

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.weighted_sum import WeightedSum, remembered

SHARE = 30000  # of a model's products: so many are worth a byte of code, or 1 KB of it 3% of them
LEAST = 10.0  # instructions that a byte of code has to save in a small model: 1 KB 0.4 ms at 25 MHz


def price_of_code(node: Node, graph: Graph) -> float:
    """Return how many instructions a byte of a node's code has to save each time that it runs.

    It depends on how many an inference has, and how often the code runs in one.
    """

    def all_products() -> int:
        sums = (one for one in graph.nodes if isinstance(one.attrs, WeightedSum))
        return sum(graph.types[one.outputs[0]].count * _depth(one, graph)[1] for one in sums)

    products = remembered(graph, "products", "", all_products)
    return max(LEAST, products * graph.rounds / SHARE) / (node.parts * graph.rounds)


def nodes_alike(node: Node, graph: Graph) -> float:
    """Return how many layers of the same operator have sums of as many products: their inner loops are one function."""
    return _layers(graph).get(_depth(node, graph), 1)


def nodes_of_operator(node: Node, graph: Graph) -> float:
    """Return how many layers there are of a node's operator."""
    return max(1.0, sum(count for (op, _), count in _layers(graph).items() if op == node.op))


def _layers(graph: Graph) -> dict[tuple[str, int], float]:
    """Return how many layers there are of each operator and depth; one that is computed in parts is one."""

    def counted() -> dict[tuple[str, int], float]:
        found: dict[tuple[str, int], float] = defaultdict(float)
        for one in graph.nodes:
            if isinstance(one.attrs, WeightedSum):
                found[_depth(one, graph)] += 1 / one.parts
        return found

    return remembered(graph, "depths", "", counted)


def _depth(node: Node, graph: Graph) -> tuple[str, int]:
    return node.op, math.prod(graph.types[node.inputs[1]].shape[1:])
