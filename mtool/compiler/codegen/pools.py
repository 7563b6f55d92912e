"""The C of an arena in several memories: an array for each pool, or the structure with the caller's pointers."""

from mtool.base.escaping import c_string, comment
from mtool.compiler.codegen.arena import ARENA_ALIGNMENT, PARAMETER, Arena, pool_symbol
from mtool.compiler.plan import Plan
from mtool.compiler.plan.pool import PlacedPool


def size_macro(model: str, pool: str) -> str:
    """Return the macro that stands for the bytes of a pool."""
    return f"{model}_pool_{pool}_bytes".upper()


def definitions(plan: Plan) -> list[str]:
    """Return the arrays that are the pools, one for each that is used."""
    lines = []
    for placed in plan.pools:
        if placed.bytes:
            name = placed.pool.name
            lines += [
                f"{_where(placed)} uint8_t {pool_symbol(plan.graph.name, name)}[{size_macro(plan.graph.name, name)}];"
            ]
    return [*lines, ""] if lines else []


def _where(placed: PlacedPool) -> str:
    """Return the macros that put a pool into its memory."""
    pool = placed.pool
    if pool.section:
        return f"MT_PLACED({c_string(pool.section)}, {placed.alignment})"
    if not pool.is_arena:
        return f"MT_LENT({pool.name}, {placed.alignment})"
    return f"MT_ARENA_ALIGNED({placed.alignment}) " * (placed.alignment > ARENA_ALIGNMENT) + "MT_ARENA"


def needs_header(plan: Plan) -> bool:
    """Whether the arrays' macros are those of mt_device.h."""
    return any(one.bytes and (one.pool.section or not one.pool.is_arena) for one in plan.pools)


def declarations(plan: Plan, arena: Arena) -> list[str]:
    """Return the part of a model's header that tells of its pools."""
    model = plan.graph.name
    lines = [comment("The arena lies in several memories, its pools.")]
    for placed in plan.pools:
        lines.append(f"#define {size_macro(model, placed.pool.name)} {placed.bytes} {comment(_told(placed))}")
    if not arena.is_callers:
        used = (one.pool.name for one in plan.pools if one.bytes)
        return [*lines, *(f"extern uint8_t {pool_symbol(model, name)}[];" for name in used), ""]
    lines += [
        "",
        comment("The caller's pools, of so many bytes; addresses are multiples of what stands beside them."),
        f"struct {model}_pools {{",
    ]
    lines += [
        f"    uint8_t *{one.pool.name}; {comment(str(one.alignment) if one.bytes else 'nothing lies there: NULL')}"
        for one in plan.pools
    ]
    return [*lines, "};", ""]


def instance(plan: Plan) -> list[str]:
    """Return the caller's pools as a firmware of mtool's has them: the arrays, and the structure."""
    model = plan.graph.name
    pointers = (pool_symbol(model, one.pool.name) if one.bytes else "0" for one in plan.pools)
    return [*definitions(plan), f"static struct {model}_pools {PARAMETER} = {{{', '.join(pointers)}}};", ""]


def load_call(plan: Plan) -> list[str]:
    """Return what has to be called before an operator that reads a copy of constants; nothing: there are none."""
    return [f"{plan.graph.name}_load();"] if any(placed.constant_bytes for placed in plan.pools) else []


def load_function(plan: Plan, arena: Arena) -> list[str]:
    """Return the function that copies constants into pools, once."""
    if not arena.copies:
        return []
    copies = (
        f"    memcpy({arena.bytes_at(copy.spot)}, {symbol}, sizeof({symbol}));" for symbol, copy in arena.copies.items()
    )
    return [
        comment("Constants that are read sooner in a pool than where they are; they are copied before the first run."),
        f"static void {plan.graph.name}_load(void)",
        "{",
        "    static uint8_t is_loaded;",
        "    if (is_loaded)",
        "        return;",
        "    is_loaded = 1;",
        *copies,
        "}",
        "",
    ]


def told(placed: PlacedPool) -> str:
    """Return what the map says of a pool: "dtcm, 1,024 bytes of 65,536"."""
    return f"{placed.pool.name}, {placed.bytes:,} bytes {_told(placed)}"


def _told(placed: PlacedPool) -> str:
    waits = placed.pool.speed
    slow = f", about {waits:g} cycle{'s' * (waits != 1)} an access" if waits else ""
    copies = f", the last {placed.constant_bytes:,} of copies of constants" if placed.constant_bytes else ""
    return f"of {placed.pool.bytes:,}{copies}{slow}"
