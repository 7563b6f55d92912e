"""Names of what lies in the arena: an offset as a macro and a pointer, called after the tensor or the operator."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from mtool.base.escaping import comment
from mtool.compiler.ir import Node
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.plan import Plan
from mtool.compiler.plan.memory import aliases
from mtool.compiler.plan.pool import PlacedPool
from mtool.manifest import StateTensor, Tensor

PARAMETER = "arena"
ARENA_ALIGNMENT = 16
"""Of MT_ARENA (crt/include/mt_math.h), in bytes."""
IN_PLACE = "/* in place */"


@dataclass(frozen=True, slots=True)
class Interface:
    """The model's inputs and outputs, and what it keeps from call to call."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    states: tuple[StateTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Spot:
    """A named spot in the arena: what lies there is called `name`, and begins `offset` bytes from the arena's start.

    What lies there is written over that of the spot `over`, as its elements are read, if that is no empty name. In an
    arena of several pools the offset is from the start of the one of number `pool`.
    """

    name: str
    offset: int
    over: str = ""
    pool: int = 0


@dataclass(frozen=True, slots=True)
class Copied:
    """The copy of a constant in a pool of the arena: where it lies, its bytes, and the C type of its elements."""

    spot: Spot
    bytes: int
    c_type: str


@dataclass(frozen=True, slots=True)
class Arena:
    """The contents of a model's arena.

    Attributes:
        model: the model's name.
        symbol: what it is called in C.
        bytes: all of it; 0: there is none.
        values: the spot of each value or line buffer that is no alias.
        scratch: the spot of each step's scratch, by the step's number.
        inputs, outputs, states: those of the interface's tensors, in their order; None: the caller keeps it.
        pools: the memories that it lies in; none: it is in one piece.
        copies: those of constants in pools, by the constants' symbols.
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
        """Whether it is that of several models, none of which defines it."""
        return not self.is_callers and self.symbol != own_arena(self.model)

    @property
    def is_callers(self) -> bool:
        """Whether it is the caller's: a parameter of the functions that use it."""
        return self.symbol == PARAMETER

    @property
    def declared(self) -> list[str]:
        """The parameter that it is, if it is one."""
        return [f"{self.parameter_type} *{PARAMETER}"] if self.is_callers else []

    @property
    def parameter_type(self) -> str:
        """What the parameter points to: bytes, or the pointers to all pools."""
        return f"const struct {self.model}_pools" if self.pools else "uint8_t"

    def base(self, pool: int) -> str:
        """Return where a pool begins, or the arena that has none, as a C expression, a pointer to bytes."""
        if not self.pools:
            return self.symbol
        name = self.pools[pool].pool.name
        return f"{PARAMETER}->{name}" if self.is_callers else pool_symbol(self.model, name)

    def macro(self, spot: Spot) -> str:
        """Return the macro that stands for a spot's offset."""
        return self._macro(spot.name)

    def _macro(self, name: str) -> str:
        return f"{self.model}_{name}_offset".upper()

    def bytes_at(self, spot: Spot) -> str:
        """Return a spot as a C expression, a pointer to bytes."""
        return f"{self.base(spot.pool)} + {self.macro(spot)}"

    def pointer(self, c_type: str, spot: Spot) -> str:
        """Return a spot as a C expression, a pointer to `c_type`."""
        return pointer_to(c_type, self.bytes_at(spot))

    def constant(self, symbol: str) -> str:
        """Return a constant as a C expression: where it is, or its copy in a pool."""
        copy = self.copies.get(symbol)
        return symbol if copy is None else self.pointer(f"const {copy.c_type}", copy.spot)

    def scratch_of(self, number: int, c_type: str) -> str:
        """Return the pointer to a step's scratch; a kernel may take it and need none of it for its empty tensors."""
        if number in self.scratch:
            return self.pointer(c_type, self.scratch[number])
        first = next((number for number, one in enumerate(self.pools) if one.bytes), 0)
        return f"({c_type} *)(void *){self.base(first)}" if self.bytes else "0"

    def defines(self) -> list[str]:
        """Return the macros."""
        spots = dict.fromkeys(
            (*self.values.values(), *self.scratch.values(), *(copy.spot for copy in self.copies.values()))
        )
        if not spots:
            return []
        lines = []
        for pool in sorted({spot.pool for spot in spots}):
            where = f"in the pool {self.pools[pool].pool.name}" if self.pools else "in the arena"
            lines.append(comment(f"What lies where {where}, in bytes from its start."))
            for spot in sorted((spot for spot in spots if spot.pool == pool), key=lambda spot: spot.offset):
                at = f"{self._macro(spot.over)} {IN_PLACE}" if spot.over else str(spot.offset)
                lines.append(f"#define {self.macro(spot)} {at}")
            lines.append("")
        return lines


