"""Names that come near one that is not there."""

import difflib
from collections.abc import Iterable

_MOST = 3
_SHORT = 3  # letters of a name that is looked for inside others


def near(name: str, names: Iterable[str], most: int = _MOST) -> list[str]:
    """Return the names that hold this one, in capitals or not; or else those that are spelt much like it."""
    asked, known = name.lower(), {each.lower(): each for each in reversed([*names])}
    inside = [known[each] for each in reversed(known) if len(asked) >= _SHORT and asked in each]
    return inside[:most] or [known[each] for each in difflib.get_close_matches(asked, known, n=most, cutoff=0.5)]


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the question that a hint asks about a name that is not there, or `otherwise` if none comes near."""
    found = near(name, names, most=1)
    return f"did you mean {found[0]}?" if found else otherwise
