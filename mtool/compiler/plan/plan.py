"""The plan: each operator's schedule, the order, and the memory layout."""

from collections.abc import Mapping
from dataclasses import field

from mtool.base.frozen import frozen
from mtool.base.option_values import Io
from mtool.compiler.ir import Graph
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.memory import ALIGNMENT, Storage
from mtool.compiler.plan.pool import ConstantReads, PlacedPool, Pool
from mtool.compiler.plan.step import Step


@frozen
class Plan:
    """The input of codegen.

    `offsets` has the arena offset in bytes of every value that lies there; `scratch` those of the
    steps' scratch (None: the step has none). `storages` are the pieces of the arena, for its map. `in_states` has the
    values that lie in a state which the caller keeps: its number, and at which byte. With `pools` the arena lies in
    several memories, and all offsets count through them, one after the other; `offers` are the constants that could
    have copies there, by operator. With `constant_pools` constants lie in these; `reads` says how often they are read.
    """

    graph: Graph
    target: Target
    io: Io
    steps: tuple[Step, ...]
    offsets: Mapping[str, int]
    scratch: tuple[int | None, ...]
    storages: tuple[tuple[Storage, int], ...]
    arena_bytes: int
    arena_bound_bytes: int
    in_states: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    pools: tuple[PlacedPool, ...] = ()
    offers: tuple[ConstantReads, ...] = ()
    constant_pools: tuple[Pool, ...] = ()
    reads: tuple[ConstantReads, ...] = ()

    @property
    def cost(self) -> float:
        """The instructions that its schedules estimate."""
        return sum(step.schedule.cost(step.node, self.graph, self.target) for step in self.steps)

    @property
    def grown_bytes(self) -> int:
        """The bytes by which its constants exceed the operators' weights; those of rows of one operator count once."""
        grown = {step.node.title: step.schedule.grown_bytes(step.node, self.graph) for step in self.steps}
        return sum(grown.values())

    @property
    def macs(self) -> int:
        """The multiply-accumulates of all its operators."""
        return sum(step.op.macs(step.node, self.graph) for step in self.steps)

    @property
    def alignment(self) -> int:
        """The required alignment of the arena, in bytes."""
        return max((storage.alignment for storage, _ in self.storages), default=ALIGNMENT)

    @property
    def bytes_of_arena(self) -> int:
        """The bytes in the board's arena memory: all of the arena, unless there are pools."""
        return sum(placed.bytes for placed in self.pools if placed.pool.is_arena) if self.pools else self.arena_bytes

    def place(self, offset: int) -> tuple[int, int]:
        """Return the number of the pool that contains an offset, and the offset within that pool."""
        number = max((n for n, placed in enumerate(self.pools) if placed.begin <= offset), default=0)
        return number, offset - (self.pools[number].begin if self.pools else 0)
