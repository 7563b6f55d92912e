"""Numbers and types as text for people."""

from typing import TYPE_CHECKING

from mtool.base import plural
from mtool.base.plural import count

if TYPE_CHECKING:
    from mtool.manifest import Manifest, Tensor

_LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(number: float) -> str:
    """Format a count with three digits and a prefix: 2.66 M, 22.6 k, 64."""
    for factor, prefix in _LARGE:
        if abs(number) >= factor:
            return (
                f"{number / factor:.3g} {prefix}" if abs(number) < 1000 * factor else f"{number / factor:,.0f} {prefix}"
            )
    return f"{number:g}"


def joules(microjoules: float) -> str:
    """Format an energy with three digits: 812 µJ, 1.82 mJ."""
    return f"{microjoules:.3g} µJ" if microjoules < 1000 else f"{microjoules / 1e3:.3g} mJ"


def frequency(hz: int) -> str:
    """Format a clock frequency: 120 MHz."""
    return f"{hz / 1e6:g} MHz"


def kilobytes(count: int) -> str:
    """Format a number of bytes: 512 B, 37.6 KB, 4 MB (1 KB is 1,024 B)."""
    if count < 1024:
        return f"{count} B"
    unit, size = (
        ("MB", 1 << 20) if count >= 10 << 20 or (count >= 1 << 20 and count % (1 << 20) == 0) else ("KB", 1 << 10)
    )
    text = f"{count / size:,.1f}".removesuffix(".0")
    return f"{text} {unit}"


def samples(number: int, *, sequence: bool) -> str:
    """Format a number of samples, or of a sequence's steps: 4 samples, 20 steps of a sequence."""
    return f"{count(number, 'step')} of a sequence" if sequence else count(number, "sample")


def share(part: int, whole: int) -> str:
    """Format a fraction as a percentage; a nonzero one is never shown as 0%, nor one below the whole as 100%."""
    if part == 0 or whole == 0:
        return "0%"
    if part >= whole:
        return "100%"
    percent = min(max(100 * part / whole, 0.01), 99.9)
    return f"{percent:.{3 if percent >= 99.5 else 2}g}%"


def tensor(described: "Tensor") -> str:
    """Format a tensor's type: int8[1,49,10,1]; with run-time sizes: int8[n,10]."""
    return f"{described.dtype}[{','.join(map(str, described.dims or described.shape))}]"


def arena(manifest: "Manifest") -> str:
    """Format the size of an arena and its parts in each memory pool, and the constants in pools and in RAM."""
    pools = [
        f"{pool.name} {pool.bytes:,} of {pool.limit_bytes:,} B"
        + f", of which {pool.constant_bytes:,} B of constants" * bool(pool.constant_bytes)
        for pool in manifest.pools
    ]
    where = f" in {', '.join(pools)}" if pools else ""
    of_constants = ", ".join(
        f"{pool.name} {pool.bytes:,} of {pool.limit_bytes:,} B ({plural.count(len(pool.constants), 'array')})"
        for pool in manifest.constant_pools
    )
    constants = f", constants in {of_constants}" if of_constants else ""
    in_ram = manifest.constant_bytes_in_ram
    constants += f", {in_ram:,} B of weights in RAM besides" if in_ram else ""
    return f"arena {manifest.arena_bytes:,} B{where} (bound {manifest.arena_bound_bytes:,} B){constants}"
