"""Pools: which of a model's plans fits in several memories of a board, and which tensors each of them holds.

A pool is a memory for tensors, for copies of constants, or for constants themselves. A model's pools are those that
the user requests, or the board's own where one memory is too small.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from mtool.base import spelling
from mtool.base.errors import FitError, UsageError
from mtool.base.escaping import short_name
from mtool.base.frozen import frozen
from mtool.base.identifiers import tensor_names
from mtool.base.option_values import PoolUse
from mtool.boards import Board, Memory
from mtool.compiler.ir.control import Control
from mtool.compiler.plan.first_fit import Apart, apart_of, lowest, pairs_of
from mtool.compiler.plan.for_time import CODE_BYTES, RESERVED_BYTES
from mtool.compiler.plan.memory import ALIGNMENT, Storage, aliases, aligned
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.pool import LEAST_ALIGNMENT, ConstantReads, PlacedPool, Pool
from mtool.compiler.plan.shared_arena import moved

MOST = 16
"""The most pools of a model."""


def requested_pools(board: Board, requested: Sequence[Pool]) -> tuple[Pool, ...]:
    """Return the requested pools, with the board's values as defaults.

    Raises:
        UsageError: a pool is not a memory of the board, is larger than it or not writable, or two have the same name.
    """
    pools: list[Pool] = []
    if len(requested) > MOST:
        raise UsageError(f"too many pools: {len(requested)}", hint=f"use at most {MOST}")
    for pool in requested:
        if tensor_names([pool.name]) != [pool.name]:
            raise UsageError(
                f"pool {short_name(pool.name)}: its name can't be used in C",
                hint="use lower-case letters, digits and _, but no keyword, such as dtcm or sram_1",
            )
        if any(other.name == pool.name for other in pools):
            raise UsageError(f"pool {pool.name} is given twice", hint="give it once, with all of its bytes")
        if tensor_names([*(other.name for other in pools), pool.name])[-1] != pool.name:
            raise UsageError(
                f"pool {pool.name}: its name differs from another pool's only in case, so their C macros are the same",
                hint="choose another name",
            )
        memory = board.memories.get(pool.name)
        if memory is None:
            pools.append(_elsewhere(board, pool, is_first=all(other.use == "constants" for other in pools)))
            continue
        _check(board, pool, memory)
        pools.append(_of_board(board, pool, memory))
    return tuple(pools)


def tensor_pools(board: Board, requested: Sequence[Pool]) -> tuple[Pool, ...]:
    """Return the requested pools for tensors and copies of constants; none: the arena is in one memory.

    Raises:
        UsageError: as for `requested_pools`, or no pool is for tensors.
    """
    pools = [pool for pool in requested_pools(board, requested) if pool.use != "constants"]
    arena = board.region_for("arena")
    if pools and all(pool.use == "weights" for pool in pools):
        if arena is None or any(pool.name == arena for pool in pools):
            raise UsageError("no pool is for tensors", hint="add one: --pool NAME=BYTES,for=all")
        pools.append(_of_board(board, Pool(arena, use="tensors"), board.memories[arena]))
    return tuple(pools)


def constant_pools(board: Board, requested: Sequence[Pool]) -> tuple[Pool, ...]:
    """Return the requested pools for constants themselves.

    Raises:
        UsageError: as for `requested_pools`, or one has a section without initial values.
    """
    pools = tuple(pool for pool in requested_pools(board, requested) if pool.use == "constants")
    for pool in pools:
        if pool.section.startswith((".bss", ".noinit", ".sbss")):
            raise UsageError(
                f"pool {pool.name}: section {pool.section} can't hold constants, as it has no initial values",
                hint=f"use, for instance, section=.rodata.{pool.name}",
            )
    return pools


def _of_board(board: Board, pool: Pool, memory: Memory) -> Pool:
    use: PoolUse = "constants" if pool.use == "weights" and not memory.is_written else pool.use
    waits, free = pool.waits, _free(memory)
    if waits is None:  # of a word, if the board's entry has them
        reads = memory.reads if board.clock_hz else None
        waits = reads.waits(board.clock_hz) * WORD / reads.width if reads else 0.0
        waits = memory.pool.waits if memory.pool is not None else waits
    if use == "constants" and "code" in memory.holds:
        free -= min(CODE_BYTES, memory.size // 4)
    return replace(
        pool,
        use=use,
        bytes=pool.bytes or free,
        waits=waits,
        alignment=max(pool.alignment, LEAST_ALIGNMENT),
        is_arena=not pool.section and use != "constants" and board.region_for("arena") == pool.name,
    )


def board_pools(board: Board) -> tuple[Pool, ...]:
    """Return the memories of a board that an arena may be split over; none: only one is available."""
    arena = board.region_for("arena")
    pools = tuple(
        Pool(name, _free(memory), memory.pool.use, memory.pool.waits, is_arena=name == arena)
        for name, memory in board.memories.items()
        if memory.pool is not None and memory.pool.use != "constants"
    )
    return pools if len(pools) > 1 and any(pool.is_arena for pool in pools) else ()


def _free(memory: Memory) -> int:
    """Return the bytes of a memory without the part reserved for data and stacks there."""
    if not {"data", "stack"} & {*memory.holds}:
        return memory.size
    return memory.size - min(RESERVED_BYTES, memory.size // 4)


def _elsewhere(board: Board, pool: Pool, *, is_first: bool) -> Pool:
    """Return a pool that is not one of the board's memories: its section or an operating system places it."""
    if board.memories and not pool.section:
        near = spelling.did_you_mean(pool.name, board.memories, otherwise="")
        raise UsageError(
            f"{board.name} has no memory {pool.name}",
            details=[f"{name}: {memory.size:,} B" for name, memory in board.memories.items()],
            hint=near or f"for memory of your own linker script: --pool {pool.name}=BYTES,section=NAME",
        )
    if not pool.bytes:
        raise UsageError(f"pool {pool.name} has no size", hint=f"give its size: --pool {pool.name}=64KiB")
    return replace(
        pool,
        alignment=max(pool.alignment, LEAST_ALIGNMENT),
        is_arena=is_first and not pool.section and pool.use != "constants",
    )


