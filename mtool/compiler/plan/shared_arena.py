"""One arena for several models, of which one runs at a time: the size of the largest, and all states.

The states of all models lie at the start, one model's after another's; everything that lives only during an inference
lies behind them, at the same place for every model.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from mtool.boards.protection import Unit
from mtool.compiler.plan.first_fit import lay_out
from mtool.compiler.plan.memory import ALIGNMENT as LEAST
from mtool.compiler.plan.memory import Part, Storage, aliases, aligned
from mtool.compiler.plan.plan import Plan

ALIGNMENT = 16
"""The granularity of each model's part of the arena, in bytes."""


def share_arena(plans: Sequence[Plan], unit: Unit | None = None) -> list[Plan]:
    """Return the plans with offsets in a shared arena; without states they are unchanged.

    With `unit`, each model's states and what follows occupy whole memory-protection granules.
    The `arena_bytes` of each plan end at the last byte that the model uses; the largest is the size of the arena.
    """
    states = [[storage for storage, _ in plan.storages if is_kept(plan, storage)] for plan in plans]
    if not any(states):
        return [*plans]
    alignment = max(ALIGNMENT, *(plan.alignment for plan in plans))
    starts, end = [], 0
    for storages in states:
        size = sum(aligned(storage.bytes, storage.alignment) for storage in storages)
        if unit is not None and storages:
            end = aligned(end, unit.window(size))
        starts.append(end)
        for storage in storages:
            end = aligned(end, storage.alignment) + storage.bytes
        end = aligned(end, alignment if unit is None else max(alignment, unit.granule(size)))
    if unit is not None:
        end = aligned(end, max(unit.granule(plan.arena_bytes) for plan in plans))
    return [_laid_out(*parts, end) for parts in zip(plans, states, starts, strict=True)]


def kept_bytes(plan: Plan) -> int:
    """Return the bytes of a plan's arena that states occupy from one inference to the next."""
    return sum(storage.bytes for storage, _ in plan.storages if is_kept(plan, storage))


def is_kept(plan: Plan, storage: Storage) -> bool:
    """Whether a storage of a plan is a state's, which lives from inference to inference."""
    return any(value in storage.values for _, value, _ in plan.graph.state_values)


def _laid_out(plan: Plan, states: Sequence[Storage], start: int, end: int) -> Plan:
    """Return a plan with its states from `start` on, and everything else from `end` on."""
    others = [storage for storage, _ in plan.storages if not any(storage is state for state in states)]
    placed, _ = lay_out(others)
    offsets = {id(storage): end + placed[number] for number, storage in enumerate(others)}
    for storage in states:
        offsets[id(storage)] = start = aligned(start, storage.alignment)
        start += storage.bytes
    return moved(plan, offsets)


def moved(plan: Plan, offsets: Mapping[int, int]) -> Plan:
    """Return a plan with its storages at new offsets, by their `id`."""
    home = {value: (offset, offsets[id(storage)]) for storage, offset in plan.storages for value in storage.values}
    lies = aliases(plan.graph)

    def new(name: str, offset: int) -> int:
        before, after = home[name]
        return offset - before + after

    storages = sorted(((s, offsets[id(s)]) for s, _ in plan.storages), key=lambda pair: (pair[1], pair[0].first))
    return replace(
        plan,
        offsets={value: new(lies.root(value), offset) for value, offset in plan.offsets.items()},
        scratch=tuple(
            None if offset is None else new(f"scratch of {step.node.title}", offset)
            for step, offset in zip(plan.steps, plan.scratch, strict=True)
        ),
        storages=tuple(storages),
        arena_bytes=max((offset + max(aligned(storage.bytes), LEAST) for storage, offset in storages), default=0),
    )


# One arena for interleaved models: between two operators of a model, a more urgent model may run from start to end.
#
# Memory that a model holds between two of its operators must not overlap that of more urgent models; memory that lives
# only within one operator (its scratch) may, since they are idle then. The more a model holds between two operators,
# the larger the arena becomes, so no other model may run there, unless otherwise one would have to wait longer than for
# the model's longest operator.
#
# For the layout, time is twice as fine: each operator, and each gap between two. The more urgent models together are
# one storage, which is live in the gaps where they may run.


