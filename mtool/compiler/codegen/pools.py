"""The C of pools (an arena in several memories), and the sections of constants."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mtool.base.escaping import c_string, comment
from mtool.compiler.codegen.arena import ARENA_ALIGNMENT, PARAMETER, pool_symbol
from mtool.compiler.codegen.c_text import columns, function, variable
from mtool.compiler.codegen.functions import Functions
from mtool.compiler.codegen.model import CModel
from mtool.compiler.ir.types import Array
from mtool.compiler.plan import Plan
from mtool.compiler.plan.memory import aligned
from mtool.compiler.plan.pool import PlacedPool, Pool
from mtool.compiler.plan.pools import CONSTANT_ALIGNMENT, WORD, Constant, in_sections

# The C of an arena in several memories: an array for each pool, or the structure with the caller's pointers.


def size_macro(model: object, pool: str) -> str:
    """Return the macro with the bytes of a pool."""
    return f"{model}_pool_{pool}_bytes".upper()


def definitions(model: CModel) -> list[str]:
    """Return the pools' arrays, one for each pool in use."""
    lines = []
    for placed in model.plan.pools:
        if placed.bytes:
            name = placed.pool.name
            lines.append(f"{_where(placed)} uint8_t {pool_symbol(model, name)}[{size_macro(model, name)}];")
    return [*lines, ""] if lines else []


def _where(placed: PlacedPool) -> str:
    """Return the macros that put a pool into its memory."""
    pool = placed.pool
    if pool.section:
        return f"MT_PLACED({c_string(pool.section)}, {placed.alignment})"
    if not pool.is_arena:
        return f"MT_IN_MEMORY({pool.name}, {placed.alignment})"
    return f"MT_ARENA_ALIGNED({placed.alignment}) " * (placed.alignment > ARENA_ALIGNMENT) + "MT_ARENA"


def needs_header(plan: Plan) -> bool:
    """Whether the arrays' macros are from mtool.h."""
    return any(placed.bytes and (placed.pool.section or not placed.pool.is_arena) for placed in plan.pools)


def declarations(model: CModel) -> list[str]:
    """Return the part of a model's header about its pools."""
    plan = model.plan
    lines = [comment("The arena lies in several memories, its pools.")]
    for placed in plan.pools:
        lines.append(f"#define {size_macro(model, placed.pool.name)} {placed.bytes} {comment(_usage(placed))}")
    if not model.arena.is_callers:
        used = (placed.pool.name for placed in plan.pools if placed.bytes)
        return [*lines, *(f"extern uint8_t {pool_symbol(model, name)}[];" for name in used), ""]
    lines += [
        "",
        comment("The caller's pools. Each address must be a multiple of the number next to it."),
        f"struct {model}_pools {{",
    ]
    lines += [
        f"    uint8_t *{placed.pool.name}; {comment(str(placed.alignment) if placed.bytes else 'unused: NULL')}"
        for placed in plan.pools
    ]
    return [*lines, "};", ""]


def instance(model: CModel) -> list[str]:
    """Return the caller's pools in a firmware of mtool's: the arrays, and the structure."""
    pointers = (pool_symbol(model, placed.pool.name) if placed.bytes else "0" for placed in model.plan.pools)
    return [
        *definitions(model),
        variable(f"static struct {model}_pools {PARAMETER}", f" = {{{', '.join(pointers)}}}"),
        "",
    ]


def load_call(model: CModel) -> list[str]:
    """Return the call that must precede operators that read copies of constants; nothing: there are no copies."""
    return [f"{model}_load();"] * any(placed.constant_bytes for placed in model.plan.pools)


def load_function(model: CModel) -> list[str]:
    """Return the function that copies constants into pools, once."""
    arena = model.arena
    if not arena.copies:
        return []
    copies = (
        f"    memcpy({arena.bytes_at(copy.spot)}, {symbol}, sizeof({symbol}));" for symbol, copy in arena.copies.items()
    )
    return [
        comment("Constants that are read faster from a pool; they are copied there before the first run."),
        function(
            f"static void {model}_load(void)",
            "    static uint8_t is_loaded;",
            "    if (is_loaded)",
            "        return;",
            "    is_loaded = 1;",
            *copies,
        ),
    ]


def usage(placed: PlacedPool) -> str:
    """Return how a pool is used, for the map: "dtcm, 1,024 bytes of 65,536"."""
    return f"{placed.pool.name}, {placed.bytes:,} bytes {_usage(placed)}"