def _check(board: Board, pool: Pool, memory: Memory) -> None:
    if pool.use not in ("weights", "constants") and not memory.is_written:
        raise UsageError(
            f"pool {pool.name} is not writable: on {board.name} it holds {' and '.join(memory.holds)}",
            details=[f"{name}: {other.size:,} B" for name, other in board.memories.items() if other.is_written],
            hint=f"use it for constants: --pool {pool.name},for=weights",
        )
    if pool.bytes > memory.size:
        raise UsageError(
            f"pool {pool.name} is larger than its memory: {pool.bytes:,} B",
            details=[f"{pool.name} on {board.name} has {memory.size:,} B"],
        )


# An arena in several memories: the pool of each storage, and its offset there.
#
# A storage lies in one pool as a whole. The storages with the most accesses per byte come first and take the fastest
# pool in which they fit. Then random changes (seeded) are tried and kept unless they are worse: while something does
# not fit, it moves forward in the order or a storage tries another pool first; once everything fits, storages move in
# the order to save cycles.


TRIES = 1500
STEPS = 4_000_000  # storages and pairs that all tries together may examine
TURNED = 0.6  # the share of tries, while something does not fit, in which a storage starts at another pool
WORD = 4  # bytes of an access
READS_A_PRODUCT = 0.25
"""Input elements that a kernel reads per multiply-accumulate: one serves several output channels."""


@frozen
class _Fit:
    """An order, the pool and offset of each storage that fits, the storages that do not, and the cost.

    `starts` maps storages to the pool that they try before the fastest.
    """

    order: tuple[int, ...]
    starts: Mapping[int, int]
    placed: Mapping[int, tuple[int, int]]
    unplaced: tuple[int, ...]
    cost: tuple[int, float]


