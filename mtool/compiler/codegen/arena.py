"""Names for the contents of the arena: an offset macro and a pointer, named after the tensor or operator."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from mtool.base.escaping import comment
from mtool.base.frozen import frozen
from mtool.compiler.ir import Node
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.plan import Plan
from mtool.compiler.plan.memory import aliases
from mtool.compiler.plan.pool import PlacedPool
from mtool.manifest import StateTensor, Tensor

PARAMETER = "arena"
ARENA_ALIGNMENT = 16
"""The alignment of MT_ARENA (crt/include/mt_place.h), in bytes."""
IN_PLACE = "/* in place */"


@frozen
class Interface:
    """The model's inputs, outputs and states."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    states: tuple[StateTensor, ...] = ()


@frozen
class Spot:
    """A named spot in the arena, `offset` bytes from its start.

    If `over` is not empty, it names the spot whose elements are overwritten here as they are read. In an arena of
    several pools, the offset is relative to the start of pool number `pool`.
    """

    name: str
    offset: int
    over: str = ""
    pool: int = 0


@frozen
class Copied:
    """The copy of a constant in a pool of the arena: its spot, bytes and C element type."""

    spot: Spot
    bytes: int
    c_type: str


@frozen
class Arena:
    """The contents of a model's arena.

    Attributes:
        model: the model's name.
        symbol: its C name.
        bytes: its size; 0: the model has no arena.
        values: the spot of each value or line buffer that is not an alias.
        scratch: the spot of each step's scratch, by the step's number.
        inputs, outputs, states: the spots of the interface's tensors, in their order; None: the caller keeps it.
        pools: the memories that it is split over; none: it is in one piece.
        copies: the copies of constants in pools, by the constants' symbols.
    """

    model: str
    symbol: str
    bytes: int
    values: Mapping[str, Spot]
    scratch: Mapping[int, Spot]
    inputs: tuple[Spot | None, ...]
    outputs: tuple[Spot | None, ...]
    states: tuple[Spot | None, ...]
    pools: tuple[PlacedPool, ...] = ()
    copies: Mapping[str, Copied] = field(default_factory=dict)

    @property
    def is_shared(self) -> bool:
        """Whether several models share it; none of them defines it."""
        return not self.is_callers and self.symbol != own_arena(self.model)

    @property
    def is_callers(self) -> bool:
        """Whether the caller provides it, as a parameter of the functions that use it."""
        return self.symbol == PARAMETER

    @property
    def declared(self) -> list[str]:
        """The declaration of the parameter, if the caller provides the arena."""
        return [f"{self.parameter_type} *{PARAMETER}"] if self.is_callers else []

    @property
    def parameter_type(self) -> str:
        """The type that the parameter points to: bytes, or the pointers to all pools."""
        return f"const struct {self.model}_pools" if self.pools else "uint8_t"

    def base(self, pool: int) -> str:
        """Return the start of a pool, or of an arena without pools, as a C expression: a pointer to bytes."""
        if not self.pools:
            return self.symbol
        name = self.pools[pool].pool.name
        return f"{PARAMETER}->{name}" if self.is_callers else pool_symbol(self.model, name)

    def macro(self, spot: Spot) -> str:
        """Return the macro of a spot's offset."""
        return self._macro(spot.name)

    def _macro(self, name: str) -> str:
        return f"{self.model}_{name}_offset".upper()

    def bytes_at(self, spot: Spot) -> str:
        """Return a spot as a C expression: a pointer to bytes."""
        return f"{self.base(spot.pool)} + {self.macro(spot)}"

    def pointer(self, c_type: str, spot: Spot) -> str:
        """Return a spot as a C expression: a pointer to `c_type`."""
        return pointer_to(c_type, self.bytes_at(spot))

    def constant(self, symbol: str) -> str:
        """Return a constant as a C expression: its symbol, or its copy in a pool."""
        copy = self.copies.get(symbol)
        return symbol if copy is None else self.pointer(f"const {copy.c_type}", copy.spot)

    def scratch_of(self, number: int, c_type: str) -> str:
        """Return the pointer to a step's scratch; with empty tensors a kernel may take it without using it."""
        if number in self.scratch:
            return self.pointer(c_type, self.scratch[number])
        first = next((number for number, pool in enumerate(self.pools) if pool.bytes), 0)
        return f"({c_type} *)(void *){self.base(first)}" if self.bytes else "0"

    def defines(self) -> list[str]:
        """Return the definitions of the offset macros."""
        spots = dict.fromkeys(
            (*self.values.values(), *self.scratch.values(), *(copy.spot for copy in self.copies.values()))
        )
        if not spots:
            return []
        lines = []
        for pool in sorted({spot.pool for spot in spots}):
            where = f"in the pool {self.pools[pool].pool.name}" if self.pools else "in the arena"
            lines.append(comment(f"Offsets {where}, in bytes from its start."))
            for spot in sorted((spot for spot in spots if spot.pool == pool), key=lambda spot: spot.offset):
                at = f"{self._macro(spot.over)} {IN_PLACE}" if spot.over else str(spot.offset)
                lines.append(f"#define {self.macro(spot)} {at}")
            lines.append("")
        return lines


def pointer_to(c_type: str, place: str) -> str:
    """Cast a pointer to bytes to a pointer to a type."""
    return place if c_type == "uint8_t" else f"({c_type} *)(void *)({place})"


