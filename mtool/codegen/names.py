"""C names of a model's inputs and outputs."""

import re
from collections.abc import Iterable

_KEYWORDS = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    asm bool true false class new delete this template typename namespace
    """.split()  # noqa: SIM905
)


def c_names(names: Iterable[str]) -> list[str]:
    """Return a C identifier for each name, all different."""
    made: list[str] = []
    for name in names:
        stem = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "tensor"
        stem = f"t_{stem}" if stem[0].isdigit() or stem in _KEYWORDS else stem
        unique, number = stem, 1
        while unique in made:
            number += 1
            unique = f"{stem}_{number}"
        made.append(unique)
    return made