def in_pools(plan: Plan, pools: Sequence[Pool]) -> Plan | tuple[Storage, ...]:
    """Return a plan whose tensors and scratch lie in pools, or the storages that do not fit in the best attempt.

    Args:
        plan: the plan, with its arena in one piece.
        pools: the pools, with their sizes; those for constants only are ignored.
    """
    ranked = sorted((pool for pool in pools if pool.use in ("all", "tensors")), key=lambda pool: pool.speed)
    pieces = [storage for storage, _ in plan.storages]
    fit = _fitted(pieces, _accesses(plan, pieces), ranked, plan)
    if fit.unplaced:
        return tuple(pieces[number] for number in fit.unplaced)
    return _moved(plan, pieces, fit, ranked, pools)


def _accesses(plan: Plan, pieces: Sequence[Storage]) -> list[float]:
    """Estimate the bytes that an inference reads and writes in each storage."""
    graph, root = plan.graph, aliases(plan.graph).root
    owner = {value: number for number, piece in enumerate(pieces) for value in piece.values}
    traffic = [0.0] * len(pieces)

    def add(value: str, count: float) -> None:
        number = owner.get(root(value))
        if number is not None:
            traffic[number] += count

    for step in plan.steps:
        macs = 0 if isinstance(step.node.attrs, Control) else step.op.macs(step.node, graph)
        for place, value in enumerate(step.node.inputs):
            if value not in graph.constants and value in graph.types:
                kind = graph.types[value]
                most = READS_A_PRODUCT * macs * kind.dtype.size if place == 0 else 0
                add(value, max(kind.bytes, most))
        for value in step.node.outputs:
            add(value, graph.types[value].bytes)
        add(f"scratch of {step.node.title}", 2 * step.scratch_bytes)
    return traffic


