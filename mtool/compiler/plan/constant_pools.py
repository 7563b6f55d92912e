"""Constants in several memories: each lies in one, what is read most by the byte in the fastest that has room.

Nothing is copied: they are `const` arrays, which the linker puts there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mtool.base.errors import FitError
from mtool.compiler.plan.memory import aligned
from mtool.compiler.plan.pool import Pool

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


def placed(
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
