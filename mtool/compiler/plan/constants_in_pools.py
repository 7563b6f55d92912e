"""Copies of constants in pools, behind the tensors: those that save most cycles by the byte, while there is room.

They are in flash too, from where they are copied before the first inference.
"""

from collections.abc import Mapping
from dataclasses import replace

from mtool.compiler.plan.memory import aligned
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.pool import ConstantReads, PlacedPool, Pool
from mtool.compiler.plan.pools import WORD

ALIGNMENT = 16  # of a constant: the largest that a kernel wants


def with_copies(plan: Plan, sizes: Mapping[str, Mapping[str, int]]) -> tuple[Plan, dict[str, tuple[int, int]]]:
    """Return a plan whose pools have room for copies of constants, and the pool and the offset there of each.

    Args:
        plan: in pools.
        sizes: the bytes of each operator's constants, by their C symbols, of those that may be copied.
    """
    pools = [*plan.pools]
    found: dict[str, tuple[int, int]] = {}
    order = sorted(range(len(pools)), key=lambda number: pools[number].pool.speed)

    def density(one: ConstantReads) -> tuple[float, str]:
        return -one.cycles / max(sum(sizes.get(one.operator, {}).values()), 1), one.operator

    for one in sorted(plan.offers, key=density):
        new = {symbol: count for symbol, count in sizes.get(one.operator, {}).items() if symbol not in found}
        for number in order if new else ():
            grown = _grown(pools[number], new)
            if grown.bytes <= grown.pool.bytes and _pays(one, grown.pool):
                offset = aligned(pools[number].bytes, ALIGNMENT)
                for symbol, count in new.items():
                    found[symbol] = number, offset
                    offset = aligned(offset + count, ALIGNMENT)
                pools[number] = grown
                break
    if not found:
        return plan, {}
    return _with_begins(plan, pools), found


def _grown(placed: PlacedPool, new: Mapping[str, int]) -> PlacedPool:
    """Return a pool with more constants behind what is there."""
    end = aligned(placed.bytes, ALIGNMENT) + sum(aligned(count, ALIGNMENT) for count in new.values())
    return replace(placed, bytes=end, constant_bytes=placed.constant_bytes + end - placed.bytes)


def _pays(one: ConstantReads, pool: Pool) -> bool:
    """Whether a copy in a pool saves cycles; the memory was given for that."""
    return pool.use != "tensors" and one.cycles > one.bytes / WORD * pool.speed


def _with_begins(plan: Plan, pools: list[PlacedPool]) -> Plan:
    """Return a plan with larger pools, which begin further on, and so does all that lies in them."""
    begins, begin = [], 0
    for placed in pools:
        begin = aligned(begin, placed.alignment)
        begins.append(begin)
        begin += placed.bytes + 1

    def new(offset: int) -> int:
        number, inside = plan.place(offset)
        return begins[number] + inside

    return replace(
        plan,
        offsets={value: new(offset) for value, offset in plan.offsets.items()},
        scratch=tuple(None if offset is None else new(offset) for offset in plan.scratch),
        storages=tuple((storage, new(offset)) for storage, offset in plan.storages),
        pools=tuple(replace(placed, begin=begin) for placed, begin in zip(pools, begins, strict=True)),
    )