def _fitted(pieces: Sequence[Storage], accesses: Sequence[float], pools: Sequence[Pool], plan: Plan) -> _Fit:
    """Return the best fit found: with the fewest bytes that do not fit, then with the fewest cycles."""
    numbers = range(len(pieces))
    if pools and plan.arena_bytes <= pools[0].bytes:  # no order is better
        offsets = {number: (0, offset) for number, (_, offset) in enumerate(plan.storages)}
        return _Fit(tuple(numbers), {}, offsets, (), (0, 0.0))
    firsts, lasts = [piece.first for piece in pieces], [piece.last for piece in pieces]
    pairs = pairs_of(firsts, lasts)
    if pairs is None or not pools:  # thousands of tensors that are live together
        return _Fit((), {}, {}, tuple(numbers), (sum(piece.bytes for piece in pieces), 0.0))
    apart = apart_of(pieces, pairs)

    def fitted(order: Sequence[int], starts: Mapping[int, int]) -> _Fit:
        return _first_fit(pieces, accesses, pools, apart, order, starts)

    spans = [last - first for first, last in zip(firsts, lasts, strict=True)]
    orders = [
        sorted(numbers, key=lambda n: (-accesses[n] / max(pieces[n].bytes, 1), n)),
        sorted(numbers, key=lambda n: (-pieces[n].bytes, firsts[n])),
        sorted(numbers, key=lambda n: (-pieces[n].bytes * (spans[n] + 1), n)),
        sorted(numbers, key=lambda n: (firsts[n], -pieces[n].bytes)),
    ]
    best = min((fitted(order, {}) for order in orders), key=lambda fit: fit.cost)
    chance = random.Random(0)
    for _ in range(min(TRIES, STEPS // (len(pieces) + len(pairs) + 1)) if len(pieces) > 1 else 0):
        if best.cost == (0, 0.0):
            break
        order, starts = [*best.order], dict(best.starts)
        if best.unplaced and chance.random() < TURNED:
            starts[chance.randrange(len(order))] = chance.randrange(len(pools))
        else:
            source = order.index(chance.choice(best.unplaced)) if best.unplaced else chance.randrange(len(order))
            order.insert(chance.randrange(source + 1 if best.unplaced else len(order)), order.pop(source))
        other = fitted(order, starts)
        best = other if other.cost <= best.cost else best
    return best


def _first_fit(
    pieces: Sequence[Storage],
    accesses: Sequence[float],
    pools: Sequence[Pool],
    apart: Apart,
    order: Sequence[int],
    starts: Mapping[int, int],
) -> _Fit:
    """Place storages in an order, each in the first pool in which it fits, at the lowest offset.

    Storages in `starts` try that pool first.
    """
    inside: list[dict[int, int]] = [{} for _ in pools]
    placed: dict[int, tuple[int, int]] = {}
    unplaced = []
    cycles = 0.0
    for number in order:
        piece = pieces[number]
        start = starts.get(number, 0)
        for index, pool in ((start, pools[start]), *enumerate(pools)):
            offset = lowest(piece, inside[index], apart[number]) if piece.bytes else 0
            if offset + aligned(piece.bytes) <= pool.bytes:
                inside[index][number] = offset
                placed[number] = index, offset
                cycles += accesses[number] / WORD * pool.speed
                break
        else:
            unplaced.append(number)
    return _Fit(tuple(order), starts, placed, tuple(unplaced), (sum(pieces[n].bytes for n in unplaced), cycles))


def _moved(plan: Plan, pieces: Sequence[Storage], fit: _Fit, ranked: Sequence[Pool], pools: Sequence[Pool]) -> Plan:
    """Return the plan with its storages placed; pools keep their order."""
    uses: list[PlacedPool] = []
    for pool in pools:
        index = next((number for number, other in enumerate(ranked) if other is pool), None)
        inside = [(pieces[number], offset) for number, (of, offset) in fit.placed.items() if of == index]
        size = max((offset + max(aligned(piece.bytes), ALIGNMENT) for piece, offset in inside), default=0)
        uses.append(PlacedPool(pool, 0, size, max([pool.alignment, *(piece.alignment for piece, _ in inside)])))
    placed_pools = _with_begins(uses)
    begins = {number: use.begin for number, pool in enumerate(ranked) for use in placed_pools if use.pool is pool}
    offsets = {id(pieces[number]): begins[of] + offset for number, (of, offset) in fit.placed.items()}
    return replace(moved(plan, offsets), arena_bytes=sum(use.bytes for use in uses), pools=placed_pools)


def _with_begins(pools: Iterable[PlacedPool]) -> tuple[PlacedPool, ...]:
    """Return the pools with their starts; an empty storage at the end of one does not count as in the next."""
    result, begin = list[PlacedPool](), 0
    for placed in pools:
        begin = aligned(begin, placed.alignment)
        result.append(replace(placed, begin=begin))
        begin += placed.bytes + 1
    return tuple(result)


_T = TypeVar("_T")
_SHOWN = 4  # storages in an error


def first_that_fits(board: Board, pools: Sequence[Pool], attempts: Iterator[tuple[_T, Plan]]) -> tuple[_T, Plan]:
    """Return the first plan whose arena fits in the board's memory or else in its pools; otherwise the last plan.

    Args:
        board: the board.
        pools: the board's pools, for an arena that is larger than that memory.
        attempts: the plans, each with its companion data, the fastest first.
    """
    seen = []
    for attempt in attempts:
        if not is_short(board, attempt[1].arena_bytes):
            return attempt
        seen.append(attempt)
    for about, plan in seen if pools else ():
        outcome = in_pools(plan, pools)
        if isinstance(outcome, Plan):
            return about, outcome
    return seen[-1]


def first_in_pools(pools: Sequence[Pool], attempts: Iterator[tuple[_T, Plan]]) -> tuple[_T, Plan]:
    """Return the first plan that fits in the requested pools.

    Args:
        pools: the pools, with their sizes.
        attempts: as for `first_that_fits`.

    Raises:
        FitError: none fits.
    """
    short: list[tuple[Plan, tuple[Storage, ...]]] = []
    for about, plan in attempts:
        outcome = in_pools(plan, pools)
        if isinstance(outcome, Plan):
            return about, outcome
        short.append((plan, outcome))
    plan, unplaced = min(short, key=lambda pair: sum(storage.bytes for storage in pair[1]))
    usable, largest = (
        [pool for pool in pools if pool.use != "weights"],
        max((storage for storage, _ in plan.storages), key=lambda storage: storage.bytes),
    )
    if largest.bytes <= max((pool.bytes for pool in usable), default=0):
        hint = "enlarge a pool, or use --io external: inputs and outputs then lie in the caller's memory"
    elif largest.values[:1] and largest.values[0].startswith("scratch of "):
        hint = f"use a pool of {largest.bytes:,} B, or a schedule with less scratch: --schedule NODE=SCHEDULE"
    else:
        hint = f"a tensor must fit in one pool: use one of {largest.bytes:,} B, or --io external"
    total = f"in one piece the arena is {plan.arena_bytes:,} B; {plan.arena_bound_bytes:,} B are live at one time"
    missing = [(_description(plan, s.values), s.bytes) for s in sorted(unplaced, key=lambda s: -s.bytes)]
    raise _no_room(f"the tensors of {plan.graph.name}", usable, missing, total, hint)


def _no_room(things: str, pools: Sequence[Pool], missing: Sequence[tuple[str, int]], total: str, hint: str) -> FitError:
    """Return the error that things of these names and sizes, the largest first, do not fit in the pools."""
    rows = [f"{pool.name} has {pool.bytes:,} B" for pool in pools]
    rows += [f"no room for {name}: {size:,} B" for name, size in missing[:_SHOWN]]
    rows += [f"and {len(missing) - _SHOWN} more"] * (len(missing) > _SHOWN)
    return FitError(f"{things} do not fit in its pools", details=[*rows, total], hint=hint)


def is_short(board: Board, arena_bytes: int) -> bool:
    """Return whether a board's memory is too small for an arena."""
    memory = board.memory_for("arena")
    return memory is not None and arena_bytes > memory.size


def _description(plan: Plan, values: Sequence[str]) -> str:
    """Describe a storage: an input or output by its name, otherwise the operator that writes it first."""
    graph = plan.graph
    for kind, names, roots in (
        ("the input", graph.inputs, graph.inputs),
        ("the output", graph.output_names, graph.caller_outputs),
    ):
        for name, value in zip(names, roots, strict=False):
            if value in values:
                return f"{kind} {short_name(name)}"
    first = values[0] if values else ""
    if first.startswith("scratch of "):
        return first
    writer = next((step.node.title for step in plan.steps if {*values} & {*step.node.outputs}), "")
    return f"the result of {writer}" if writer else f"rows of {short_name(first)}"


# Constants in several memories: each lies in one; the most read per byte get the fastest memory with room.
#
# Nothing is copied: they are `const` arrays, which the linker puts there.


CONSTANT_ALIGNMENT = 16
"""The alignment of each constant there, in bytes: the largest that a kernel needs without stating it."""


@frozen
class Constant:
    """A constant: its C symbol, its size, and the bytes of it that an inference reads, about."""

    symbol: str
    bytes: int
    read: float

    @property
    def density(self) -> float:
        """How often each byte is read."""
        return self.read / max(self.bytes, 1)


def in_sections(
    model: str, constants: Sequence[Constant], pools: Sequence[Pool], alignment: int = CONSTANT_ALIGNMENT
) -> Mapping[str, Pool]:
    """Return the pool of each constant, by its symbol.

    Args:
        model: the model's name.
        constants: the constants to place.
        pools: the available pools; of equally fast ones the first is preferred.
        alignment: the alignment of each constant.

    Raises:
        FitError: one does not fit.
    """
    ranked = sorted(pools, key=lambda pool: pool.speed)
    orders = (
        sorted(constants, key=lambda constant: (-constant.density, -constant.bytes, constant.symbol)),
        sorted(constants, key=lambda constant: (-constant.bytes, -constant.density, constant.symbol)),
    )
    short: list[list[Constant]] = []
    for order in orders:
        pool_of, unplaced = _constants_first_fit(order, ranked, alignment)
        if not unplaced:
            return {constant.symbol: pool_of[constant.symbol] for constant in constants}
        short.append(unplaced)
    unplaced = min(short, key=lambda unplaced: sum(constant.bytes for constant in unplaced))
    missing = [(c.symbol, c.bytes) for c in sorted(unplaced, key=lambda c: (-c.bytes, c.symbol))]
    total = sum(aligned(constant.bytes, max(alignment, CONSTANT_ALIGNMENT)) for constant in constants)
    hint = (
        "enlarge a pool, add another with for=weights, or use --optimize size, which stores smaller weights where "
        "Winograd would transform them"
    )
    most = missing[0][1]
    if most > max(pool.bytes for pool in pools):
        least = aligned(most, max(alignment, CONSTANT_ALIGNMENT))
        hint = f"a constant must fit in one pool: use one of {least:,} B"
    raise _no_room(f"the constants of {model}", pools, missing, f"all constants together are {total:,} B", hint)


def _constants_first_fit(
    order: Iterable[Constant], ranked: Sequence[Pool], alignment: int
) -> tuple[dict[str, Pool], list[Constant]]:
    """Put each constant into the first pool in which it fits; return the pools, and the constants that do not fit."""
    room = [pool.bytes for pool in ranked]
    pool_of: dict[str, Pool] = {}
    unplaced = []
    for constant in order:
        size = aligned(constant.bytes, max(alignment, CONSTANT_ALIGNMENT))
        number = next((number for number, count in enumerate(room) if size <= count), None)
        if number is None:
            unplaced.append(constant)
            continue
        room[number] -= size
        pool_of[constant.symbol] = ranked[number]
    return pool_of, unplaced


# Copies of constants in pools, after the tensors: those that save most cycles per byte, while there is room.
#
# The originals are in flash and are copied before the first inference.


def with_copies(plan: Plan, sizes: Mapping[str, Mapping[str, int]]) -> tuple[Plan, dict[str, tuple[int, int]]]:
    """Return a plan with copies of constants in its pools, and the pool and offset of each copy.

    Args:
        plan: the plan, in pools.
        sizes: for each operator, the bytes of its constants that may be copied, by C symbol.
    """
    pools = [*plan.pools]
    places: dict[str, tuple[int, int]] = {}
    order = sorted(range(len(pools)), key=lambda number: pools[number].pool.speed)

    def density(offer: ConstantReads) -> tuple[float, str]:
        return -offer.cycles / max(sum(sizes.get(offer.operator, {}).values()), 1), offer.operator

    for offer in sorted(plan.offers, key=density):
        new = {symbol: count for symbol, count in sizes.get(offer.operator, {}).items() if symbol not in places}
        for number in order if new else ():
            placed = pools[number]
            offset = aligned(placed.bytes, CONSTANT_ALIGNMENT)
            end = offset + sum(aligned(count, CONSTANT_ALIGNMENT) for count in new.values())
            pays = placed.pool.use != "tensors" and offer.cycles > offer.bytes / WORD * placed.pool.speed
            if end <= placed.pool.bytes and pays:  # the memory was requested for that
                for symbol, count in new.items():
                    places[symbol] = number, offset
                    offset = aligned(offset + count, CONSTANT_ALIGNMENT)
                copied = placed.constant_bytes + end - placed.bytes
                pools[number] = replace(placed, bytes=end, constant_bytes=copied)
                break
    if not places:
        return plan, {}
    placed_pools = _with_begins(pools)
    offsets = {}
    for storage, offset in plan.storages:
        number, inside = plan.place(offset)
        offsets[id(storage)] = placed_pools[number].begin + inside
    return replace(moved(plan, offsets), arena_bytes=plan.arena_bytes, pools=placed_pools), places
