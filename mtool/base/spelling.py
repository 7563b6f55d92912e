"""Suggestions for unknown names."""

import difflib
import re
from collections.abc import Iterable

_MOST = 3
_SHORT = 3  # the fewest letters of a name that is searched for inside others


def near(name: str, names: Iterable[str], most: int = _MOST) -> list[str]:
    """Return the names that contain this one, ignoring case; or else those with similar spelling."""
    word, spelled = name.lower(), {key.lower(): key for key in reversed([*names])}
    inside = [spelled[key] for key in reversed(spelled) if len(word) >= _SHORT and word in key]
    return inside[:most] or [spelled[key] for key in difflib.get_close_matches(word, spelled, n=most, cutoff=0.5)]


def whole_name(part: str, names: Iterable[str]) -> str:
    """Return the only name that contains a part of at least three letters, or ends with it; otherwise the part."""
    candidates = [*names]
    inside = [candidate for candidate in candidates if len(part) >= _SHORT and part in candidate]
    ending = [candidate for candidate in inside if candidate.endswith(part)]
    matches = ending if len(ending) == 1 else inside
    return matches[0] if len(matches) == 1 and part not in candidates else part


def shortest_part(name: str, names: Iterable[str]) -> str:
    """Return the shortest end of a path-like name that `whole_name` finds it by; the name itself if there is none."""
    candidates = [*names]
    ends = (name[match.end() :] for match in reversed([*re.finditer(r"[/;]", name)]))
    return next((end for end in ends if whole_name(end, candidates) == name), name)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return a hint with the name most similar to an unknown one, or `otherwise` if none is similar."""
    nearest = near(name, names, most=1)
    return f"did you mean {nearest[0]}?" if nearest else otherwise
