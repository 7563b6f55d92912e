"""Flash for time: the operators that may have constants larger than their weights, since that saves instructions.

"speed" takes all that the board's flash has room for, those that save most by the byte first. "balanced" leaves out
those whose part of the flash is larger than the part of the model's instructions that they save: half of the flash for
a tenth of the time is a bad bargain, a hundredth a good one. "size" takes none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mtool.base.option_values import Optimize
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.control import Control, with_own_bodies
from mtool.compiler.ir.node import View
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.schedule import Schedule
from mtool.compiler.kernels.target import Target

CODE_BYTES = 64 * 1024
"""Flash that is left to code."""


OWN_CODE_BYTES = 2 * 1024
"""Code that such an operator takes more, with its part of functions that it shares."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What an operator saves, of all instructions of the model, for so many bytes more."""

    operator: str
    saved: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Offers:
    """The offers of a model, those that save most by the byte first, and the bytes of its constants without them."""

    offers: tuple[Offer, ...]
    constant_bytes: int

    def taken(self, optimize: Optimize, flash_bytes: int | None) -> frozenset[str]:
        """Return the operators that may have larger constants.

        Args:
            optimize: what flash is spent on.
            flash_bytes: of the board; None: there is no limit.
        """
        if optimize == "size":
            return frozenset()
        if flash_bytes is None:
            return frozenset(one.operator for one in self.offers)
        return chosen_offers(self.offers, optimize, flash_bytes, flash_bytes - CODE_BYTES - self.constant_bytes)


def chosen_offers(offers: Iterable[Offer], optimize: Optimize, size: int, left: int) -> frozenset[str]:
    """Return the operators whose offers are taken, those that save most by the byte first.

    Args:
        offers: the offers.
        optimize: what the memory is spent on.
        size: the memory's bytes.
        left: those that can be spent.
    """
    found = []
    for one in sorted(offers, key=lambda one: (-one.saved / one.bytes, one.operator)):
        is_worth = optimize == "speed" or (optimize == "balanced" and one.saved * size >= one.bytes)
        if is_worth and one.bytes <= left:
            found.append(one.operator)
            left -= one.bytes
    return frozenset(found)


def offers_of(graph: Graph, target: Target) -> Offers:
    """Return the offers of a graph as the passes leave it, and of the graphs in it."""
    nodes = [(one, node) for one, node in _computing(graph) if node.name not in one.sized_nodes]
    if not any(_growing(node, one, target) for one, node in nodes):
        return Offers((), 0)
    saved: dict[str, tuple[float, int]] = {}
    total, constants = 0.0, dict[str, int]()
    for one, node in nodes:
        constants |= {value: one.constants[value].nbytes for value in node.inputs if value in one.constants}
        growing = _growing(node, one, target)
        others = [each for each in registry.KERNELS[node.op].schedules if each not in growing]
        costs = [each.cost(node, one, target) for each in others if each.supports(node, one, target)]
        least = one.rounds * min(costs)
        total += least
        if growing:
            best = min(growing, key=lambda each: each.cost(node, one, target))
            grown = best.grown_bytes(node, one) + OWN_CODE_BYTES
            saved[node.name] = least - one.rounds * best.cost(node, one, target), grown
    offers = [Offer(name, gain / total, size) for name, (gain, size) in saved.items() if gain > 0]
    ordered = sorted(offers, key=lambda one: (-one.saved / one.bytes, one.operator))
    return Offers(tuple(ordered), sum(constants.values()))


def _growing(node: Node, graph: Graph, target: Target) -> list[Schedule]:
    """Return the schedules of a node whose constants are larger than its weights."""
    growing = (each for each in registry.KERNELS[node.op].schedules if each.grown_bytes(node, graph))
    return [each for each in growing if each.supports(node, graph, target)]


def _computing(graph: Graph) -> Iterator[tuple[Graph, Node]]:
    for one in with_own_bodies(graph):
        yield from ((one, node) for node in one.nodes if not isinstance(node.attrs, (View, Control)))
