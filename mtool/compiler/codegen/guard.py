"""--guard: what a model checks of its memory in each run, and its C; crt/src/mt_integrity.c does the work."""

import zlib
from collections.abc import Iterable

import numpy as np

from mtool.base.errors import UsageError
from mtool.base.escaping import comment
from mtool.compiler.codegen.arena import ARENA_ALIGNMENT
from mtool.compiler.codegen.c_text import Part, function, listed, members, variable
from mtool.compiler.codegen.model import CModel
from mtool.compiler.ir.types import Array

_SHARE = 0.02  # of a run's instructions, for its part of the constants
_PER_BYTE = 12  # instructions of mt_crc32
_LEAST_PART = 64  # bytes
_WORD = 0xFFFF_FFFF


def check_guard(model: CModel) -> None:
    """Refuse models whose runs or arenas can't be checked.

    Raises:
        UsageError: a run is not one call, or the arena is not the model's own, in one piece.
    """
    conventions, plan = model.conventions, model.plan
    reasons = {
        f"--interface-api {conventions.interface}, where a run is several calls": (
            conventions.interface in ("step", "feed")
        ),
        f"--executor {conventions.executor}": conventions.executor != "aot",
        "an arena that models share; --arena own gives each its own": model.arena.is_shared and plan.arena_bytes > 0,
        "--arena caller": model.arena.is_callers,
        "--protect, which itself refuses writes beside the arena": model.place.unit is not None,
        "an arena in several memories": bool(plan.pools),
        "cores whose flash has its own address space": plan.target.flash_is_apart,
    }
    for reason, is_there in reasons.items():
        if model.place.guard and is_there:
            hint = "leave one of them out" if reason.startswith("--") else "leave out --guard"
            raise UsageError(f"--guard can't be combined with {reason}", hint=hint)


def guarded_arena(model: CModel) -> str:
    """Return the C name of the arena with its margins."""
    return f"{model}_guarded"


def _margin(model: CModel) -> int:
    return max(ARENA_ALIGNMENT, model.plan.alignment)


def arena_declaration(model: CModel) -> list[str]:
    """Return the declaration of the arena between its margins."""
    name, margins = guarded_arena(model), 2 * _margin(model) + -model.plan.arena_bytes % 4
    return [
        f"#define {name.upper()}_BYTES ({model.upper}_ARENA_BYTES + {margins})",
        f"extern uint8_t {name}[];",
        f"#define {model.arena.symbol} ({name} + {_margin(model)})",
    ]


def check_declaration(model: CModel) -> list[str]:
    """Return the declaration of the function that checks everything."""
    note = (
        "Check all constants and the bytes beside the arena, not during a run. Each run checks a part of them, the",
        "first one everything unless this was called before. Returns 0, MT_BAD_CONSTANT or MT_BAD_ARENA.",
    )
    return [comment(*note), f"int32_t {model}_check(void);", ""] if model.place.guard else []


def integrity(model: CModel) -> list[str | Part]:
    """Return what is checked, and the function that checks all of it."""
    if not model.place.guard:
        return []
    constants = {symbol: data for symbol, data in model.functions.read.items() if data.nbytes}
    part = max(_LEAST_PART, int(_SHARE * sum(model.costs) / _PER_BYTE)) & ~3
    flow = 0
    for number in range(len(model.plan.steps)):
        flow = flow * 33 + number + 1 & _WORD
    described = {
        "state": f"&{model}_integrity_state",
        **({"constants": f"{model}_checked_constants"} if constants else {}),
        "count": len(constants),
        "part": part,
        "sum": f"0x{_sum(constants.values(), part):08X}u",
        "flow": f"0x{flow:08X}u",
    }
    if model.plan.arena_bytes:
        described["arena"] = f"(uint32_t *)(void *){guarded_arena(model)}"
        described |= {"arena_bytes": f"{model.upper}_ARENA_BYTES", "margin": _margin(model)}
    rows = [f"{{{symbol}, {data.nbytes}}}," for symbol, data in constants.items()]
    table = listed(f"static const struct mt_integrity_constant {model}_checked_constants[]", rows)
    return [
        "/* What each run checks (--guard). */",
        *[table] * bool(constants),
        variable(f"static struct mt_integrity_state {model}_integrity_state"),
        members(f"static const struct mt_integrity {model}_integrity", described),
        "",
        function(f"int32_t {model}_check(void)", f"    return mt_integrity_check(&{model}_integrity);"),
    ]


def _sum(constants: Iterable[Array], part: int) -> int:
    """Return the sum that mt_integrity.c computes: of the CRCs of the parts of constants that each run checks."""
    total, remaining = 0, part
    for data in constants:
        text = np.ascontiguousarray(data).tobytes()
        at = 0
        while at < len(text):
            count = min(remaining, len(text) - at)
            total = (total << 1 & _WORD | total >> 31) ^ zlib.crc32(text[at : at + count])
            at, remaining = at + count, remaining - count or part
    return total


def condition(model: CModel, runs: str) -> str:
    """Return the condition on which an operator runs, which notes that it does."""
    if not model.place.guard:
        return runs
    return f"({runs}) && mt_integrity_flow(&{model}_integrity_state, (uint32_t)(number))"


def begin_check(model: CModel, when: str = "") -> list[str]:
    """Return the lines at the start of a run; `when`: the condition on which a function starts one."""
    begin = f"mt_integrity_begin(&{model}_integrity)"
    lines = [
        f"    const int32_t damage = {f'{when} ? {begin} : 0' if when else begin};",
        "    if (damage != 0)",
        "        return damage;",
    ]
    return lines if model.place.guard else []


def end_check(model: CModel) -> list[str]:
    """Return the line at the end of a run."""
    return [f"    return mt_integrity_end(&{model}_integrity);" if model.place.guard else "    return 0;"]