class _Names:
    """Gives each spot a unique name, which stays unique in capitals."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.spots: dict[str, Spot] = {}

    def __call__(self, name: str, offset: int, *, shared: bool = False) -> Spot:
        """Return a spot; `shared`: an existing spot with this name at this offset may be used."""
        pool, inside = self.plan.place(offset)
        spot, number = Spot(name, inside, pool=pool), 1
        while (other := self.spots.get(spot.name.upper())) is not None:
            if shared and other == spot:
                return other
            number += 1
            spot = Spot(f"{name}_{number}", inside, pool=pool)
        self.spots[spot.name.upper()] = spot
        return spot


def pool_symbol(model: object, pool: str) -> str:
    """Return the C name of a model's pool."""
    return f"{model}_pool_{pool}"


def own_arena(model: object) -> str:
    """Return the C name of a model's own arena."""
    return f"{model}_arena"


def arena_of(plan: Plan, interface: Interface, symbol: str = "", copied: Mapping[str, Copied] | None = None) -> Arena:
    """Return the names of everything in the arena: inputs, outputs and states by name, the rest by operator.

    `symbol` is the arena's C name if it is not the model's own: a shared arena, or a parameter. `copied`
    are the constants with copies in pools, by their symbols.
    """
    graph, name = plan.graph, _Names(plan)
    values: dict[str, Spot] = {}
    by_prefix: dict[str, tuple[Sequence[str], Sequence[Tensor | StateTensor]]] = {
        "in": (graph.caller_inputs, interface.inputs),
        "out": (graph.caller_outputs, interface.outputs),
        "state": ([value for _, value, _ in graph.state_values], interface.states),
    }
    for prefix, (roots, tensors) in by_prefix.items():
        for value, tensor in zip(roots, tensors, strict=True):
            if value in plan.offsets and value not in values:
                values[value] = name(f"{prefix}_{tensor.c_name}", plan.offsets[value])
    for root, stem, offset in written(plan):
        if root not in values:
            values[root] = name(stem if root in graph.types else f"{stem}_rows", offset)
    values |= dict(_in_place(plan, values))
    scratch = {
        number: name(f"{step.node.title}_scratch", offset, shared=True)
        for number, (step, offset) in enumerate(zip(plan.steps, plan.scratch, strict=True))
        if offset is not None
    }
    inputs, outputs, states = (tuple(values.get(value) for value in roots) for roots, _ in by_prefix.values())
    named = symbol or own_arena(graph.name)
    copies = {
        constant: replace(copy, spot=name(copy.spot.name, plan.pools[copy.spot.pool].begin + copy.spot.offset))
        for constant, copy in (copied or {}).items()
    }
    return Arena(graph.name, named, plan.arena_bytes, values, scratch, inputs, outputs, states, plan.pools, copies)


def written(plan: Plan) -> Iterator[tuple[str, str, int]]:
    """Yield what steps write into the arena: the value or window, the step that computes it, the offset.

    Steps that move or pad rows come last: a window is named after the step that computes its rows.
    """
    lies = aliases(plan.graph)
    computing = [step.node for step in plan.steps if not moves_rows(step.node)]
    moving = [step.node for step in plan.steps if moves_rows(step.node)]
    for node in (*computing, *moving):
        for position, value in enumerate(node.outputs):
            if value in plan.offsets:
                root, inside = lies[value]
                yield root, f"{node.title}_{position}" if position else node.title, plan.offsets[value] - inside


def _in_place(plan: Plan, values: Mapping[str, Spot]) -> Iterator[tuple[str, Spot]]:
    """Yield the values that operators write over one of their operands, and their spots, which record that."""
    lies = aliases(plan.graph)
    for step in plan.steps:
        read = [values[root] for root in (lies.root(v) for v in step.node.inputs) if root in values]
        for value in step.node.outputs:
            target = values.get(value)
            over = [
                spot.name
                for spot in read
                if target and (spot.pool, spot.offset) == (target.pool, target.offset) and spot.name != target.name
            ]
            if target and over:
                yield value, replace(target, over=over[0])


def moves_rows(node: Node) -> bool:
    """Whether a node only moves rows of a window or fills them."""
    return isinstance(node.attrs, Loop) and node.attrs.label in ("keep rows", "pad rows")


# The address of a value: an offset in the arena, or in an input or output that the caller keeps.


@frozen
class Address:
    """The address of a value: the `index`-th pool of the arena, input, output or state, and an offset from its start.

    An arena in one piece has the index 0. Only the body of a loop has states that do not lie in the arena.
    """

    memory: Literal["arena", "inputs", "outputs", "states"]
    index: int
    offset: int


def address_of(plan: Plan, value: str) -> Address:
    """Return the address of a value that is not constant."""
    if value in plan.offsets:
        return Address("arena", *plan.place(plan.offsets[value]))
    if value in plan.in_states:
        return Address("states", *plan.in_states[value])
    graph = plan.graph
    lies = aliases(graph)
    root, offset = lies[value]
    if root in graph.inputs:
        return Address("inputs", graph.inputs.index(root), offset)
    for index, output in enumerate(graph.outputs):
        if lies.root(output) == root:
            return Address("outputs", index, offset)
    raise AssertionError(f"{value} lies nowhere")
