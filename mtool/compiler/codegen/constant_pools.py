"""The C of constants in several memories: the section of each, and the map that says which is where."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mtool.base.escaping import c_string
from mtool.compiler.codegen.functions import Functions
from mtool.compiler.ir.types import Array
from mtool.compiler.plan import Plan
from mtool.compiler.plan.constant_pools import ALIGNMENT, Constant, placed
from mtool.compiler.plan.memory import aligned
from mtool.compiler.plan.pool import ConstantReads, Pool
from mtool.compiler.plan.pools import WORD

_ALIGNED = re.compile(r"aligned to (\d+) bytes")


def alignment_of(layout: str) -> int:
    """Return the alignment that a table's layout begins with, "aligned to 32 bytes"; 0: with none."""
    found = _ALIGNED.match(layout)
    return int(found[1]) if found else 0


def with_constants_in_pools(functions: Functions, more: Mapping[str, Array]) -> Functions:
    """Return the functions with the pool of each constant; the offers for copies count what those let the core wait.

    Args:
        functions: the model's.
        more: constants that no operator reads: initial values.

    Raises:
        FitError: a constant has no room.
    """
    plan = functions.plan
    if not plan.constant_pools:
        return functions
    sizes = {symbol: data.nbytes for symbol, data in {**functions.constants, **more}.items()}
    own = {symbol: sizes[symbol] for symbol in sizes if symbol not in functions.in_ram}
    densities = _densities(plan, functions)
    constants = [Constant(symbol, size, size * densities.get(symbol, 0.0)) for symbol, size in own.items()]
    in_pools = placed(plan.graph.name, constants, plan.constant_pools, _alignment(functions, plan.constant_pools))
    waits = {symbol: pool.speed / WORD for symbol, pool in in_pools.items()}
    offers = tuple(replace(one, cycles=one.bytes * _mean(plan, functions, one, waits)) for one in plan.offers)
    return replace(functions, plan=replace(plan, offers=offers), in_pools=in_pools)


def bytes_in(functions: Functions, pool: Pool) -> int:
    """Return the bytes of a pool that constants take, each with what is left empty behind it."""
    alignment = max(_alignment(functions, functions.plan.constant_pools), ALIGNMENT)
    own = (symbol for symbol, one in functions.in_pools.items() if one.name == pool.name)
    return sum(aligned(functions.constants[symbol].nbytes, alignment) for symbol in own)


def section_of(symbol: str, pool: Pool) -> str:
    """Return the section that a constant lies in: one of its own, which a linker can leave out, or that of the user."""
    return pool.section or f".rodata.mt_in.{pool.name}.{symbol}"


def placing(symbol: str, pool: Pool) -> str:
    """Return the macro that puts a constant into its memory."""
    return f"MT_PLACED({c_string(section_of(symbol, pool))}, {max(pool.alignment, ALIGNMENT)})"


def map_of(functions: Functions) -> list[str]:
    """Return the lines of the map: the pools, and the constants in each."""
    lines = []
    for pool in functions.plan.constant_pools:
        own = [symbol for symbol, one in functions.in_pools.items() if one.name == pool.name]
        slow = f", about {pool.speed:g} cycles an access" if pool.speed else ""
        lines += ["", f"Constants in {pool.name}, {bytes_in(functions, pool):,} bytes of {pool.bytes:,}{slow}"]
        cells = [("bytes", "what"), *((f"{functions.constants[symbol].nbytes:,}", symbol) for symbol in own)]
        width = max(len(count) for count, _ in cells)
        lines += ["", *(f"  {count.rjust(width)}  {what}" for count, what in cells)] if own else []
    return lines


def _alignment(functions: Functions, pools: Sequence[Pool]) -> int:
    """Return what all constants are aligned to: what any of them wants, so that their order does not matter."""
    return max([*(pool.alignment for pool in pools), *map(alignment_of, functions.layouts.values())])


def _densities(plan: Plan, functions: Functions) -> dict[str, float]:
    """Return how often a byte of each constant is read in an inference, about: by all operators that read it."""
    reads = {one.operator: one.bytes for one in plan.reads}
    sizes: dict[str, dict[str, int]] = {}
    for step, call in zip(plan.steps, functions.calls, strict=True):
        own = sizes.setdefault(step.node.title, {})
        own |= {symbol: functions.read[symbol].nbytes for symbol in call.constants.values()}
    found: dict[str, float] = {}
    for operator, own in sizes.items():
        density = reads.get(operator, sum(own.values())) / max(sum(own.values()), 1)
        for symbol in own:
            found[symbol] = found.get(symbol, 0.0) + density
    return found


def _mean(plan: Plan, functions: Functions, one: ConstantReads, waits: Mapping[str, float]) -> float:
    """Return the cycles that a byte of an operator's constants waits, on average."""
    calls = zip(plan.steps, functions.calls, strict=True)
    symbols = {symbol for step, call in calls if step.node.title == one.operator for symbol in call.constants.values()}
    sizes = {symbol: functions.read[symbol].nbytes for symbol in symbols}
    return sum(size * waits.get(symbol, 0.0) for symbol, size in sizes.items()) / max(sum(sizes.values()), 1)