def _usage(placed: PlacedPool) -> str:
    waits = placed.pool.speed
    slow = f", about {waits:g} cycle{'s' * (waits != 1)} an access" if waits else ""
    copies = f", the last {placed.constant_bytes:,} of copies of constants" if placed.constant_bytes else ""
    return f"of {placed.pool.bytes:,}{copies}{slow}"


# The C of constants in several memories: the section of each, and a map.


def alignment_of(layout: str) -> int:
    """Return the alignment that a table's layout begins with, "aligned to 32 bytes"; 0: with none."""
    return int(layout.split()[2]) if layout.startswith("aligned to ") else 0


def with_constants_in_pools(functions: Functions, more: Mapping[str, Array]) -> Functions:
    """Return the functions with the pool of each constant; offers for copies count the wait states there.

    Args:
        functions: the model's.
        more: constants that no operator reads: initial values.

    Raises:
        FitError: a constant does not fit.
    """
    plan = functions.plan
    if not plan.constant_pools:
        return functions
    sizes = {symbol: data.nbytes for symbol, data in {**functions.constants, **more}.items()}
    in_flash = {symbol: sizes[symbol] for symbol in sizes if symbol not in functions.in_ram}
    by_operator = functions.constant_bytes()
    densities = _densities(functions, by_operator)
    constants = [Constant(symbol, size, size * densities.get(symbol, 0.0)) for symbol, size in in_flash.items()]
    in_pools = in_sections(plan.graph.name, constants, plan.constant_pools, _alignment(functions, plan.constant_pools))
    waits = {symbol: pool.speed / WORD for symbol, pool in in_pools.items()}

    def mean(sizes: Mapping[str, int]) -> float:  # cycles that a byte of an operator's constants waits
        return sum(size * waits.get(symbol, 0.0) for symbol, size in sizes.items()) / max(sum(sizes.values()), 1)

    offers = tuple(replace(o, cycles=o.bytes * mean(by_operator.get(o.operator, {}))) for o in plan.offers)
    return replace(functions, plan=replace(plan, offers=offers), in_pools=in_pools)


def bytes_in(functions: Functions, pool: Pool) -> int:
    """Return the bytes of a pool that constants take, with the padding after each."""
    alignment = max(_alignment(functions, functions.plan.constant_pools), CONSTANT_ALIGNMENT)
    symbols = (symbol for symbol, other in functions.in_pools.items() if other.name == pool.name)
    return sum(aligned(functions.constants[symbol].nbytes, alignment) for symbol in symbols)


def section_of(symbol: str, pool: Pool) -> str:
    """Return the section of a constant: its own, which a linker can drop, or the user's."""
    return pool.section or f".rodata.mt_in.{pool.name}.{symbol}"


def placing(symbol: str, pool: Pool) -> str:
    """Return the macro that puts a constant into its memory."""
    return f"MT_PLACED({c_string(section_of(symbol, pool))}, {max(pool.alignment, CONSTANT_ALIGNMENT)})"


def map_of(functions: Functions) -> list[str]:
    """Return the lines of the map: the pools and the constants in each."""
    lines = []
    for pool in functions.plan.constant_pools:
        symbols = [symbol for symbol, other in functions.in_pools.items() if other.name == pool.name]
        slow = f", about {pool.speed:g} cycles an access" if pool.speed else ""
        lines += ["", f"Constants in {pool.name}, {bytes_in(functions, pool):,} bytes of {pool.bytes:,}{slow}"]
        cells = [("bytes", "what"), *((f"{functions.constants[symbol].nbytes:,}", symbol) for symbol in symbols)]
        lines += ["", *columns(cells, (0,))] if symbols else []
    return lines


def _alignment(functions: Functions, pools: Sequence[Pool]) -> int:
    """Return the alignment of all constants: the largest of any, so that their order does not matter."""
    return max([*(pool.alignment for pool in pools), *map(alignment_of, functions.layouts.values())])


def _densities(functions: Functions, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Return about how often each byte of a constant is read in an inference, by all operators."""
    reads = {read.operator: read.bytes for read in functions.plan.reads}
    densities: dict[str, float] = {}
    for operator, constants in sizes.items():
        density = reads.get(operator, sum(constants.values())) / max(sum(constants.values()), 1)
        for symbol in constants:
            densities[symbol] = densities.get(symbol, 0.0) + density
    return densities
