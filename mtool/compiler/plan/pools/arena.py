"""Which of the plans of a model a board has room for: in one memory, or in pools."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mtool.base.errors import FitError
from mtool.base.escaping import short_name
from mtool.boards import Board
from mtool.compiler.ir.control import Control
from mtool.compiler.plan.first_fit import Apart, apart_of, lowest, pairs_of
from mtool.compiler.plan.memory import ALIGNMENT, Storage, aliases, aligned
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.pool import PlacedPool, Pool
from mtool.compiler.plan.shared_arena import moved

# An arena in several memories: which storage lies in which pool, and where.
#
# A storage lies in one pool as a whole. What is accessed most by the byte comes first, and takes the fastest pool
# that has room for it; where that leaves something without room, or to save more, others are tried, by chance
# (seeded), for as long as they are no worse: what found no room comes earlier or a storage tries another pool first;
# once all have room, one moves in the order, for fewer cycles.


TRIES = 1500
STEPS = 4_000_000  # storages and pairs of them that are looked at in all tries
TURNED = 0.6  # of the tries while something has no room: a storage begins at another pool
WORD = 4  # bytes of an access
READS_A_PRODUCT = 0.25
"""Elements of its input that a kernel reads for a multiply-accumulate: one serves for some output channels."""


@dataclass(frozen=True, slots=True)
class Short:
    """Why a plan does not lie in pools: the storages that found no room where the fewest bytes did not.

    `largest` is the largest storage of all, `live_bytes` what lives at one time at the most.
    """

    left: tuple[Storage, ...]
    largest: Storage
    live_bytes: int


@dataclass(frozen=True, slots=True)
class _Fit:
    """An order, the pool and the offset there of each storage that has room, those that have none, and the cost.

    `starts` are the storages that try another pool before the fastest, and which.
    """

    order: tuple[int, ...]
    starts: Mapping[int, int]
    placed: Mapping[int, tuple[int, int]]
    left: tuple[int, ...]
    cost: tuple[int, float]


def in_pools(plan: Plan, pools: Sequence[Pool]) -> Plan | Short:
    """Return a plan whose tensors and scratch lie in pools, or why they can't.

    Args:
        plan: with its arena in one piece.
        pools: with their bytes; those for constants alone are left out of it.
    """
    ranked = sorted((pool for pool in pools if pool.use in ("all", "tensors")), key=lambda pool: pool.speed)
    pieces = [storage for storage, _ in plan.storages]
    fit = _fitted(pieces, _accesses(plan, pieces), ranked, plan)
    if fit.left:
        return Short(
            tuple(pieces[number] for number in fit.left),
            max(pieces, key=lambda piece: piece.bytes),
            plan.arena_bound_bytes,
        )
    return _moved(plan, pieces, fit, ranked, pools)


def waits_of(plan: Plan) -> float:
    """Return the cycles that accesses to the pools of a plan wait, about."""
    pieces = [storage for storage, _ in plan.storages]
    numbers = (plan.place(offset)[0] for _, offset in plan.storages)
    pairs = zip(_accesses(plan, pieces), numbers, strict=True)
    return sum(bytes_ / WORD * plan.pools[number].pool.speed for bytes_, number in pairs) if plan.pools else 0.0


def _accesses(plan: Plan, pieces: Sequence[Storage]) -> list[float]:
    """Return the bytes that an inference reads and writes in each storage, about."""
    graph, lies = plan.graph, aliases(plan.graph)
    owner = {value: number for number, piece in enumerate(pieces) for value in piece.values}
    found = [0.0] * len(pieces)

    def add(value: str, count: float) -> None:
        number = owner.get(lies.get(value, (value, 0))[0])
        if number is not None:
            found[number] += count

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
    return found


def _fitted(pieces: Sequence[Storage], accesses: Sequence[float], pools: Sequence[Pool], plan: Plan) -> _Fit:
    """Return the best fit that is found: with the fewest bytes left over, then with the fewest cycles."""
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
        if best.left and chance.random() < TURNED:
            starts[chance.randrange(len(order))] = chance.randrange(len(pools))
        else:
            source = order.index(chance.choice(best.left)) if best.left else chance.randrange(len(order))
            order.insert(chance.randrange(source + 1) if best.left else chance.randrange(len(order)), order.pop(source))
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
    """Place storages in an order, each in the first pool that has room at the lowest offset there.

    Those of `starts` try the pool that stands there before all others.
    """
    inside: list[dict[int, int]] = [{} for _ in pools]
    placed: dict[int, tuple[int, int]] = {}
    left = []
    cycles = 0.0
    for number in order:
        piece = pieces[number]
        start = starts.get(number, 0)
        for which, pool in ((start, pools[start]), *enumerate(pools)):
            offset = lowest(piece, inside[which], apart[number]) if piece.bytes else 0
            if offset + aligned(piece.bytes) <= pool.bytes:
                inside[which][number] = offset
                placed[number] = which, offset
                cycles += accesses[number] / WORD * pool.speed
                break
        else:
            left.append(number)
    return _Fit(tuple(order), starts, placed, tuple(left), (sum(pieces[number].bytes for number in left), cycles))


def _moved(plan: Plan, pieces: Sequence[Storage], fit: _Fit, ranked: Sequence[Pool], pools: Sequence[Pool]) -> Plan:
    """Return the plan with its storages where they fit; pools keep their order."""
    uses: list[PlacedPool] = []
    begins: dict[int, int] = {}
    begin = 0
    for pool in pools:
        which = next((number for number, one in enumerate(ranked) if one is pool), None)
        own = [(pieces[number], offset) for number, (of, offset) in fit.placed.items() if of == which]
        size = max((offset + max(aligned(piece.bytes), ALIGNMENT) for piece, offset in own), default=0)
        alignment = max([pool.alignment, *(piece.alignment for piece, _ in own)])
        begin = aligned(begin, alignment)
        uses.append(PlacedPool(pool, begin, size, alignment))
        if which is not None:
            begins[which] = begin
        begin += size + 1  # what is empty at the end of one does not lie in the next
    offsets = {id(pieces[number]): begins[of] + offset for number, (of, offset) in fit.placed.items()}
    return replace(moved(plan, offsets), arena_bytes=sum(use.bytes for use in uses), pools=tuple(uses))


_T = TypeVar("_T")
_SHOWN = 4  # storages in an error


def first_that_fits(board: Board, lent: Sequence[Pool], attempts: Iterator[tuple[_T, Plan]]) -> tuple[_T, Plan]:
    """Return the first plan whose arena the board's memory has room for, or the pools that it lends; or the last.

    Args:
        board: the board.
        lent: its pools, for an arena that is larger than that memory.
        attempts: the plans, each with what belongs to it, less and less fast.
    """
    seen = []
    for attempt in attempts:
        if not is_short(board, attempt[1].arena_bytes):
            return attempt
        seen.append(attempt)
    for about, plan in seen if lent else ():
        found = in_pools(plan, lent)
        if isinstance(found, Plan):
            return about, found
    return seen[-1]


def first_in_pools(model: str, pools: Sequence[Pool], attempts: Iterator[tuple[_T, Plan]]) -> tuple[_T, Plan]:
    """Return the first plan that lies in the pools that a user asks for.

    Args:
        model: the model's name.
        pools: with their bytes.
        attempts: as of `first_that_fits`.

    Raises:
        FitError: none does.
    """
    short: list[tuple[Plan, Short]] = []
    for about, plan in attempts:
        found = in_pools(plan, pools)
        if isinstance(found, Plan):
            return about, found
        short.append((plan, found))
    raise _error(model, pools, *min(short, key=lambda pair: sum(one.bytes for one in pair[1].left)))


def is_short(board: Board, arena_bytes: int) -> bool:
    """Return whether a board's memory is too small for an arena."""
    memory = board.memory_for("arena")
    return memory is not None and arena_bytes > memory.size


