"""Suggestions for unknown names."""

import difflib
import re
from collections.abc import Iterable

_MOST = 3
_SHORT = 3  # the fewest letters of a name that is searched for inside others


def near(name: str, names: Iterable[str], most: int = _MOST) -> list[str]:
    """Return the names that contain this one, ignoring case; or else those with similar spelling."""
    asked, known = name.lower(), {each.lower(): each for each in reversed([*names])}
    inside = [known[each] for each in reversed(known) if len(asked) >= _SHORT and asked in each]
    return inside[:most] or [known[each] for each in difflib.get_close_matches(asked, known, n=most, cutoff=0.5)]


def whole_name(part: str, names: Iterable[str]) -> str:
    """Return the only name that contains a part of at least three letters, or ends with it; otherwise the part."""
    known = [*names]
    inside = [each for each in known if len(part) >= _SHORT and part in each]
    ending = [each for each in inside if each.endswith(part)]
    found = ending if len(ending) == 1 else inside
    return found[0] if len(found) == 1 and part not in known else part


def shortest_part(name: str, names: Iterable[str]) -> str:
    """Return the shortest end of a path-like name that `whole_name` finds it by; the name itself if there is none."""
    known = [*names]
    ends = (name[match.end() :] for match in reversed([*re.finditer(r"[/;]", name)]))
    return next((end for end in ends if whole_name(end, known) == name), name)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return a hint with the name most similar to an unknown one, or `otherwise` if none is similar."""
    found = near(name, names, most=1)
    return f"did you mean {found[0]}?" if found else otherwise
