"""The scalings of a model's layers, with as few functions of the runtime as their code is worth.

A function has the places of MT_EXACT in its instructions. A layer that wants other places, or floats alone, can be
computed by the function that the model's other layers have: that scales channels without multipliers by floats.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.epilogues.integer import Int8Epilogue
from mtool.compiler.kernels.exact_scaling import ALONE, ExactScaling, Together
from mtool.compiler.kernels.scaling import FloatScaling, Scaling

FLOATS_BESIDE = 10  # instructions of a tile by floats that another function costs
EXACT_BESIDE = 30  # the same of one by multipliers


@dataclass(frozen=True, slots=True)
class Layer:
    """How a node's sums are scaled: which channels in one way, how many tiles of results it has, a function's bytes.

    alike: whether another node may have the same function.
    """

    together: Together
    tiles: float
    code: float
    alike: Callable[[Node], bool]


def shared_scaling(node: Node, graph: Graph, layer_of: Callable[[Node], Layer]) -> tuple[Scaling, Array]:
    """Return what scales a node's sums, and the biases for it, as Int8Epilogue.exact_scaling does."""
    layer = layer_of(node)
    scaling, bias = best_scaling(node, graph, layer.together)
    if not isinstance(scaling, FloatScaling | ExactScaling):
        return scaling, bias
    key = f"places of {node.op} by {layer.together.count}"
    if key not in graph.memo:
        graph.memo[key] = _most_used(graph, layer_of, layer.alike)
    places: int | None = graph.memo[key]
    beside = EXACT_BESIDE if isinstance(scaling, ExactScaling) else FLOATS_BESIDE
    same = isinstance(scaling, ExactScaling) and scaling.places == places
    if places is None or same or beside * layer.tiles > layer.code * price_of_code(node, graph):
        return scaling, bias
    epilogue = Int8Epilogue.of(node, graph)
    assert epilogue is not None and epilogue.scale is not None
    return ExactScaling.of_floats(epilogue.scale, epilogue.how.zero_point, places), epilogue.bias


def _most_used(graph: Graph, layer_of: Callable[[Node], Layer], alike: Callable[[Node], bool]) -> int | None:
    """Return the places of most tiles; None: no layer has multipliers."""
    tiles: dict[int, float] = {}
    for node in graph.nodes:
        if alike(node):
            layer = layer_of(node)
            scaling, _ = best_scaling(node, graph, layer.together)
            if isinstance(scaling, ExactScaling):
                tiles[scaling.places] = tiles.get(scaling.places, 0) + layer.tiles
    return max(tiles, key=lambda places: tiles[places], default=None)


def any_has_floats(nodes: Iterable[Node], graph: Graph) -> bool:
    """Whether a channel of some nodes has no multiplier, so that their function scales by floats too."""
    scalings = (best_scaling(node, graph, ALONE)[0] for node in nodes)
    return any(isinstance(scaling, ExactScaling) and not scaling.has_multiplier.all() for scaling in scalings)


def best_scaling(node: Node, graph: Graph, together: Together) -> tuple[Scaling, Array]:
    """Return the scaling that is the best for a node, found once for those that have the same constants."""
    known: dict[tuple[Any, ...], tuple[Scaling, Array]] = graph.memo.setdefault("exact scalings", {})
    constants = tuple(name for name in node.inputs[1:] if name in graph.constants)
    key = (constants, WithEpilogue.of(node).epilogue, together)
    if key not in known:
        epilogue = Int8Epilogue.of(node, graph)
        assert epilogue is not None
        known[key] = epilogue.exact_scaling(graph.constants[node.inputs[1]], together)
    return known[key]
