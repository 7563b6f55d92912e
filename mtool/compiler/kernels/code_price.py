"""What code is worth: how many instructions a byte of it has to save."""

import math

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.weighted_sum import WeightedSum

SHARE = 30000  # of a model's products: so many are worth a byte of code, or 1 KB of it 3% of them
LEAST = 10.0  # instructions that a byte of code has to save in a small model: 1 KB 0.4 ms at 25 MHz


def price_of_code(node: Node, graph: Graph) -> float:
    """Return how many instructions a byte of a node's code has to save each time that it runs.

    It depends on how many an inference has, and how often the code runs in one.
    """
    if "products" not in graph.memo:
        graph.memo["products"] = sum(
            graph.types[one.outputs[0]].count * math.prod(graph.types[one.inputs[1]].shape[1:])
            for one in graph.nodes
            if isinstance(one.attrs, WeightedSum)
        )
    products: int = graph.memo["products"]
    return max(LEAST, products * graph.rounds / SHARE) / (node.parts * graph.rounds)


def nodes_alike(node: Node, graph: Graph) -> float:
    """Return how many layers of the same operator have sums of as many products: their inner loops are one function."""
    if "depths" not in graph.memo:
        depths: dict[tuple[str, int], float] = {}
        for one in graph.nodes:
            if isinstance(one.attrs, WeightedSum):
                key = _depth(one, graph)
                depths[key] = depths.get(key, 0) + 1 / one.parts
        graph.memo["depths"] = depths
    count: float = graph.memo["depths"].get(_depth(node, graph), 1)
    return count


def nodes_of_operator(node: Node, graph: Graph) -> float:
    """Return how many layers there are of a node's operator."""
    nodes_alike(node, graph)
    depths: dict[tuple[str, int], float] = graph.memo["depths"]
    return max(1.0, sum(count for (op, _), count in depths.items() if op == node.op))


def _depth(node: Node, graph: Graph) -> tuple[str, int]:
    return node.op, math.prod(graph.types[node.inputs[1]].shape[1:])
