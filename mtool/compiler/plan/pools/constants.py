"""Constants in memories: which lie in pools for constants, and which have a copy in a pool of the arena."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mtool.base.errors import FitError
from mtool.compiler.plan.memory import aligned
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.pool import ConstantReads, PlacedPool, Pool
from mtool.compiler.plan.pools.arena import WORD

# Constants in several memories: each lies in one, what is read most by the byte in the fastest that has room.
#
# Nothing is copied: they are `const` arrays, which the linker puts there.


ALIGNMENT = 16
"""Of each constant there, in bytes: the largest that a kernel wants of one which does not say so."""
_SHOWN = 4  # constants in an error


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant: its C symbol, its bytes, and the bytes of it that an inference reads, about."""

    symbol: str
    bytes: int
    read: float

    @property
    def density(self) -> float:
        """How often each byte is read."""
        return self.read / max(self.bytes, 1)


def in_sections(
    model: str, constants: Sequence[Constant], pools: Sequence[Pool], alignment: int = ALIGNMENT
) -> Mapping[str, Pool]:
    """Return the pool of each constant, by its symbol.

    Args:
        model: the model's name.
        constants: all that are to be placed.
        pools: where they may lie; of equally fast ones the first counts as the faster.
        alignment: of each of them.

    Raises:
        FitError: one has no room.
    """
    ranked = sorted(pools, key=lambda pool: pool.speed)
    orders = (
        sorted(constants, key=lambda one: (-one.density, -one.bytes, one.symbol)),
        sorted(constants, key=lambda one: (-one.bytes, -one.density, one.symbol)),
    )
    short: list[list[Constant]] = []
    for order in orders:
        found, left = _first_fit(order, ranked, alignment)
        if not left:
            return {one.symbol: found[one.symbol] for one in constants}
        short.append(left)
    raise _error(model, constants, pools, min(short, key=lambda left: sum(one.bytes for one in left)), alignment)


def _first_fit(
    order: Iterable[Constant], ranked: Sequence[Pool], alignment: int
) -> tuple[dict[str, Pool], list[Constant]]:
    """Put each constant into the first pool that has room; return where they are, and those that found none."""
    room = [pool.bytes for pool in ranked]
    found: dict[str, Pool] = {}
    left = []
    for one in order:
        size = aligned(one.bytes, max(alignment, ALIGNMENT))
        number = next((number for number, count in enumerate(room) if size <= count), None)
        if number is None:
            left.append(one)
            continue
        room[number] -= size
        found[one.symbol] = ranked[number]
    return found, left


def _error(
    model: str, constants: Sequence[Constant], pools: Sequence[Pool], left: Sequence[Constant], alignment: int
) -> FitError:
    rows = [f"{pool.name} has {pool.bytes:,} B" for pool in pools]
    largest = sorted(left, key=lambda one: (-one.bytes, one.symbol))
    rows += [f"no room for {one.symbol}: {one.bytes:,} B" for one in largest[:_SHOWN]]
    rows += [f"and {len(left) - _SHOWN} more"] * (len(left) > _SHOWN)
    rows.append(f"all constants are {sum(aligned(one.bytes, max(alignment, ALIGNMENT)) for one in constants):,} B")
    most = largest[0].bytes
    if most > max(pool.bytes for pool in pools):
        hint = f"a constant lies in one pool as a whole: one of {aligned(most, max(alignment, ALIGNMENT)):,} B"
    else:
        hint = "more bytes in one of them, another pool for=weights, or --optimize size, which has smaller constants"
    return FitError(f"the constants of {model} do not fit its pools", details=rows, hint=hint)


# Copies of constants in pools, behind the tensors: those that save most cycles by the byte, while there is room.
#
# They are in flash too, from where they are copied before the first inference.


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
