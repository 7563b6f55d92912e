"""One arena for models that interleave: between two operators of one a more urgent one may run, from begin to end.

What a model has in memory between two of its operators lies apart from all that the more urgent ones use; what lives
within one operator alone (its scratch) may lie where they do, as they are idle then. An operator's result and what the
next reads are in memory between the two, and the more there is, the larger the arena: there no other model may run,
unless that would make anyone wait for longer than the model's longest operator anyway.

To lay out the arena time is looked at twice as finely: each operator, and each gap between two. All that the more
urgent models have is one storage, which is live in the gaps where they may run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mtool.compiler.plan.first_fit import lay_out
from mtool.compiler.plan.memory import Part, Storage, aligned
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.shared_arena import ALIGNMENT, is_kept, moved


def interleave(plans: Sequence[Plan]) -> tuple[list[Plan], list[tuple[int, ...]]]:
    """Return the plans with offsets in one arena, and where each may pause.

    Args:
        plans: of the models, the most urgent first.

    Returns:
        The plans; and the numbers of the operators before which a more urgent model may run.
    """
    alignment = max(ALIGNMENT, *(plan.alignment for plan in plans))
    offsets: list[dict[int, int]] = []
    first = 0
    for plan in plans:  # what states keep lies at the beginning
        own = {}
        for storage in _kept(plan):
            own[id(storage)] = first = aligned(first, storage.alignment)
            first += storage.bytes
        first = aligned(first, alignment)
        offsets.append(own)
    block, pauses = 0, []
    for number, plan in enumerate(plans):
        chosen = _pauses(plan, block) if number else ()
        placed, urgent, size = _laid_out(plan, block, chosen, alignment)
        for before, other in zip(offsets[:number], plans, strict=False):
            kept = {id(storage) for storage in _kept(other)}
            before.update({key: offset + urgent for key, offset in before.items() if key not in kept})
        offsets[number].update({key: first + offset for key, offset in placed.items()})
        block = aligned(size, alignment)
        pauses.append(chosen)
    return [moved(plan, own) for plan, own in zip(plans, offsets, strict=True)], pauses


def every_pause(plan: Plan) -> tuple[int, ...]:
    """Return the numbers of all operators but the first, which follows the beginning at once."""
    return tuple(range(1, len(plan.steps)))


def longest_stretch(costs: Sequence[float], pauses: Sequence[int]) -> float:
    """Return what the operators between two pauses take at most."""
    most = stretch = 0.0
    paused = {*pauses}
    for number, cost in enumerate(costs):
        stretch = cost if number in paused else stretch + cost
        most = max(most, stretch)
    return most


def costs_of(plan: Plan) -> list[float]:
    """Return the instructions of each operator, as its schedule estimates them."""
    return [step.schedule.cost(step.node, plan.graph, plan.target) for step in plan.steps]


def _kept(plan: Plan) -> list[Storage]:
    return [storage for storage, _ in plan.storages if is_kept(plan, storage)]


def _others(plan: Plan) -> list[Storage]:
    return [storage for storage, _ in plan.storages if not is_kept(plan, storage)]


def _pauses(plan: Plan, block: int) -> tuple[int, ...]:
    """Return where a plan may pause for models that need `block` bytes: all but the gaps that cost memory."""
    others, costs = _others(plan), costs_of(plan)
    longest = max(costs, default=0.0)
    peak = max((_live(others, number + 1) for number in range(len(plan.steps))), default=0)
    chosen = {*every_pause(plan)}
    between = {number: _live(others, number, number + 1) for number in chosen}
    for number in sorted(between, key=lambda one: (-between[one], one)):
        if between[number] + block <= peak or longest_stretch(costs, [*chosen - {number}]) > longest:
            break  # the arena is no smaller without the gaps that follow
        chosen.remove(number)
    return tuple(sorted(chosen))


def _live(storages: Sequence[Storage], *bits: int) -> int:
    """Return the bytes that are live at all of some bits of `Part.live`."""
    mask = sum(1 << bit for bit in bits)
    return sum(part.bytes for storage in storages for part in storage.parts if part.live & mask == mask)


def _laid_out(plan: Plan, block: int, pauses: Sequence[int], alignment: int) -> tuple[Mapping[int, int], int, int]:
    """Return the offset of each storage, that of the more urgent models' block, and the bytes of all."""
    others = _others(plan)
    pieces = [_with_gaps(one) for one in others]
    gaps = sum(1 << (2 * number + 1) for number in pauses)
    if block and gaps:
        pieces.append(Storage(block, (Part(0, block, gaps),), ["more urgent models"], alignment))
    placed, size = lay_out(pieces)
    urgent = placed[len(others)] if len(pieces) > len(others) else 0
    return {id(one): placed[number] for number, one in enumerate(others)}, urgent, max(size, urgent + block)


def _with_gaps(storage: Storage) -> Storage:
    """Return a storage with its life in operators and the gaps between them: bit 2n of what was bit n."""
    parts = []
    for part in storage.parts:
        live = sum((1 << (2 * end - 1)) - (1 << (2 * first)) for first, end in part.spans())
        parts.append(replace(part, live=live))
    return Storage(storage.bytes, tuple(parts), storage.values, storage.alignment)