def pointer_to(c_type: str, place: str) -> str:
    """Return a pointer to bytes as one to a type."""
    return place if c_type == "uint8_t" else f"({c_type} *)(void *)({place})"


class _Names:
    """Gives each spot a name that no other has, in capitals either."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.taken: dict[str, Spot] = {}

    def __call__(self, name: str, offset: int, *, shared: bool = False) -> Spot:
        """Return a spot; `shared`: it may be one that has the name already, at this offset."""
        pool, inside = self.plan.place(offset)
        spot, number = Spot(name, inside, pool=pool), 1
        while (other := self.taken.get(spot.name.upper())) is not None:
            if shared and other == spot:
                return other
            number += 1
            spot = Spot(f"{name}_{number}", inside, pool=pool)
        self.taken[spot.name.upper()] = spot
        return spot


def pool_symbol(model: object, pool: str) -> str:
    """Return what a pool of a model is called in C."""
    return f"{model}_pool_{pool}"


def own_arena(model: object) -> str:
    """Return what the arena is called in C that a model has for itself."""
    return f"{model}_arena"


def arena_of(plan: Plan, interface: Interface, symbol: str = "", copied: Mapping[str, Copied] | None = None) -> Arena:
    """Return the names of all that lies in the arena: inputs, outputs and states by their own, the rest by operator.

    `symbol` is what it is called in C, if it is not the model's own: that of several models, or a parameter. `copied`
    are the constants with copies in pools, by their symbols.
    """
    graph, name = plan.graph, _Names(plan)
    values: dict[str, Spot] = {}
    own: dict[str, tuple[Sequence[str], Sequence[Tensor | StateTensor]]] = {
        "in": (graph.caller_inputs, interface.inputs),
        "out": (graph.caller_outputs, interface.outputs),
        "state": ([value for _, value, _ in graph.state_values], interface.states),
    }
    for prefix, (roots, tensors) in own.items():
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
    inputs, outputs, states = (tuple(values.get(value) for value in roots) for roots, _ in own.values())
    named = symbol or own_arena(graph.name)
    copies = {
        constant: replace(one, spot=name(one.spot.name, plan.pools[one.spot.pool].begin + one.spot.offset))
        for constant, one in (copied or {}).items()
    }
    return Arena(graph.name, named, plan.arena_bytes, values, scratch, inputs, outputs, states, plan.pools, copies)


def written(plan: Plan) -> Iterator[tuple[str, str, int]]:
    """Yield what steps write in the arena: the value or window, whose result it is, its offset.

    What moves rows or pads them comes last: a window is called after what computes the rows.
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
    """Yield the values that operators write over an operand of theirs, and their spots, which say so."""
    lies = aliases(plan.graph)
    for step in plan.steps:
        read = [values[root] for root in (lies.root(v) for v in step.node.inputs) if root in values]
        for value in step.node.outputs:
            own = values.get(value)
            over = [
                spot.name
                for spot in read
                if own and (spot.pool, spot.offset) == (own.pool, own.offset) and spot.name != own.name
            ]
            if own and over:
                yield value, replace(own, over=over[0])


def moves_rows(node: Node) -> bool:
    """Whether a node only moves rows of a window, or fills them."""
    return isinstance(node.attrs, Loop) and node.attrs.label in ("keep rows", "pad rows")


# The address of a value: an offset in the arena, or in an input or output that the caller keeps.


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a value: in the `index`-th pool of the arena, input, output or state, and how far from its start.

    An arena in one piece has the index 0. Only the body of a loop has states that do not lie in the arena.
    """

    memory: Literal["arena", "inputs", "outputs", "states"]
    index: int
    offset: int


def address_of(plan: Plan, value: str) -> Address:
    """Return the address of a value that is no constant."""
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
