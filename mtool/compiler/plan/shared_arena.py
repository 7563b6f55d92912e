"""One arena for several models, of which one runs at a time: the largest counts, and what states keep lies apart.

The states of all models lie at the beginning, each model's behind those of the one before it; what only lives during an
inference lies behind them, every model's in the same place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mtool.boards.protection import Unit
from mtool.compiler.plan.first_fit import lay_out
from mtool.compiler.plan.memory import ALIGNMENT as LEAST
from mtool.compiler.plan.memory import Storage, aliases, aligned
from mtool.compiler.plan.plan import Plan

ALIGNMENT = 16
"""Of what each model has of the arena, in bytes."""


def share_arena(plans: Sequence[Plan], unit: Unit | None = None) -> list[Plan]:
    """Return the plans with offsets in an arena that all of them share; without states they stay as they are.

    With `unit`, what each keeps and what follows have granules of a memory protection for themselves.
    The `arena_bytes` of each are up to the last byte that the model uses; the largest is the arena.
    """
    kept = [[storage for storage, _ in plan.storages if is_kept(plan, storage)] for plan in plans]
    if not any(kept):
        return [*plans]
    alignment = max(ALIGNMENT, *(plan.alignment for plan in plans))
    starts, end = [], 0
    for storages in kept:
        size = sum(aligned(storage.bytes, storage.alignment) for storage in storages)
        if unit is not None and storages:
            end = aligned(end, unit.window(size))
        starts.append(end)
        for storage in storages:
            end = aligned(end, storage.alignment) + storage.bytes
        end = aligned(end, alignment if unit is None else max(alignment, unit.granule(size)))
    if unit is not None:
        end = aligned(end, max(unit.granule(plan.arena_bytes) for plan in plans))
    return [_laid_out(*each, end) for each in zip(plans, kept, starts, strict=True)]


def kept_bytes(plan: Plan) -> int:
    """Return the bytes of a plan's arena that states keep from one inference to the next."""
    return sum(storage.bytes for storage, _ in plan.storages if is_kept(plan, storage))


def is_kept(plan: Plan, storage: Storage) -> bool:
    """Whether a storage of a plan is a state's, which lives from inference to inference."""
    return any(value in storage.values for _, value, _ in plan.graph.state_values)


def _laid_out(plan: Plan, kept: Sequence[Storage], start: int, end: int) -> Plan:
    """Return a plan with its states from `start` on, and all else from `end` on."""
    others = [storage for storage, _ in plan.storages if not any(storage is one for one in kept)]
    placed, _ = lay_out(others)
    offsets = {id(storage): end + placed[number] for number, storage in enumerate(others)}
    for storage in kept:
        offsets[id(storage)] = start = aligned(start, storage.alignment)
        start += storage.bytes
    return moved(plan, offsets)


def moved(plan: Plan, offsets: Mapping[int, int]) -> Plan:
    """Return a plan whose storages lie elsewhere: at the offset of each, by its `id`."""
    home = {value: (offset, offsets[id(storage)]) for storage, offset in plan.storages for value in storage.values}
    lies = aliases(plan.graph)

    def new(name: str, offset: int) -> int:
        before, after = home[name]
        return offset - before + after

    storages = sorted(((one, offsets[id(one)]) for one, _ in plan.storages), key=lambda pair: (pair[1], pair[0].first))
    return replace(
        plan,
        offsets={value: new(lies.get(value, (value, 0))[0], offset) for value, offset in plan.offsets.items()},
        scratch=tuple(
            None if offset is None else new(f"scratch of {step.node.title}", offset)
            for step, offset in zip(plan.steps, plan.scratch, strict=True)
        ),
        storages=tuple(storages),
        arena_bytes=max((offset + max(aligned(one.bytes), LEAST) for one, offset in storages), default=0),
    )