def interleave(plans: Sequence[Plan]) -> tuple[list[Plan], list[tuple[int, ...]]]:
    """Return the plans with offsets in one arena, and the points at which each may pause.

    Args:
        plans: the models' plans, the most urgent first.

    Returns:
        The plans, and for each the numbers of the operators before which a more urgent model may run.
    """
    alignment = max(ALIGNMENT, *(plan.alignment for plan in plans))
    offsets: list[dict[int, int]] = []
    first = 0
    for plan in plans:  # states lie at the start
        state_offsets = {}
        for storage in _kept(plan):
            state_offsets[id(storage)] = first = aligned(first, storage.alignment)
            first += storage.bytes
        first = aligned(first, alignment)
        offsets.append(state_offsets)
    block, pauses = 0, []
    for number, plan in enumerate(plans):
        chosen = _pauses(plan, block) if number else ()
        placed, urgent, size = _interleaved(plan, block, chosen, alignment)
        for before, other in zip(offsets[:number], plans, strict=False):
            states = {id(storage) for storage in _kept(other)}
            before.update({key: offset + urgent for key, offset in before.items() if key not in states})
        offsets[number].update({key: first + offset for key, offset in placed.items()})
        block = aligned(size, alignment)
        pauses.append(chosen)
    return [moved(plan, places) for plan, places in zip(plans, offsets, strict=True)], pauses


def every_pause(plan: Plan) -> tuple[int, ...]:
    """Return the numbers of all operators except the first, before which there is nothing to pause."""
    return tuple(range(1, len(plan.steps)))


def longest_stretch(costs: Sequence[float], pauses: Sequence[int]) -> float:
    """Return the largest total cost of the operators between two pauses."""
    most = stretch = 0.0
    paused = {*pauses}
    for number, cost in enumerate(costs):
        stretch = cost if number in paused else stretch + cost
        most = max(most, stretch)
    return most


def costs_of(plan: Plan) -> list[float]:
    """Return the instructions of each operator, as its schedule estimates them, once for parts that are alike."""
    costs: dict[Hashable, float] = {}
    for step in plan.steps:
        like = id(step.schedule), plan.graph.likeness(step.node)
        if like not in costs:
            costs[like] = step.schedule.cost(step.node, plan.graph, plan.target)
    return [costs[id(step.schedule), plan.graph.likeness(step.node)] for step in plan.steps]


def _kept(plan: Plan) -> list[Storage]:
    return [storage for storage, _ in plan.storages if is_kept(plan, storage)]


def _others(plan: Plan) -> list[Storage]:
    return [storage for storage, _ in plan.storages if not is_kept(plan, storage)]


def _pauses(plan: Plan, block: int) -> tuple[int, ...]:
    """Return where a plan may pause for models that need `block` bytes: all gaps except those that cost memory."""
    others, costs = _others(plan), costs_of(plan)
    longest = max(costs, default=0.0)
    peak = max((_live(others, number + 1) for number in range(len(plan.steps))), default=0)
    chosen = {*every_pause(plan)}
    between = {number: _live(others, number, number + 1) for number in chosen}
    for number in sorted(between, key=lambda gap: (-between[gap], gap)):
        if between[number] + block <= peak or longest_stretch(costs, [*chosen - {number}]) > longest:
            break  # the arena does not shrink without the gaps that follow
        chosen.remove(number)
    return tuple(sorted(chosen))


def _live(storages: Sequence[Storage], *bits: int) -> int:
    """Return the bytes that are live at all of some bits of `Part.live`."""
    mask = sum(1 << bit for bit in bits)
    return sum(part.bytes for storage in storages for part in storage.parts if part.live & mask == mask)


def _interleaved(plan: Plan, block: int, pauses: Sequence[int], alignment: int) -> tuple[Mapping[int, int], int, int]:
    """Return the offset of each storage, that of the more urgent models' block, and the total size."""
    others = _others(plan)
    pieces = [_with_gaps(storage) for storage in others]
    gaps = sum(1 << (2 * number + 1) for number in pauses)
    if block and gaps:
        pieces.append(Storage(block, (Part(0, block, gaps),), ["more urgent models"], alignment))
    placed, size = lay_out(pieces)
    urgent = placed[len(others)] if len(pieces) > len(others) else 0
    return {id(storage): placed[number] for number, storage in enumerate(others)}, urgent, max(size, urgent + block)


def _with_gaps(storage: Storage) -> Storage:
    """Return a storage with its lifetime in operators and the gaps between them: bit n becomes bit 2n."""
    parts = []
    for part in storage.parts:
        live = sum((1 << (2 * end - 1)) - (1 << (2 * first)) for first, end in part.spans())
        parts.append(replace(part, live=live))
    return Storage(storage.bytes, tuple(parts), storage.values, storage.alignment)
