"""The functions of the firmware that modules may call, and the C of their table (crt/modules/mt_module_exports.c).

A module names a function by a hash of its declaration. Functions of the group "rare" are only in firmware that was
built with MT_MODULE_MATH=2: they take 13 KB on a Cortex-M4.
"""

from collections.abc import Iterable
from typing import Literal

from mtool.base.frozen import frozen
from mtool.manifest.modules.format import declaration_hash

Group = Literal["memory", "math", "rare"]
_LEVELS: dict[Group, int] = {"memory": 0, "math": 1, "rare": 2}


@frozen
class Export:
    """A function of the firmware: its name, its C declaration, and which firmware has it."""

    name: str
    declaration: str
    group: Group

    @property
    def hash(self) -> int:
        """The hash by which a module names it."""
        return declaration_hash(self.declaration)


def _of(names: str, group: Group, arguments: str = "float") -> list[Export]:
    return [Export(name, f"float {name}({arguments})", group) for name in names.split()]


_ALL = [
    Export("memcpy", "void *memcpy(void *, const void *, size_t)", "memory"),
    Export("memmove", "void *memmove(void *, const void *, size_t)", "memory"),
    Export("memset", "void *memset(void *, int, size_t)", "memory"),
    Export("memcmp", "int memcmp(const void *, const void *, size_t)", "memory"),
    *_of("expf logf tanhf sqrtf floorf ceilf rintf roundf truncf", "math"),
    *_of("erff sinf cosf tanf asinf acosf atanf sinhf coshf asinhf acoshf atanhf expm1f log1pf", "rare"),
    *_of("powf fmodf remainderf", "rare", "float, float"),
    *_of("fmaf", "rare", "float, float, float"),
]
EXPORTS = {function.name: function for function in _ALL}
"""All exports, by name."""

BY_HASH = {function.hash: function for function in _ALL}
"""All exports, by hash."""


def level(hashes: Iterable[int]) -> int:
    """Return the lowest MT_MODULE_MATH of firmware that has all of the functions; 2 if one is unknown."""
    return max((_LEVELS[BY_HASH[number].group] if number in BY_HASH else 2 for number in hashes), default=0)


_HEAD = """\
/* Written by mtool/manifest/modules/exports.py, and a test holds the two together.
 *
 * The functions that modules may call: their addresses, by a rising hash of the declaration. MT_MODULE_MATH says how
 * many of the mathematical library are among them, and so in the firmware: 0 none, 1 the usual ones, 2 all. */
#include <math.h>
#include <string.h>

#include "mt_module.h"

#ifndef MT_MODULE_MATH
#define MT_MODULE_MATH 1
#endif

#define EXPORT(hash, name) {hash, (void (*)(void))(name)},

const struct mt_export mt_module_exports[] = {
"""
_TAIL = """\
};

const uint32_t mt_module_export_count = sizeof mt_module_exports / sizeof mt_module_exports[0];
"""


def c_table() -> str:
    """Return the C of the firmware's table."""
    lines: list[str] = []
    level = 0
    for function in sorted(_ALL, key=lambda function: function.hash):
        needed = _LEVELS[function.group]
        if needed != level:
            lines += ["#endif"] * (level > 0) + [f"#if MT_MODULE_MATH >= {needed}"] * (needed > 0)
            level = needed
        lines.append(f"    EXPORT(0x{function.hash:08X}u, {function.name}) /* {function.declaration} */")
    return _HEAD + "\n".join([*lines, *["#endif"] * (level > 0)]) + "\n" + _TAIL