def _error(model: str, pools: Sequence[Pool], plan: Plan, short: Short) -> FitError:
    own = [pool for pool in pools if pool.use != "weights"]
    rows = [f"{pool.name} has {pool.bytes:,} B" for pool in own]
    left = sorted(short.left, key=lambda one: -one.bytes)
    rows += [f"no room for {_what(plan, one.values)}: {one.bytes:,} B" for one in left[:_SHOWN]]
    rows += [f"and {len(left) - _SHOWN} more"] * (len(left) > _SHOWN)
    rows.append(f"in one piece the arena is {plan.arena_bytes:,} B; {short.live_bytes:,} B are live at one time")
    room = max((pool.bytes for pool in own), default=0)
    if short.largest.bytes <= room:
        hint = "more bytes in one of them; --io external leaves inputs and outputs to the caller"
    elif short.largest.values[:1] and short.largest.values[0].startswith("scratch of "):
        hint = f"a pool of {short.largest.bytes:,} B, or a schedule with less scratch: --schedule NODE=SCHEDULE"
    else:
        hint = f"a tensor lies in one pool as a whole: one of {short.largest.bytes:,} B, or --io external"
    return FitError(f"the tensors of {model} do not fit its pools", details=rows, hint=hint)


def _what(plan: Plan, values: Sequence[str]) -> str:
    """Return what a storage holds: an input or output by its name, else the operator that writes it first."""
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
